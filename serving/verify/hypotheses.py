"""What else an endpoint may do than the package says, one stage at a time. Each hypothesis has the fault that it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from ...specs import CenterCrop, Convert, Geometry, Pad, Point, Preprocessing, Resize
from .pipeline import Pipeline, without_antialias
from .reference import Reference
from .scores import Way

CHANNELS, VALUES, FILTER, SHAPE, LAYOUT, DECODE, SCORES, CLASSES, MODEL = (
    *("channels", "values", "filter", "shape", "layout", "decode", "scores", "classes", "model"),
)


@dataclass(frozen=True)
class Setup:
    """All that an endpoint does: `way` is how outputs become what it answers, `order` the class that each class is called."""

    reference: Reference
    pipeline: Pipeline
    way: Way
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Hypothesis:
    """`change` makes of a setup one with this fault; two of one `stage` exclude each other."""

    fault: str
    stage: str
    text: str
    change: Callable[[Setup], Setup]


# Mean and standard deviation by what they are called, for three channels.
_STATISTICS = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "0.5 and 0.5 (values from -1 to 1)": ((0.5,) * 3, (0.5,) * 3),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-10's as often copied (0.2023, 0.1994, 0.2010)": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "CIFAR-100's": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "MNIST's": ((0.1307,) * 3, (0.3081,) * 3),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}


def of_preprocessing(preprocessing: Preprocessing, *, pixels: bool) -> list[Hypothesis]:
    """Other ways from an image to a row. With `pixels` the arithmetic is in the graph and cannot be another."""
    found = [*_channels(preprocessing), *_geometry(preprocessing)]
    if not pixels:
        found += [*_values(preprocessing), *of_rows(preprocessing)]
    return found


def of_rows(preprocessing: Preprocessing | None) -> Iterator[Hypothesis]:
    """What may be done to a finished row, [C, H, W]; for endpoints that take tensors, this alone."""

    def row(fault: str, stage: str, text: str, function: Callable[[np.ndarray], np.ndarray]) -> Hypothesis:
        return Hypothesis(fault, stage, text, change_pipeline(lambda made: replace(made, row=function)))

    yield row("layout", LAYOUT, "rows and columns are swapped", lambda values: values.swapaxes(1, 2))
    yield row(
        "layout",
        LAYOUT,
        "height, width and channels are reinterpreted instead of transposed",
        lambda values: np.ascontiguousarray(values.transpose(1, 2, 0)).reshape(values.shape),
    )
    yield row("layout", LAYOUT, "images are mirrored", lambda values: values[:, :, ::-1])
    yield row("layout", LAYOUT, "images stand on their heads", lambda values: values[:, ::-1])
    if preprocessing is None or _in_color(preprocessing):
        text = "the channels are in BGR order (swapped after normalizing)"
        yield row("channel-order", CHANNELS, text, lambda values: values[::-1])
    yield row("scale", LAYOUT, "the row is divided by 255 once more", lambda values: values / 255)
    if preprocessing is not None:
        order = slice(None, None, -1) if preprocessing.channels == "BGR" else slice(None)
        mean, std = (np.asarray(values, np.float32)[order, None, None] for values in (preprocessing.mean, preprocessing.std))
        if mean.any() or (std != 1).any():
            yield row("normalization", LAYOUT, "the row is normalized once more", lambda values: (values - mean) / std)


def of_scores(faults: Sequence[Way]) -> Iterator[Hypothesis]:
    """Other things to answer than the model's outputs as they are wanted."""
    for way in faults:
        yield Hypothesis("softmax", SCORES, way.text, lambda setup, way=way: replace(setup, way=way))  # type: ignore[misc]


def of_classes(order: tuple[int, ...], labels: tuple[str, ...]) -> Hypothesis:
    """Classes that are called by each other's names: class i is answered as class order[i], -1 where no answer says it."""
    name, whole = known_order(order, labels)
    text = f"the classes are in another order{name}"
    return Hypothesis("label-order", CLASSES, text, lambda setup: replace(setup, order=whole))


def known_order(order: tuple[int, ...], labels: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    """What an order of classes comes from, in brackets, and the whole of it; "" and the order itself where nobody knows."""
    count = len(order)
    usual = {
        "reversed": range(count)[::-1],
        "each is called as the one after it: counted from 1?": [(number + 1) % count for number in range(count)],
        "each is called as the one before it": [(number - 1) % count for number in range(count)],
        "numbers sorted as text: 0, 1, 10, ...": sorted(range(count), key=str),
    }
    if labels:
        usual["alphabetical"] = sorted(range(count), key=labels.__getitem__)
        usual["alphabetical, without case"] = sorted(range(count), key=lambda number: labels[number].casefold())
    for name, whole in usual.items():
        if list(whole) != list(range(count)) and all(one in (-1, other) for one, other in zip(order, whole, strict=True)):
            return f" ({name})", tuple(whole)
    return "", order


def of_model(text: str, other: Reference) -> Hypothesis:
    return Hypothesis("model", MODEL, f"it answers with {text}", lambda setup: replace(setup, reference=other))


def change_pipeline(change: Callable[[Pipeline], Pipeline]) -> Callable[[Setup], Setup]:
    """The change of a setup that a change of its pipeline is."""

    return lambda setup: replace(setup, pipeline=change(setup.pipeline))


def _preprocessing(fault: str, stage: str, text: str, **changes: object) -> Hypothesis:
    def change(made: Pipeline) -> Pipeline:
        return replace(made, preprocessing=replace(made.preprocessing, **changes))  # type: ignore[arg-type]

    return Hypothesis(fault, stage, text, change_pipeline(change))


def _of_colors(step: Geometry) -> bool:
    """Whether a step changes no size."""
    return isinstance(step, Convert | Point)


def _in_color(made: Preprocessing) -> bool:
    return made.mode == "RGB" and not any(isinstance(step, Convert) for step in made.geometry)


def _channels(made: Preprocessing) -> Iterator[Hypothesis]:
    if not _in_color(made):
        return
    swapped = change_pipeline(lambda one: replace(one, pixels=_reversed))
    yield Hypothesis(
        "channel-order", CHANNELS, f"the channels are in {'RGB' if made.channels == 'BGR' else 'BGR'} order", swapped
    )
    gray = change_pipeline(lambda one: replace(one, decode=_grayed))
    yield Hypothesis("grayscale", CHANNELS, "colors are turned to gray", gray)


def _values(made: Preprocessing) -> Iterator[Hypothesis]:
    count = len(made.mean)
    zero, one = (0.0,) * count, (1.0,) * count
    plain = made.mean == zero and made.std == one
    if not plain:
        yield _preprocessing("normalization", VALUES, "mean and standard deviation are left out", mean=zero, std=one)
        if all(made.mean):
            yield _preprocessing(
                "normalization", VALUES, "mean and standard deviation are exchanged", mean=made.std, std=made.mean
            )
        yield _preprocessing("normalization", VALUES, "the standard deviation is left out", std=one)
        yield _preprocessing("normalization", VALUES, "the mean is left out", mean=zero)
        if len({*zip(made.mean, made.std, strict=True)}) > 1:
            text = "mean and standard deviation are in BGR order"
            yield _preprocessing("normalization", VALUES, text, mean=made.mean[::-1], std=made.std[::-1])
    for name, (mean, std) in _STATISTICS.items():
        if (mean[:count], std[:count]) != (made.mean, made.std):
            text = f"mean and standard deviation are {name}"
            yield _preprocessing("normalization", VALUES, text, mean=mean[:count], std=std[:count])
    if made.scale != 1:
        yield _preprocessing("scale", VALUES, "pixels stay from 0 to 255 before they are normalized", scale=1.0)
        if not plain:
            yield _preprocessing("scale", VALUES, "pixels stay from 0 to 255, not normalized", scale=1.0, mean=zero, std=one)
        yield _preprocessing("scale", VALUES, _twice(made.scale), scale=made.scale**2)
    if made.scale != 1 / 255:
        yield _preprocessing("scale", VALUES, "pixels are divided by 255", scale=1 / 255)


def _geometry(made: Preprocessing) -> Iterator[Hypothesis]:
    resizes = [step for step in made.geometry if isinstance(step, Resize)]
    if resizes:
        yield from _filters(made, resizes[0])
    if any(isinstance(step, CenterCrop) for step in made.geometry):
        for down, right in ((1, 1), (0, 1), (1, 0), (-1, -1), (0, -1), (-1, 0)):
            text = f"the crop is off by {abs(down)} rows and {abs(right)} columns"
            yield _moved(text, (down, right))
        yield _moved("the crop is taken at the top left", (-(1 << 20), -(1 << 20)))
        other = {"round": "floor", "floor": "round"}
        steps = tuple(
            replace(step, offset=other[step.offset]) if isinstance(step, CenterCrop) else step  # type: ignore[arg-type]
            for step in made.geometry
        )
        yield _preprocessing("crop-offset", SHAPE, "half a pixel of the crop's place is rounded the other way", geometry=steps)
    yield from _shapes(made, resizes[0] if resizes else None)


def _moved(text: str, by: tuple[int, int]) -> Hypothesis:
    return Hypothesis("crop-offset", SHAPE, text, change_pipeline(lambda one: replace(one, shift=by)))


def _filters(made: Preprocessing, first: Resize) -> Iterator[Hypothesis]:
    def steps(change: Callable[[Resize], Resize]) -> tuple[Geometry, ...]:
        return tuple(change(step) if isinstance(step, Resize) else step for step in made.geometry)

    for name in ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"):
        if (first.library, first.interpolation) != ("pillow", name):
            alias = name != "nearest"
            fault = "antialias" if alias and first.library == "opencv" else "resize-filter"
            changed = steps(lambda step: replace(step, interpolation=name, library="pillow", antialias=alias))  # noqa: B023
            yield _preprocessing(fault, FILTER, f"images are resized by {name}, as Pillow does", geometry=changed)
    for name in ("bilinear", "nearest", "area", "bicubic"):
        if (first.library, first.interpolation) != ("opencv", name):
            between = name in ("bilinear", "bicubic")
            fault = "antialias" if between and first.antialias else "resize-filter"
            text = f"images are resized by {name}{' without antialias' if between else ''}, as OpenCV does"
            changed = steps(lambda step: replace(step, interpolation=name, library="opencv", antialias=False))  # noqa: B023
            yield _preprocessing(fault, FILTER, text, geometry=changed)
    for name in ("bilinear", "bicubic"):
        text, resample = f"images are resized by {name} without antialias", without_antialias(name)
        fault = "antialias" if first.antialias else "resize-filter"
        yield Hypothesis(fault, FILTER, text, change_pipeline(lambda one, it=resample: replace(one, resample=it)))  # type: ignore[misc]


def _shapes(made: Preprocessing, first: Resize | None) -> Iterator[Hypothesis]:
    size = made.row_size
    if size is None:
        return
    short = min(size)
    how = {"interpolation": first.interpolation, "antialias": first.antialias, "library": first.library} if first else {}
    before = tuple(itertools.takewhile(_of_colors, made.geometry))
    after = tuple(step for step in made.geometry[len(before) :] if _of_colors(step))
    fill = (0,) * len(next((step.mode for step in reversed(before) if isinstance(step, Convert)), made.mode))

    def whole(*shapes: Geometry) -> tuple[Geometry, ...]:
        return (*before, *shapes, *after)

    def resize(to: int | tuple[int, int], **more: object) -> Resize:
        return Resize(size=to, **how, **more)  # type: ignore[arg-type]

    crop = CenterCrop(size=size)
    ways: dict[str, tuple[Geometry, ...]] = {f"images are squeezed to {size[1]}x{size[0]}": whole(resize(size))}
    sides = {short, round(short / 0.875), round(short / 0.95), short + 32}
    sides |= {first.size} if first is not None and isinstance(first.size, int) else set()
    for side in sorted(sides):
        ways[f"the short side is resized to {side}, then the middle is cut out"] = whole(resize(side), crop)
    ways["the middle is cut out without resizing"] = whole(crop)
    for name, pad in (("black", fill), ("gray", tuple(114 for _ in fill))):
        ways[f"the long side is resized to {short}, then {name} is added around"] = whole(
            resize(short, side="long"),
            Pad(size=size, fill=pad),
        )
    if size[0] != size[1]:
        ways["height and width are exchanged"] = whole(resize((size[1], size[0])), CenterCrop(size=size))
    if first is not None and isinstance(first.size, int):
        for rounding in ("floor", "round", "ratio"):
            changed = tuple(replace(step, long_side=rounding) if step is first else step for step in made.geometry)  # type: ignore[arg-type]
            ways[f"the long side is rounded otherwise ({rounding})"] = changed
    for text, steps in ways.items():
        if steps != made.geometry:
            yield _preprocessing("resize-shape", SHAPE, text, geometry=steps)
    squeezed = replace(made, geometry=whole(resize(size)))
    text = "the middle square is cut out first, then resized"
    yield Hypothesis(
        "resize-shape",
        SHAPE,
        text,
        change_pipeline(
            lambda one: replace(one, square=True, preprocessing=replace(one.preprocessing, geometry=squeezed.geometry))
        ),
    )


def _twice(scale: float) -> str:
    return "pixels are divided by 255 twice" if scale == 1 / 255 else f"pixels are multiplied by {scale:.4g} twice"


def _reversed(pixels: np.ndarray) -> np.ndarray:
    return pixels[:, :, ::-1]


def _grayed(image: Image.Image, mode: str) -> Image.Image:
    return image.convert("L").convert(mode)
