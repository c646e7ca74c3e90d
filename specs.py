"""Torch-free values that every part of Headrace speaks: tensors, signatures, precisions, preprocessing, labels.

Nothing here imports torch, numpy or another part of the package, so the migrator can reason about a model
and the server can validate a request without loading either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

Dtype = Literal["float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
DTYPES: frozenset[str] = frozenset(Dtype.__args__)  # type: ignore[attr-defined]

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
INTERPOLATIONS: frozenset[str] = frozenset(Interpolation.__args__)  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One input or output: its name, numpy dtype name, and shape with the batch dimension named: ("batch", 3, 224, 224)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a tensor needs a name, got {self.name!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"tensor {self.name!r}: unknown dtype {self.dtype!r}; expected one of {sorted(DTYPES)}")
        if not self.shape or self.shape[0] != "batch":
            raise ValueError(f"tensor {self.name!r}: the first dimension must be 'batch', got shape {self.shape}")
        for size in self.shape[1:]:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(
                    f"tensor {self.name!r}: dimensions after the batch must be positive integers, got {self.shape}"
                )

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row, without the batch dimension."""
        return tuple(int(size) for size in self.shape[1:])

    @property
    def classes(self) -> int | None:
        """How many class scores a row holds: K of [K], and of the [K, 1, 1] that a fully convolutional network gives."""
        row = self.row_shape
        return row[0] if row and math.prod(row) == row[0] else None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorSpec:
        return cls(name=data["name"], dtype=data["dtype"], shape=tuple(data["shape"]))


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The inputs and outputs of a model, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        if not self.inputs or not self.outputs:
            raise ValueError("a signature needs at least one input and one output")
        for side in (self.inputs, self.outputs):
            names = [spec.name for spec in side]
            if len(set(names)) != len(names):
                raise ValueError(f"tensor names must differ, got {names}")

    @property
    def takes_pixels(self) -> bool:
        """Whether it takes decoded images, uint8 [batch, H, W, C], because the rest of its preprocessing is inside."""
        return len(self.inputs) == 1 and self.inputs[0].dtype == "uint8" and len(self.inputs[0].row_shape) == 3

    def to_json(self) -> dict[str, Any]:
        return {"inputs": [spec.to_json() for spec in self.inputs], "outputs": [spec.to_json() for spec in self.outputs]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        return cls(
            inputs=tuple(TensorSpec.from_json(spec) for spec in data["inputs"]),
            outputs=tuple(TensorSpec.from_json(spec) for spec in data["outputs"]),
        )


@dataclass(frozen=True, kw_only=True)
class Resize:
    """Resample 8-bit pixels. An integer size is the short side, or with `side` the long one; a pair is (height, width).

    The other side is size * other / side, by `long_side` rounded down or to the nearest; "ratio" is `int(x * (size / side))`
    of both sides, as hand-written code has it, where the ratio is rounded first.

    Pillow's filters always widen their support when shrinking, which torchvision calls antialias. OpenCV's never do, but for
    "area", a mean of what a pixel covers; of OpenCV there are bilinear and nearest, in fixed point, bicubic and area.
    """

    op: ClassVar[str] = "resize"
    size: int | tuple[int, int]
    interpolation: str = "bilinear"
    long_side: Literal["floor", "round", "ratio"] = "floor"
    antialias: bool = True
    library: Literal["pillow", "opencv"] = "pillow"
    side: Literal["short", "long"] = "short"

    def __post_init__(self) -> None:
        _check_size("resize", self.size, short=True)
        if self.side not in ("short", "long"):
            raise ValueError(f"resize: side must be 'short' or 'long', got {self.side!r}")
        if self.long_side not in ("floor", "round", "ratio"):
            raise ValueError(f"resize: long_side must be 'floor', 'round' or 'ratio', got {self.long_side!r}")
        if self.library not in ("pillow", "opencv"):
            raise ValueError(f"resize: library must be 'pillow' or 'opencv', got {self.library!r}")
        if self.library == "opencv":
            if self.interpolation not in ("bilinear", "nearest", "area", "bicubic") or self.antialias:
                raise ValueError("resize: of OpenCV's there are bilinear, bicubic, nearest and area, all with antialias=False")
            return
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"resize: unknown interpolation {self.interpolation!r}; expected one of {sorted(INTERPOLATIONS)}")
        if not self.antialias and self.interpolation != "nearest":
            raise ValueError("resize: only nearest can go without antialias; Pillow's other filters always antialias")

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) that an image of that size becomes, in pixels."""
        if not isinstance(self.size, int):
            return self.size
        given = min(height, width) if self.side == "short" else max(height, width)
        if self.long_side == "ratio":
            ratio = self.size / given
            return max(1, int(height * ratio)), max(1, int(width * ratio))
        exact = self.size * (height + width - given) / given
        other = max(1, int(exact) if self.long_side == "floor" else round(exact))
        return (self.size, other) if height == given else (other, self.size)


@dataclass(frozen=True, kw_only=True)
class CenterCrop:
    """Cut (height, width) out of the middle; outside the image is zero. `offset` says how half a pixel rounds."""

    op: ClassVar[str] = "center_crop"
    size: tuple[int, int]
    offset: Literal["floor", "round"] = "round"

    def __post_init__(self) -> None:
        _check_size("center_crop", self.size)
        if self.offset not in ("floor", "round"):
            raise ValueError(f"center_crop: offset must be 'floor' or 'round', got {self.offset!r}")

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """That of the crop."""
        return self.size

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """The (top, left) of the crop in an image of that size, in pixels; negative where the image is smaller."""
        excess = (height - self.size[0], width - self.size[1])
        if self.offset == "floor":
            return math.floor(excess[0] / 2), math.floor(excess[1] / 2)
        # torchvision rounds half to even where it cuts, and pads the smaller half in front where it pads
        top, left = (round(pixels / 2) if pixels >= 0 else -(-pixels // 2) for pixels in excess)
        return top, left


@dataclass(frozen=True, kw_only=True)
class Pad:
    """Lay the image on a canvas of one color: a square of its long side, or one of `size` (height, width) pixels, where a
    side that is longer already stays as it is. `fill` has one value per channel of the mode.

    `place` says where: in the middle with the odd pixel behind ("floor"), in front ("ceil") or at the even one ("round"), at
    the top left ("start"), or "symmetric": as many pixels on both sides, so that the canvas may be a pixel smaller.
    """

    op: ClassVar[str] = "pad"
    size: tuple[int, int] | None = None
    fill: tuple[int, ...] = (0, 0, 0)
    place: Literal["floor", "ceil", "round", "start", "symmetric"] = "floor"

    def __post_init__(self) -> None:
        if self.size is not None:
            _check_size("pad", self.size)
        if not self.fill or any(not isinstance(value, int) or not 0 <= value <= 255 for value in self.fill):
            raise ValueError(f"pad: fill must be 8-bit values, one per channel, got {self.fill!r}")
        if self.place not in ("floor", "ceil", "round", "start", "symmetric"):
            raise ValueError(f"pad: place must be 'floor', 'ceil', 'round', 'start' or 'symmetric', got {self.place!r}")

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) that an image of that size becomes, in pixels."""
        lacking = self._lacking(height, width)
        if self.place == "symmetric":
            lacking = (lacking[0] // 2 * 2, lacking[1] // 2 * 2)
        return height + lacking[0], width + lacking[1]

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """The (top, left) of the image on its canvas, in pixels."""
        lacking = self._lacking(height, width)
        if self.place == "start":
            return 0, 0
        if self.place == "ceil":
            return -(-lacking[0] // 2), -(-lacking[1] // 2)
        if self.place == "round":
            return round(lacking[0] / 2), round(lacking[1] / 2)
        return lacking[0] // 2, lacking[1] // 2

    def _lacking(self, height: int, width: int) -> tuple[int, int]:
        wanted = self.size or (max(height, width),) * 2
        return max(0, wanted[0] - height), max(0, wanted[1] - width)


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Bring the image to another mode: "L" is ITU-R 601-2's luma in the fixed point of Pillow (16 bits) or of OpenCV (15 bits),
    "RGB" three times the same. In the order "BGR" red is weighed as blue and blue as red, as COLOR_RGB2GRAY does to what
    `cv2.imread` gives."""

    op: ClassVar[str] = "convert"
    mode: Literal["RGB", "L"]
    library: Literal["pillow", "opencv"] = "pillow"
    order: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        if self.mode not in ("RGB", "L"):
            raise ValueError(f"convert: mode must be 'RGB' or 'L', got {self.mode!r}")
        if self.library not in ("pillow", "opencv"):
            raise ValueError(f"convert: library must be 'pillow' or 'opencv', got {self.library!r}")
        if self.order not in ("RGB", "BGR") or (self.order == "BGR" and (self.mode, self.library) != ("L", "opencv")):
            raise ValueError(f"convert: {self.library} has no order {self.order!r} for mode {self.mode!r}")

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """That of the image."""
        return height, width


@dataclass(frozen=True, kw_only=True)
class Point:
    """Look each 8-bit value up in a table of 256, or in one for each channel, one after another: an inversion, a threshold."""

    op: ClassVar[str] = "point"
    table: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.table) not in (256, 768) or any(
            not isinstance(value, int) or not 0 <= value <= 255 for value in self.table
        ):
            raise ValueError("point: the table must have 256 values of 8 bits, or as many for each of three channels")

    def __str__(self) -> str:
        what = "inverted" if self.table == tuple(range(255, -1, -1)) else f"{len(set(self.table))} values"
        return f"Point({what})"

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """That of the image."""
        return height, width


_MOST_SIDE = 65_536  # pixels; no format of images has more
Geometry = Resize | CenterCrop | Pad | Convert | Point
_GEOMETRY: dict[str, Any] = {kind.op: kind for kind in (Resize, CenterCrop, Pad, Convert, Point)}


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How encoded image bytes become one row of the model's input, recovered from the user's evaluation transform.

    Decode to `mode` ("RGB" or "L") with Pillow, apply `geometry` in order on 8-bit pixels, then for each channel of `row_mode`
    (pixel * scale - mean) / std in float32, in `channels` order, laid out channels first. With `upright` the decoded image is
    first turned as its EXIF data say, which is what `ImageOps.exif_transpose` does and `Image.open` does not. `gray` says who
    makes gray of colors for mode "L": Pillow's `convert`, or OpenCV's `imread` (a JPEG's own luma, a PNG's by libpng).
    `deep` says what becomes of 16 bits in a gray image: cut at 255 ("clip", as Pillow does), or "high-byte", as OpenCV does.
    `mean` and `std` have one entry per channel and are in units of the scaled pixel.
    """

    mode: Literal["RGB", "L"] = "RGB"
    geometry: tuple[Geometry, ...] = ()
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    upright: bool = False
    gray: Literal["pillow", "opencv"] = "pillow"
    deep: Literal["clip", "high-byte"] = "clip"
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.mode not in ("RGB", "L"):
            raise ValueError(f"preprocessing: mode must be 'RGB' or 'L', got {self.mode!r}")
        if self.gray not in ("pillow", "opencv") or (self.gray == "opencv" and self.mode != "L"):
            raise ValueError(f"preprocessing: mode {self.mode!r} cannot be gray as {self.gray!r} makes it")
        if self.deep not in ("clip", "high-byte"):
            raise ValueError(f"preprocessing: deep must be 'clip' or 'high-byte', got {self.deep!r}")
        mode: str = self.mode
        for step in self.geometry:
            count = len(mode)
            if isinstance(step, Pad) and len(step.fill) != count:
                raise ValueError(f"preprocessing: mode {mode} needs {count} values of pad's fill, got {len(step.fill)}")
            if isinstance(step, Point) and len(step.table) > 256 * count:
                raise ValueError(f"preprocessing: mode {mode} needs a table of 256 values, got {len(step.table)}")
            mode = step.mode if isinstance(step, Convert) else mode
        count = len(mode)
        if self.channels not in (("RGB", "BGR") if mode == "RGB" else ("L",)):
            raise ValueError(f"preprocessing: channels {self.channels!r} does not fit mode {mode!r}")
        if len(self.mean) != count or len(self.std) != count:
            raise ValueError(
                f"preprocessing: mode {mode} needs {count} means and stds, got {len(self.mean)} and {len(self.std)}"
            )
        if not all(math.isfinite(value) for value in (self.scale, *self.mean, *self.std)) or 0 in self.std or not self.scale:
            raise ValueError("preprocessing: scale, mean and std must be finite, scale and std not zero")

    @property
    def row_mode(self) -> Literal["RGB", "L"]:
        """The mode after all steps, whose channels a row has."""
        converted = [step.mode for step in self.geometry if isinstance(step, Convert)]
        return converted[-1] if converted else self.mode

    @property
    def row_size(self) -> tuple[int, int] | None:
        """The (height, width) of every row; None where it follows from the image."""
        known: tuple[int, int] | None = None
        square, longest = False, 0  # what is known of a size that is not: it is square, its long side is at most that
        for step in self.geometry:
            if isinstance(step, Convert | Point):
                continue
            if isinstance(step, CenterCrop):
                known = step.size
            elif isinstance(step, Pad):
                if known is not None:
                    known = step.output_size(*known)
                elif step.place != "symmetric":
                    square = square or step.size is None
                    known = step.size if step.size is not None and 0 < longest <= min(step.size) else None
            elif not isinstance(step.size, int):
                known = step.size
            elif known is not None or square:
                known = step.output_size(*(known or (1, 1)))
            elif step.side == "long":
                longest = step.size
        return known

    def to_json(self) -> dict[str, Any]:
        """The steps as a list of operations, the form that reports and artifacts carry."""
        steps: list[dict[str, Any]] = [{"op": "decode", "mode": self.mode}]
        steps[0] |= {"upright": True} if self.upright else {}
        steps[0] |= {"gray": self.gray} if self.gray != "pillow" else {}
        steps[0] |= {"deep": self.deep} if self.deep != "clip" else {}
        implied = (("library", "pillow"), ("side", "short"), ("order", "RGB"))  # what a step means that does not say
        for step in self.geometry:
            stated = {key: value for key, value in asdict(step).items() if (key, value) not in implied}
            steps.append({"op": step.op, **stated})
        steps += [
            {"op": "scale", "factor": self.scale},
            {"op": "normalize", "mean": list(self.mean), "std": list(self.std)},
            {"op": "layout", "channels": self.channels, "order": "CHW"},
        ]
        return {"source": self.source, "steps": steps}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preprocessing:
        """Read what `to_json` wrote; raises ValueError on an operation or an order that it would not write."""
        steps = [dict(step) for step in data["steps"]]
        names = [step.pop("op") for step in steps]
        inner = names[1:-3]
        if names[:1] != ["decode"] or names[-3:] != ["scale", "normalize", "layout"] or not set(inner) <= set(_GEOMETRY):
            raise ValueError(f"preprocessing: cannot read the steps {names}")
        geometry = []
        for name, step in zip(inner, steps[1:-3], strict=True):
            lists = {key: tuple(value) for key, value in step.items() if isinstance(value, list | tuple)}
            geometry.append(_GEOMETRY[name](**step | lists))
        return cls(
            mode=steps[0]["mode"],
            geometry=tuple(geometry),
            scale=steps[-3]["factor"],
            mean=tuple(steps[-2]["mean"]),
            std=tuple(steps[-2]["std"]),
            channels=steps[-1]["channels"],
            upright=steps[0].get("upright", False),
            gray=steps[0].get("gray", "pillow"),
            deep=steps[0].get("deep", "clip"),
            source=data.get("source", ""),
        )


# What everything else may compute in beside the products of a dtype, the usual one first.
_REST = {"fp32": ("fp32",), "bf16": ("bf16",), "fp16": ("fp16",), "fp8": ("bf16",), "int8": ("fp32", "bf16")}
_IN_FLOATS = (0.0, 0.1, 0.25, 0.5)


@dataclass(frozen=True)
class Precision:
    """What a model computes in: its convolutions and matrix products in `dtype` ("fp32", "bf16", "fp16", "fp8" or "int8"), the
    others in `rest` ("" is the usual one). `in_floats` is the share of int8's layers that compute in `rest`, too: those that
    lose most.

    Raises ValueError for a combination that there is not.
    """

    dtype: str
    rest: str = ""
    in_floats: float = 0.0

    def __post_init__(self) -> None:
        if self.dtype not in _REST:
            raise ValueError(f"precision must be one of {', '.join(_REST)}; got {self.dtype!r}")
        object.__setattr__(self, "rest", self.rest or _REST[self.dtype][0])
        if self.rest not in _REST[self.dtype]:
            raise ValueError(f"beside {self.dtype} the rest computes in {' or '.join(_REST[self.dtype])}; got {self.rest!r}")
        if self.in_floats not in (_IN_FLOATS if self.dtype == "int8" else (0.0,)):
            raise ValueError(f"{self.dtype} cannot have a share of {self.in_floats!r} of its layers in floats")

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.name, self.variant]))

    @property
    def name(self) -> str:
        """ "int8+bf16" where the rest is not the usual: what plans and files call it, whatever the share in floats."""
        return self.dtype if self.rest == _REST[self.dtype][0] else f"{self.dtype}+{self.rest}"

    @property
    def variant(self) -> str:
        """The share in floats, as plans write it; empty where there is none."""
        return f"{self.in_floats:.0%} of layers in floats" if self.in_floats else ""

    @property
    def lossy(self) -> bool:
        return self.dtype != "fp32"

    @property
    def is_int8(self) -> bool:
        """Whether it takes ranges from real images."""
        return self.dtype == "int8"

    @property
    def whole(self) -> Precision:
        """The same with all layers that can be in `dtype`: what backends declare."""
        return replace(self, in_floats=0.0)

    @property
    def level(self) -> int:
        """How many steps of more layers in floats lead here."""
        return _IN_FLOATS.index(self.in_floats)

    @property
    def with_more_in_floats(self) -> Precision | None:
        """The next level; None when there is none."""
        more = _IN_FLOATS[self.level + 1 :] if self.is_int8 else ()
        return replace(self, in_floats=more[0]) if more else None

    @property
    def passes(self) -> tuple[str, ...]:
        """The lowering passes without which there is no such program."""
        half = () if self.rest == "fp32" else ("half_precision",)
        return half if self.dtype == self.rest else (*half, self.dtype)

    @classmethod
    def read(cls, name: str, variant: str = "") -> Precision:
        """From `name` and `variant`, which plans hold; of a variant, other parts than the share in floats do not count."""
        dtype, _, rest = name.partition("+")
        found = cls(dtype, rest)
        shares = [replace(found, in_floats=share) for share in _IN_FLOATS[1:]] if found.is_int8 else []
        return next((item for item in shares if item.variant in variant.split(", ")), found)


FP32, BF16, FP16, FP8, INT8 = map(Precision, _REST)
INT8_BF16 = Precision("int8", rest="bf16")
PRECISIONS = (FP32, BF16, FP16, FP8, INT8, INT8_BF16)
"""Every precision that a backend may declare."""


MOST_LABEL = 10_000
"""Characters: what is longer is no name, and each answer would carry it."""


@dataclass(frozen=True)
class Labels:
    """Class names in the order of the model's outputs."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.names:
            if not isinstance(name, str):
                raise ValueError(f"label {name!r} is no text; give str({name!r})")
            if len(name) > MOST_LABEL:
                raise ValueError(f"label {name[:40]!r}... has {len(name):,} characters; a label may have {MOST_LABEL:,}")
            if not name or any(character in name for character in "\r\n"):
                raise ValueError(f"label {name!r} is empty or holds a line break")

    @classmethod
    def of(cls, names: Sequence[str]) -> Labels:
        return cls(tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]


def _check_size(op: str, size: int | tuple[int, int], *, short: bool = False) -> None:
    """That it is a (height, width) or, with `short`, the size of one side."""
    sizes = (size,) if short and type(size) is int else size if isinstance(size, list | tuple) and len(size) == 2 else ()
    if not sizes or any(type(side) is not int or not 1 <= side <= _MOST_SIDE for side in sizes):
        wanted = f"{'a positive integer or ' * short}a (height, width) pair of {'them' if short else 'positive integers'}"
        raise ValueError(f"{op}: size must be {wanted}, of {_MOST_SIDE:,} at most, got {size!r}")
