"""What the kernels are measured on: shapes of ResNet-50, ViT-S/16 and the preprocessing of photos, 64 images at a time.

Each case says what else computes the same in torch, and how far a result may lie from float64: the bounds of tests/kernels.
bfloat16 keeps 8 bits, so half of the last place is 2^-9 of the value; 2^-7 leaves room for intermediate sums, and for Triton's
interpreter, which cuts off. Levels may fall to the other side of a tie between float32 and float64, rarely and by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Arguments = tuple[Any, ...]
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
_LAST = torch.channels_last


@dataclass(frozen=True)
class Bound:
    """|difference| may be `relative` of the exact value and `absolute`; for a `share` of the elements more, up to `most`."""

    relative: float = 0.0
    absolute: float = 0.0
    share: float = 0.0
    most: float = 0.0


BF16 = Bound(relative=2**-7, absolute=1e-5)
LEVELS = Bound(share=1e-3, most=1.0)
EXACT = Bound()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator on one shape. `make` gives its arguments on a device; `peer` computes the same in torch from what
    `peer_arguments` makes of them, under the name `peer_is`; `expected` computes the results in float64 from the operator's
    reference, the arguments and what the operator gave; `bounds` are those of each result. `operations` of `precision` are
    counted for convolutions, whose measure is cuDNN; all else is measured by the bytes it moves.
    """

    operator: str
    shape: str
    make: Callable[[str], Arguments]
    peer: Callable[..., object]
    peer_is: str
    bounds: tuple[Bound, ...]
    peer_arguments: Callable[[Arguments], Arguments] = lambda given: given
    expected: Callable[..., Any] = lambda reference, given, got: reference(*in_float64(given))
    operations: int = 0
    precision: str = "bf16"


def in_float64(given: Arguments) -> Arguments:
    """Float tensors and dtypes in float64; levels and the rest as they are."""

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.double() if value.is_floating_point() else value
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    return tuple(one(value) for value in given)


def cases(*, quick: bool) -> Iterator[Case]:
    """Every case; `quick` keeps their structure at a size for the interpreter."""
    from gpu.convolutions import convolutions

    batch = 2 if quick else 64
    maps = ((64, 256, 56), (64, 512, 28), (64, 1024, 14), (64, 2048, 7))
    shapes = [(2, min(c, 8), 5, 5) if quick else (n, c, s, s) for n, c, s in maps]
    yield from (_add_relu(shape) for shape in shapes)
    yield from (_add_relu_quantize(shape) for shape in shapes[::2])
    yield from (_quantize(shape, per_channel=per_channel) for shape in shapes[::2] for per_channel in (True, False))
    yield from (_dequantize(shape) for shape in shapes[::2])
    yield _max_pool((2, 6, 9, 9) if quick else (64, 64, 112, 112))
    tokens, width = (5, 24) if quick else (197, 384)
    for features in (width, 2 * width):
        yield _layer_norm(batch, tokens, features)
        yield _add_layer_norm(batch, tokens, features)
    yield _bias_gelu(batch, tokens, 4 * width, "none")
    yield _bias_gelu(batch, tokens, 8 * width, "tanh")
    for rows, classes, dtype in (
        (batch, 1000, torch.float32),
        (256 * batch, 1000, torch.bfloat16),
        (batch, 21843, torch.float32),
    ):
        yield _softmax_topk(*((3, 50) if quick else (rows, classes)), dtype)
    for height, width, interpolation in ((375, 500, "bilinear"), (375, 500, "bicubic"), (1200, 1600, "bilinear")):
        size = (9, 12) if quick else (height, width)
        yield _preprocess(batch, size, interpolation, *((6, 5) if quick else (256, 224)))
    yield from convolutions(quick=quick)


def normal(shape: tuple[int, ...], device: str, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator(device).manual_seed(seed), device=device).to(dtype)
    return values.to(memory_format=_LAST) if len(shape) == 4 else values


def levels(shape: tuple[int, ...], device: str, seed: int = 0) -> Tensor:
    draw = torch.Generator(device).manual_seed(seed)
    values = torch.randint(-128, 128, shape, generator=draw, device=device, dtype=torch.int8)
    return values.to(memory_format=_LAST) if len(shape) == 4 else values


def _add_relu(shape: tuple[int, ...]) -> Case:
    return Case(
        operator="add_relu",
        shape=f"{list(shape)} bf16, channels last",
        make=lambda device: (normal(shape, device), normal(shape, device, seed=1)),
        peer=lambda a, b: torch.relu(a + b),
        peer_is="torch.relu(a + b)",
        bounds=(BF16,),
    )


def _add_relu_quantize(shape: tuple[int, ...]) -> Case:
    def by_operators(a: Tensor, b: Tensor, *numbers: Any) -> Tensor:
        a_scale, a_zero, b_scale, b_zero, scale, zero = numbers[:6]
        total = torch.relu((a.float() - a_zero) * a_scale + (b.float() - b_zero) * b_scale)
        return (total / scale).round().add(zero).clamp(-128, 127).to(torch.int8)

    return Case(
        operator="add_relu_quantize",
        shape=f"{list(shape)} int8, channels last",
        make=lambda device: (
            *(levels(shape, device), levels(shape, device, 1)), *(0.02, 3, 0.013, -5, 0.017, -128), torch.int8,
        ),
        peer=by_operators,
        peer_is="dequantize, add, relu, quantize in plain torch",
        expected=lambda reference, given, got: reference(given[0].double(), given[1].double(), *given[2:]),
        bounds=(LEVELS,),
    )  # fmt: skip


def _max_pool(shape: tuple[int, ...]) -> Case:
    window = ([3, 3], [2, 2], [1, 1], [1, 1])
    return Case(
        operator="max_pool2d",
        shape=f"{list(shape)} bf16, channels last, 3x3",
        make=lambda device: (normal(shape, device), *window),
        peer=functional.max_pool2d,
        peer_is="F.max_pool2d",
        bounds=(EXACT,),
    )


def _scales(channels: int, device: str) -> tuple[Tensor, Tensor]:
    """Scales and zero points. A round scale such as 0.02 would make ties of bfloat16 values such as 0.25, which float32 and
    float64 see on different sides."""
    places = torch.arange(channels, device=device)
    return 0.0213 + 0.01 * (places % 7) / 7, (places % 11 - 5).to(torch.int32)


def _quantize(shape: tuple[int, ...], *, per_channel: bool) -> Case:
    from headrace.kernels.quantize import quantize_reference

    return Case(
        operator="quantize",
        shape=f"{list(shape)} bf16 to int8, channels last, {'a scale each' if per_channel else 'one scale'}",
        make=lambda device: (normal(shape, device), *_scales(shape[1] if per_channel else 1, device), 1, torch.int8),
        peer=quantize_reference,
        peer_is="the reference in plain torch",
        bounds=(LEVELS,),
    )


def _dequantize(shape: tuple[int, ...]) -> Case:
    from headrace.kernels.quantize import dequantize_reference

    return Case(
        operator="dequantize",
        shape=f"{list(shape)} int8 to bf16, channels last, a scale each",
        make=lambda device: (levels(shape, device), *_scales(shape[1], device), 1, torch.bfloat16),
        peer=dequantize_reference,
        peer_is="the reference in plain torch",
        bounds=(BF16,),
    )


def _affine(features: int, device: str) -> tuple[Tensor, Tensor]:
    return normal((features,), device, torch.float32, 2), normal((features,), device, torch.float32, 3)


def _layer_norm(batch: int, tokens: int, features: int) -> Case:
    return Case(
        operator="layer_norm",
        shape=f"[{batch}, {tokens}, {features}] bf16",
        make=lambda device: (normal((batch, tokens, features), device), *_affine(features, device), 1e-6),
        peer=lambda x, weight, bias, eps: functional.layer_norm(x, x.shape[-1:], weight, bias, eps),
        # torch's kernel takes one dtype.
        peer_arguments=lambda given: (given[0], given[1].to(given[0].dtype), given[2].to(given[0].dtype), given[3]),
        peer_is="F.layer_norm",
        bounds=(Bound(relative=2**-7, absolute=2**-7),),
    )


def _add_layer_norm(batch: int, tokens: int, features: int) -> Case:
    def both(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return functional.layer_norm(total, x.shape[-1:], weight, bias, eps), total

    def make(device: str) -> Arguments:
        shape = (batch, tokens, features)
        return normal(shape, device), normal(shape, device, seed=1), *_affine(features, device), 1e-6

    def expected(reference: Callable[..., Any], given: Arguments, got: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """What is normalized is the rounded sum, which must itself be right."""
        total = got[1].double()
        normed, _ = reference(total, torch.zeros_like(total), *in_float64(given[2:]))
        return normed, given[0].double() + given[1].double()

    return Case(
        operator="add_layer_norm",
        shape=f"[{batch}, {tokens}, {features}] bf16",
        make=make,
        peer=both,
        peer_arguments=lambda given: (*given[:2], given[2].to(given[0].dtype), given[3].to(given[0].dtype), given[4]),
        peer_is="x + residual, F.layer_norm",
        expected=expected,
        bounds=(Bound(relative=2**-7, absolute=2**-7), BF16),
    )


def _bias_gelu(batch: int, tokens: int, features: int, approximate: str) -> Case:
    return Case(
        operator="bias_gelu",
        shape=f"[{batch}, {tokens}, {features}] bf16, {approximate}",
        make=lambda device: (
            normal((batch, tokens, features), device), normal((features,), device, seed=1), approximate,
        ),
        peer=lambda x, bias, approximate: functional.gelu(x + bias, approximate=approximate),
        peer_is="F.gelu(x + bias)",
        bounds=(Bound(relative=2**-7, absolute=2e-6),),
    )  # fmt: skip


def _softmax_topk(rows: int, classes: int, dtype: torch.dtype) -> Case:
    return Case(
        operator="softmax_topk",
        shape=f"[{rows}, {classes}] {str(dtype).removeprefix('torch.')}, k = 5",
        make=lambda device: (5 * normal((rows, classes), device, dtype), 5),
        peer=lambda scores, k: torch.topk(torch.softmax(scores, dim=1, dtype=torch.float32), k),
        peer_is="torch.topk(torch.softmax)",
        bounds=(Bound(relative=1e-5, absolute=1e-30), EXACT),
    )


def _preprocess(batch: int, size: tuple[int, int], interpolation: str, short: int, crop: int) -> Case:
    height, width = size
    length = 3 * height * width

    def make(device: str) -> Arguments:
        draw = torch.Generator(device).manual_seed(0)
        pixels = torch.randint(0, 256, (batch * length,), generator=draw, device=device, dtype=torch.uint8)
        offsets = length * torch.arange(batch, device=device)
        sizes = (torch.full_like(offsets, height), torch.full_like(offsets, width))
        return pixels, offsets, *sizes, [short], [crop, crop], interpolation, True, _MEAN, _STD, torch.bfloat16

    def peer(pixels: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """All of one size, so that torch may take them as one batch; photos of different sizes it must take one by one."""
        images = pixels.reshape(batch, height, width, 3).permute(0, 3, 1, 2).float()
        wanted = [short * height // min(size), short * width // min(size)]
        images = functional.interpolate(images, wanted, mode=interpolation, antialias=True)
        top, left = (round((side - crop) / 2) for side in wanted)
        images = images[:, :, top : top + crop, left : left + crop].add(0.5).floor_().clamp_(0, 255)
        return ((images / 255 - mean) / deviation).to(torch.bfloat16, memory_format=_LAST)

    def peer_arguments(given: Arguments) -> Arguments:
        return given[0], *(torch.tensor(value, device=given[0].device).reshape(3, 1, 1) for value in (_MEAN, _STD))

    return Case(
        operator="preprocess",
        shape=f"{batch} photos of {height}x{width}, short side {short}, crop {crop}, {interpolation}, bf16",
        make=make,
        peer=peer,
        peer_arguments=peer_arguments,
        peer_is="F.interpolate(antialias=True) of one batch, crop, normalize",
        # A level on the other side of a tie is 1/255 of the range, divided by the least deviation.
        bounds=(Bound(relative=2**-7, absolute=1e-3, share=1e-2, most=1 / 255 / min(_STD) + 0.03),),
    )
