"""Fit `specs.Preprocessing` to what a transform was seen doing: geometry from Pillow's journal, numbers from the pixels.

Every fit is exact on all observations or rejected with the reason; nothing is approximated. Sizes are (height, width).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ...specs import CenterCrop, Convert, Geometry, Pad, Point, Preprocessing, Resize
from .fit_numbers import Rejected, fit_numbers, snap, tolerance
from .trace_journal import table_of

RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # Pillow's own numbers
OPENCV = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area"}  # of cv2's own numbers, those that are reproduced
DEFAULT_RESAMPLING = 3  # of Image.resize, for modes without a palette
Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One probe image of `size` through the transform: Pillow's operations, the 8-bit pixels it left with, the result."""

    size: Size
    ops: Sequence[dict[str, Any]]
    pixels: np.ndarray = field(repr=False)
    output: np.ndarray = field(repr=False)


Mode = Literal["RGB", "L"]


def fit(observations: Sequence[Observation], mode: Mode, *, source: str = "") -> Preprocessing:
    """The preprocessing that does to every observed image of one mode what the transform did. Raises Rejected."""
    outputs = [rows(observation.output) for observation in observations]
    mode, observations = _decoded(observations, mode)
    geometry = fit_geometry(observations)
    inner = [observation.pixels.shape[:2] for observation in observations]
    outer = [output.shape[1:] for output in outputs]
    pixels = [observation.pixels for observation in observations]
    if inner != outer and all(
        after >= before for i, o in zip(inner, outer, strict=True) for before, after in zip(i, o, strict=True)
    ):
        pad = pad_of_arrays(pixels, outputs)
        geometry = (*geometry, pad)
        pixels = [laid(image, pad) for image in pixels]
    elif inner != outer:
        crop = _crop_of_arrays(pixels, outputs)
        geometry = (*geometry, crop)
        pixels = [_cut(image, crop) for image in pixels]
    if pixels[0].ndim == 2 and outputs[0].shape[0] == 3:
        geometry = (*geometry, Convert(mode="RGB"))
        pixels = [np.stack([image] * 3, axis=-1) for image in pixels]
    try:
        channels, gain, offset = fit_numbers(pixels, outputs)
    except Rejected:
        if (threshold := _threshold(pixels, outputs)) is None:
            raise
        geometry = (*geometry, threshold)
        pixels = [np.asarray(threshold.table, np.uint8)[image] for image in pixels]
        channels, gain, offset = fit_numbers(pixels, outputs)
    scale, mean, std = snap(gain, offset, pixels, outputs, channels)
    in_rgb = slice(None, None, -1) if channels == "BGR" else slice(None)  # Preprocessing states mean and std per RGB channel
    made = Preprocessing(
        mode=mode, geometry=geometry, scale=scale, mean=mean[in_rgb], std=std[in_rgb], channels=channels, source=source
    )
    return replace(made, gray="opencv") if _read_gray(observations) else made


def _read_gray(observations: Sequence[Observation]) -> bool:
    """Whether OpenCV's reader made the images gray."""
    read = [any(op["op"] == "decode" for op in observation.ops) for observation in observations]
    if any(read) and not all(read):
        raise Rejected("it reads some images as gray and others in color")
    return any(read)


def _decoded(observations: Sequence[Observation], mode: Mode) -> tuple[Mode, list[Observation]]:
    """To which mode images of one mode are decoded, and what was done then: a conversion that comes first is the decoding's,
    and of the others those remain that change the mode. What is neither color nor gray in between, as RGBA, changes none."""
    decoded, told = mode, []
    for observation in observations:
        now, first, left, begins = mode, mode, [], True
        for op in observation.ops:
            if op["op"] != "convert":
                left.append(op)
                if op["op"] == "decode":  # by OpenCV's reader, to gray
                    now = first = "L"
                begins = begins and _is_idle(op) and op["op"] != "decode"
            elif op.get("mode") in ("RGB", "L") and op["mode"] != now:
                now = op["mode"]
                if now == mode == "L" and all(map(_is_idle, left)):  # gray made of gray in three channels is the same
                    first, begins = now, True
                    continue
                if begins and op.get("library") != "opencv":
                    first = now
                else:
                    left.append(op)
                begins = False
        if now != ("L" if observation.pixels.ndim == 2 else "RGB"):
            raise Rejected("it makes colors gray in a way of its own, which the served preprocessing has no step for")
        decoded = first
        told.append(replace(observation, ops=left))
    return decoded, told


def rows(output: np.ndarray) -> np.ndarray:
    """The result as [C, H, W]; a batch of one is unwrapped."""
    if output.ndim == 4 and output.shape[0] == 1:
        output = output[0]
    if output.ndim == 2:
        raise Rejected("it returns a plain (height, width) array; a model needs channels first, (C, H, W)")
    if output.ndim != 3 or output.shape[0] not in (1, 3):
        raise Rejected(f"it returns an array of shape {output.shape}; expected channels first, (1 or 3, height, width)")
    return output


def fit_geometry(observations: Sequence[Observation]) -> tuple[Geometry, ...]:
    """The resizes, crops and paddings, as rules of the image size that explain every observed operation."""
    journals = [[op for op in observation.ops if not _is_idle(op)] for observation in observations]
    for op in (op for journal in journals for op in journal):
        _reject_inexpressible(op)
    skeleton = max(([op["op"] for op in journal] for journal in journals), key=len)
    steps: list[Geometry] = []
    sizes: list[Size] = [observation.size for observation in observations]
    waiting = [list(journal) for journal in journals]
    for name in skeleton:
        # A size that already fits needs no operation, so a step may be missing where the sizes before and after agree.
        seen = [(size, queue[0]) for size, queue in zip(sizes, waiting, strict=True) if queue and queue[0]["op"] == name]
        step = _FITS[name](seen)
        if isinstance(step, Convert | Point) and len(seen) < len(observations):
            raise Rejected("it changes the colors of some images only")
        steps.append(step)
        for index, queue in enumerate(waiting):
            expected = step.output_size(*sizes[index])
            if queue and queue[0]["op"] == name and tuple(queue[0]["after"]) == expected:
                queue.pop(0)
            elif expected != sizes[index]:
                raise Rejected(f"its {name} depends on the image in a way that no fixed rule explains")
            sizes[index] = expected
    if any(waiting):
        raise Rejected("the operations it applies differ from image to image")
    return _merged(steps)


def _merged(steps: Sequence[Geometry]) -> tuple[Geometry, ...]:
    """The steps without paddings that the crop after them makes by itself, as torchvision's does of small images."""
    return tuple(
        step
        for index, step in enumerate(steps)
        if not (isinstance(step, Pad) and not any(step.fill) and step.place == "floor" and step.size is not None)
        or steps[index + 1 : index + 2] != [CenterCrop(size=step.size)]
    )


def _is_idle(op: dict[str, Any]) -> bool:
    """Operations without effect on the pixels, or that only change the mode, which the caller compares by itself."""
    if op["op"] in ("decode", "draft"):
        return True
    if op["op"] == "pad":
        return tuple(op["before"]) == tuple(op["after"])
    if op["op"] == "resize":
        return tuple(op["before"]) == tuple(op["after"]) and op.get("box") is None
    return op["op"] == "crop" and op.get("box") is not None and list(op["box"]) == [0, 0, op["before"][1], op["before"][0]]


def _reject_inexpressible(op: dict[str, Any]) -> None:
    name = op["op"]
    if name not in _FITS:
        raise Rejected(f"it calls Image.{name}, which the served preprocessing has no step for")
    if name == "point" and "table" not in op:
        raise Rejected("it calls Image.point to another mode, which the served preprocessing has no step for")
    if op.get("reducing_gap") is not None:
        raise Rejected("its resize uses reducing_gap, an approximation that cannot be reproduced exactly")
    whole = [0, 0, op["before"][1], op["before"][0]]
    if name == "resize" and op.get("box") not in (None, whole):
        raise Rejected("its resize reads only a part of the image (box=...)")


class _Filter(NamedTuple):
    interpolation: str
    antialias: bool
    library: Literal["pillow", "opencv"]


def _filter_of(op: dict[str, Any]) -> _Filter:
    number = op.get("resample")
    if op.get("library") == "torch":
        if number is None or (number and not op.get("antialias")):
            raise Rejected("it resizes a tensor without antialiasing or by an unusual rule, which no served resize does")
        return _Filter(RESAMPLING[number], True, "pillow")
    if op.get("library") != "opencv":
        return _Filter(RESAMPLING[DEFAULT_RESAMPLING if number is None else int(number)], True, "pillow")
    if number not in OPENCV:
        raise Rejected(
            "it resizes with an OpenCV interpolation other than INTER_LINEAR, _CUBIC, _NEAREST and _AREA, the served ones"
        )
    return _Filter(OPENCV[int(number)], False, "opencv")


def _fit_resize(seen: Sequence[tuple[Size, dict[str, Any]]]) -> Resize:
    kinds = {_filter_of(op) for _, op in seen}
    if len(kinds) != 1:
        raise Rejected("its resize changes the interpolation from image to image")
    how = kinds.pop()
    afters = [tuple(op["after"]) for _, op in seen]
    candidates = [Resize(size=after, **how._asdict()) for after in sorted(set(afters))[:1]]
    shorts, longs = list(map(min, afters)), list(map(max, afters))
    # Where the ratio is rounded first, as in `int(33 * (52 / 33))`, the side itself may come out one smaller.
    sides = ((min(shorts), "short"), (max(longs), "long"), (max(shorts), "short"))
    for (size_, side), rounding in itertools.product(sides, ("floor", "round", "ratio")):
        candidates.append(Resize(size=size_, side=side, long_side=rounding, **how._asdict()))  # type: ignore[arg-type]
    for candidate in candidates:
        if all(candidate.output_size(*size) == after for (size, _), after in zip(seen, afters, strict=True)):
            return candidate
    raise Rejected("the size it resizes to is neither fixed nor a fixed short or long side")


def _fit_crop(seen: Sequence[tuple[Size, dict[str, Any]]]) -> CenterCrop:
    sizes = {tuple(op["after"]) for _, op in seen}
    if len(sizes) != 1:
        raise Rejected("the size of its crop depends on the image")
    corners = [(size, (op["box"][1], op["box"][0])) for size, op in seen]
    return _centered(sizes.pop(), corners)


def _centered(size: tuple[int, ...], corners: Iterable[tuple[Size, tuple[Any, ...]]]) -> CenterCrop:
    corners = list(corners)
    for offset in ("round", "floor"):
        crop = CenterCrop(size=(size[0], size[1]), offset=offset)  # type: ignore[arg-type]
        if all(crop.corner(*before) == corner for before, corner in corners):
            return crop
    raise Rejected("its crop is not centered")


# -- paddings: a canvas that a journal tells of, or one that the arrays have where the image had none

_PLACES = ("floor", "ceil", "round", "start", "symmetric")


def fit_pad(seen: Sequence[tuple[Size, dict[str, Any]]]) -> Pad:
    """The padding that explains the operations of a journal, each with the size of the image before it. Raises Rejected."""
    fills = {tuple(op["fill"]) for _, op in seen}
    if len(fills) != 1:
        raise Rejected("the color it pads with depends on the image")
    for pad in _pads([(size, tuple(op["after"]), tuple(op["at"])) for size, op in seen]):
        return replace(pad, fill=fills.pop())
    raise Rejected("its padding makes neither a square nor a fixed size, or puts the image neither in the middle nor top left")


def _pads(seen: Sequence[tuple[Size, Size, Size | None]]) -> Iterator[Pad]:
    """The rules that lay images of those sizes on canvases of those sizes at those corners (None where that is not known)."""
    grown = [[after[axis] for before, after, _ in seen if after[axis] > before[axis]] for axis in (0, 1)]
    fixed = max(grown[0], default=1), max(grown[1], default=1)
    alike = len({after for _, after, _ in seen}) == 1
    for size in (fixed, None) if alike else (None, fixed):
        for place in _PLACES:
            pad = Pad(size=size, place=place)  # type: ignore[arg-type]
            if all(pad.output_size(*before) == after and at in (None, pad.corner(*before)) for before, after, at in seen):
                yield pad


def pad_of_arrays(pixels: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Pad:
    """A padding of the array or tensor, after Pillow and before or after the numbers; its color must be one of 8 bits."""
    sizes = [
        ((image.shape[0], image.shape[1]), (output.shape[1], output.shape[2]))
        for image, output in zip(pixels, outputs, strict=True)
    ]
    reason = "it changes the size after the image left Pillow (on an array or a tensor)"
    for pad in _pads([(size, after, None) for size, after in sizes]):
        try:
            insides = [_inside(output, image.shape[:2], pad) for image, output in zip(pixels, outputs, strict=True)]
            channels, gain, offset = fit_numbers(pixels, insides)
        except Rejected as rejection:
            reason = str(rejection)
            continue
        border = np.concatenate([_border(*pair, pad) for pair in zip(outputs, pixels, strict=True)]).astype(np.float64)
        fill = np.rint((border[0] - offset) / gain)
        if np.abs(fill * gain + offset - border).max() > tolerance(border):
            raise Rejected("it pads with a color that is not one of 8 bits, as padding after the normalization does")
        fill = np.clip(fill, 0, 255)[:: -1 if channels == "BGR" else 1]
        return Pad(size=pad.size, fill=tuple(int(value) for value in fill), place=pad.place)
    raise Rejected(reason)


def _inside(output: np.ndarray, size: tuple[int, ...], pad: Pad) -> np.ndarray:
    top, left = pad.corner(size[0], size[1])
    return output[:, top : top + size[0], left : left + size[1]]


def _border(output: np.ndarray, image: np.ndarray, pad: Pad) -> np.ndarray:
    """The values around the image, [pixels, C]."""
    top, left = pad.corner(image.shape[0], image.shape[1])
    around = np.ones(output.shape[1:], bool)
    around[top : top + image.shape[0], left : left + image.shape[1]] = False
    return output[:, around].T


def laid(image: np.ndarray, pad: Pad) -> np.ndarray:
    height, width = pad.output_size(image.shape[0], image.shape[1])
    canvas = np.empty((height, width, *image.shape[2:]), np.uint8)
    canvas[...] = pad.fill if image.ndim == 3 else pad.fill[0]
    top, left = pad.corner(image.shape[0], image.shape[1])
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


# -- colors


def _fit_convert(seen: Sequence[tuple[Size, dict[str, Any]]]) -> Convert:
    (_, first), *others = seen
    how = _converted(first)
    if any(_converted(op) != how for _, op in others):
        raise Rejected("it changes the mode of some images otherwise than that of others")
    return how


def _converted(op: dict[str, Any]) -> Convert:
    library: Literal["pillow", "opencv"] = "opencv" if op.get("library") == "opencv" else "pillow"  # which torch's is near
    return Convert(mode=op["mode"], library=library, order=op.get("order", "RGB"))


def _fit_point(seen: Sequence[tuple[Size, dict[str, Any]]]) -> Point:
    table = _together([np.asarray(op["table"]).reshape(-1, 256) for _, op in seen])
    if table is None:
        raise Rejected("it changes the values of pixels by a rule that is another for each image")
    return Point(table=tuple(int(value) for row in table for value in _whole_table(row)))


def _together(tables: Sequence[np.ndarray]) -> np.ndarray | None:
    """One table of what several images show, -1 for values that none has; None where two differ."""
    together = np.full((1, 256), -1)
    for table in tables:
        if ((together >= 0) & (table >= 0) & (together != table)).any():
            return None
        together = np.where(table >= 0, table, together)
    return together


def _threshold(pixels: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Point | None:
    """The table that makes pixels black and white, where outputs have two values, and which follows from the pixel's."""
    low, high = (min(output.min() for output in outputs), max(output.max() for output in outputs))
    if low == high:
        return None
    tables = []
    for image, output in zip(pixels, outputs, strict=True):
        sides = output.transpose(1, 2, 0).reshape(image.shape) if output.size == image.size else output
        if sides.shape != image.shape or not np.isin(sides, (low, high)).all():
            return None
        table = table_of(image, np.where(sides == high, 255, 0))
        if table is None:
            return None
        tables.append(table)
    together = _together(tables)
    return None if together is None else Point(table=tuple(int(value) for value in _whole_table(together[0])))


def _neighbors(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of 256 values which of the known ones is the next below, or itself, and which the next above."""
    every = range(256)
    return np.asarray(np.searchsorted(known, every, side="right")) - 1, np.asarray(np.searchsorted(known, every))


def _whole_table(table: np.ndarray) -> np.ndarray:
    """A table of which the observed images had not every value (-1): an inversion, or a threshold, whose ends go on."""
    known = np.flatnonzero(table >= 0)
    if len(known) == 256:
        return table
    inverted = np.arange(255, -1, -1)
    if np.array_equal(table[known], inverted[known]):
        return inverted
    below, above = (table[known[np.clip(at, 0, len(known) - 1)]] for at in _neighbors(known))
    if len(set(table[known].tolist())) == 2 and (below == above).all():
        return below
    raise Rejected("it changes the values of pixels in a way that too few values of images show")


_FITS: dict[str, Callable[..., Geometry]] = {
    "resize": _fit_resize, "crop": _fit_crop, "pad": fit_pad, "convert": _fit_convert, "point": _fit_point,
}  # fmt: skip


def _crop_of_arrays(pixels: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> CenterCrop:
    """A crop of the array or tensor, after Pillow: which pixels were kept shows when the numbers are fitted."""
    sizes = {output.shape[1:] for output in outputs}
    height, width = sizes.pop()
    if sizes or any(image.shape[0] < height or image.shape[1] < width for image in pixels):
        raise Rejected("it changes the size after the image left Pillow (on an array or a tensor)")
    for offset in ("round", "floor"):
        crop = CenterCrop(size=(height, width), offset=offset)  # type: ignore[arg-type]
        try:
            fit_numbers([_cut(image, crop) for image in pixels], outputs)
        except Rejected as rejection:
            reason = rejection
            continue
        return crop
    raise reason


def _cut(image: np.ndarray, crop: CenterCrop) -> np.ndarray:
    top, left = crop.corner(image.shape[0], image.shape[1])
    return image[top : top + crop.size[0], left : left + crop.size[1]]
