"""The specializations that launches of each kernel ask Triton for: what `compile_kernels` compiles without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.kernels import add_relu, bias_gelu, conv, layer_norm, max_pool, preprocess, quantize, softmax_topk
from headrace.kernels._tiles import usual_tile


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A specialization that launches ask Triton for, compiled without a GPU to see that it can be and what it takes.

    `types` are the arguments' types as Triton writes them ("*bf16", "i64", "fp32") and `constants` the other parameters.
    `aligned` names the arguments that are multiples of 16: pointers of whole tensors, and usual strides.
    """

    name: str
    program: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    aligned: frozenset[str] = frozenset()
    warps: int = 4
    stages: int = 3


def _add_relu(name: str, program: Any, given: str, out: str, count: str, levels: dict[str, int]) -> Variant:
    numbers = ("a_scale", "a_zero_point", "b_scale", "b_zero_point", "scale", "zero_point") if levels else ()
    types = {"a": f"*{given}", "b": f"*{given}", "out": f"*{out}", "count": count, **dict.fromkeys(numbers, "fp32")}
    aligned = frozenset({"a", "b", "out", "count"})
    return Variant(name=name, program=program, types=types, constants={**levels, "block": add_relu._BLOCK}, aligned=aligned)


def _bias_gelu(dtype: str, features: int, *, tanh: bool) -> Variant:
    return Variant(
        name=f"{dtype}, {features} features, {'tanh' if tanh else 'erf'}",
        program=bias_gelu._tile,
        types={"x": f"*{dtype}", "bias": "*fp32", "out": f"*{dtype}", "rows": "i32", "features": "i32", "row_stride": "i32"},
        constants={"feature_stride": 1, "tanh": tanh, **bias_gelu._sizes(features)},
        aligned=frozenset({"x", "bias", "out", "features", "row_stride"}),
    )


def _conv(dtype: str, channels: int, outputs: int, taps: int, *, adds: bool) -> Variant:
    levels = dtype == "i8"
    height, width, depth, warps, stages = usual_tile(1 << 20, outputs, channels, 1 if levels else 2)
    pointers = ("x", "weight", "scale", "bias", "residual", "out")
    padding = taps // 2
    flags = {
        "shifts": True,
        "adds": adds,
        "relu": not levels,
        "least": -128.0,
        "levels": levels,
        "large": False,
        "in_float32": False,
    }
    flags |= {"padded": padding > 0, "flat": taps == 1, "run": 0, "pitch": channels}
    tile = {"tile_rows": height, "tile_outputs": width, "depth": depth}
    ones = dict.fromkeys(("stride_down", "stride_across", "dilation_down", "dilation_across"), 1)
    sizes = dict.fromkeys(("height", "width", "out_height", "out_width"), 56)
    paddings = dict.fromkeys(("padding_down", "padding_across"), padding)
    return Variant(
        name=f"{dtype}, {channels} to {outputs} channels, {taps}x{taps}{', residual' if adds else ''}",
        program=conv._tile,
        types={
            **{name: "*fp32" if name == "scale" or (levels and name == "bias") else f"*{dtype}" for name in pointers},
            **dict.fromkeys(("rows", "outputs"), "i32"),
            "residual_scale": "fp32",
        },
        constants={
            **ones,
            **sizes,
            **paddings,
            **flags,
            **tile,
            "channels": channels,
            "taps_down": taps,
            "taps_across": taps,
        },
        aligned=frozenset({*pointers, "rows", "outputs"}),
        warps=warps,
        stages=stages,
    )


def _turns(dtype: str, channels: int, outputs: int, tile: list[int]) -> Variant:
    """1x1 with a residual, of which programs take turns."""
    usual = _conv(dtype, channels, outputs, 1, adds=True)
    height, width, depth, warps, stages = tile
    named = ("channels", "large", "shifts", "adds", "relu", "least", "levels", "in_float32")
    sizes = {"tile_rows": height, "tile_outputs": width, "depth": depth, "ahead": stages, "known_turns": 0}
    return replace(
        usual, name=f"{usual.name}, turns", program=conv._stream, types={**usual.types, "turns": "i32"},
        constants={**{name: usual.constants[name] for name in named}, **sizes}, warps=warps, stages=stages,
    )  # fmt: skip


def _stem(dtype: str, *, levels: bool = False) -> Variant:
    """7x7 over three channels, at every second pixel, two rows of taps at a time; with `levels` it gives int8."""
    usual = _conv(dtype, 64, 64, 7, adds=False)
    steps = {"stride_down": 2, "stride_across": 2, "padding_down": 0, "padding_across": 0, "height": 229, "width": 240}
    more = {"out_height": 112, "out_width": 112, "padded": False, "flat": False, "pitch": 4, "channels": 28}
    constants = {**usual.constants, **steps, **more, "run": conv._run_of(7), "levels": levels}
    types = {**usual.types, **({"bias": "*fp32", "out": "*i8"} if levels else {})}
    name = f"{dtype}, 3 to 64 channels, 7x7{', giving levels' if levels else ''}"
    return replace(usual, name=name, types=types, constants=constants, stages=1)


def _wide_pixels(dtype: str) -> Variant:
    sizes = {"height": 224, "width": 224, "channels": 3, "top": 3, "left": 3, "wide_height": 229, "wide_width": 240}
    strides = ("of_image", "of_channel", "of_row", "of_pixel")
    return Variant(
        name=f"{dtype}, pixels of an image",
        program=conv._spread,
        types={"x": f"*{dtype}", "out": f"*{dtype}", **dict.fromkeys(("count", *strides), "i32")},
        constants={**sizes, "pitch": conv._PITCH, "large": False, "block": conv._BLOCK},
        aligned=frozenset({"x", "out", "count"}),
    )


def _max_pool(dtype: str) -> Variant:
    twos = ("stride_down", "stride_across")
    ones = ("padding_down", "padding_across", "dilation_down", "dilation_across")
    sizes = {"height": 112, "width": 112, "out_height": 56, "out_width": 56, "window_down": 3, "window_across": 3}
    more = {"channels": 64, "large": False, "floats": dtype != "i8", "block": max_pool._BLOCK}
    return Variant(
        name=f"{dtype}, 3x3 at every second pixel",
        program=max_pool._windows,
        types={"x": f"*{dtype}", "out": f"*{dtype}", "count": "i32"},
        constants={**dict.fromkeys(twos, 2), **dict.fromkeys(ones, 1), **sizes, **more},
        aligned=frozenset({"x", "out", "count"}),
    )


def _layer_norm(dtype: str, features: int, *, adds: bool) -> Variant:
    pointers = ("x", "residual", "weight", "bias", "normed", "total")
    return Variant(
        name=f"{dtype}, {features} features{', residual' if adds else ''}",
        program=layer_norm._row,
        types={
            **{name: f"*{'fp32' if name in ('weight', 'bias') else dtype}" for name in pointers},
            **dict.fromkeys(("features", "x_row_stride", "residual_row_stride"), "i32"),
            "eps": "fp32",
        },
        constants={
            "x_stride": 1,
            "residual_stride": 1,
            "adds": adds,
            "scales": True,
            "shifts": True,
            **layer_norm._blocks(features),
        },
        aligned=frozenset({*pointers, "features", "x_row_stride", "residual_row_stride"}),
        warps=layer_norm._warps(features),
    )


def _preprocess(interpolation: str) -> Variant:
    integers = ("resize_height", "resize_width", "crop_height", "crop_width")
    floats = ("red_shift", "green_shift", "blue_shift", "red_gain", "green_gain", "blue_gain")
    types = {"pixels": "*u8", "out": "*bf16", **dict.fromkeys(("offsets", "heights", "widths"), "*i64")}
    return Variant(
        name=f"{interpolation}, short side, rounded, bf16",
        program=preprocess._tile,
        types={**types, **dict.fromkeys(("size", *integers), "i32"), **dict.fromkeys(floats, "fp32")},
        constants={
            "sides": 1,
            "radius": preprocess._RADIUS[interpolation],
            "rounded": True,
            "tall": preprocess._TALL,
            "across": preprocess._ACROSS,
        },
        aligned=frozenset({"pixels", "offsets", "heights", "widths", "out", *integers}),
    )


def _quantize(source: str, target: str, *, per_channel: bool) -> Variant:
    pointers = {"x": f"*{source}", "scale": "*fp32", "zero_point": "*i32", "out": f"*{target}"}
    sizes = {"channel_stride": 1, "least": -128, "most": 127, "block": quantize._BLOCK}
    return Variant(
        name=f"{source} to {target}, {'channels last, a scale each' if per_channel else 'one scale'}",
        program=quantize._stretch,
        types={**pointers, "count": "i32", "channels": "i32"},
        constants={**sizes, "to": target == "i8", "per_channel": per_channel, "shifts": True, "narrow": True},
        aligned=frozenset({*pointers, "count", "channels"}),
    )


def _softmax_topk(dtype: str, classes: int, k: int) -> Variant:
    return Variant(
        name=f"{dtype}, {classes} classes, k = {k}",
        program=softmax_topk._row,
        types={"scores": f"*{dtype}", "probabilities": "*fp32", "best": "*i64", "classes": "i32", "row_stride": "i32"},
        constants={"class_stride": 1, "k": k, **softmax_topk._blocks(classes)},
        aligned=frozenset({"scores", "probabilities", "best"}),
        warps=softmax_topk._warps(classes),
    )


VARIANTS: dict[str, tuple[Variant, ...]] = {
    "add_relu": (
        _add_relu("bf16", add_relu._sums, "bf16", "bf16", "i32", {}),
        _add_relu("int8 to int8", add_relu._levels, "i8", "i8", "i32", {"least": -128, "most": 127}),
        _add_relu("bf16 to int8, more than 2^31 elements", add_relu._levels, "bf16", "i8", "i64", {"least": -128, "most": 127}),
    ),
    "bias_gelu": (_bias_gelu("bf16", 1536, tanh=False), _bias_gelu("bf16", 3072, tanh=True)),
    "conv": (
        _conv("bf16", 64, 64, 3, adds=False),
        _conv("bf16", 256, 1024, 1, adds=True),
        _conv("i8", 64, 64, 3, adds=False),
        _conv("i8", 256, 1024, 1, adds=True),
        _turns("bf16", 64, 256, [64, 128, 64, 4, 3]),
        _turns("i8", 64, 256, [64, 64, 64, 4, 3]),
        _turns("i8", 256, 1024, [64, 64, 256, 4, 2]),
        _stem("bf16"),
        _stem("bf16", levels=True),
        _wide_pixels("bf16"),
    ),
    "layer_norm": (
        _layer_norm("bf16", 384, adds=False),
        _layer_norm("bf16", 768, adds=True),
        _layer_norm("fp32", 768, adds=True),
    ),
    "max_pool": (_max_pool("bf16"), _max_pool("i8")),
    "preprocess": (_preprocess("bilinear"), _preprocess("bicubic")),
    "quantize": (
        _quantize("bf16", "i8", per_channel=False),
        _quantize("bf16", "i8", per_channel=True),
        _quantize("i8", "bf16", per_channel=True),
    ),
    "softmax_topk": (_softmax_topk("fp32", 1000, 5), _softmax_topk("bf16", 1000, 5), _softmax_topk("fp32", 21843, 5)),
}
