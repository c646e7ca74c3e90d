"""Fit a padding to what was seen: a canvas that a journal tells of, or one that the arrays have where the image had none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...specs import Pad
from .fit_numbers import Rejected, fit_numbers, tolerance

_PLACES = ("floor", "ceil", "round", "start", "symmetric")
Size = tuple[int, int]


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
