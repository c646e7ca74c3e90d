"""Arrays of images: how many, how large, in which colors and of which kind of numbers the script takes them for."""

from __future__ import annotations

import math
import re

from ..making import ROWS
from ..stage import Stage
from .keyed_arrays import APART, HDF5, NPZ, PICKLES

_FLOATS = re.compile(
    r"must have the same dtype, but got (Byte|Double)|Input type \((unsigned char|double)\)|type Float but found (Byte|Double)"
)
"""What torch says of whole numbers, or what was computed of them, where an array held floating-point numbers."""
_ARRAYS = (*PICKLES, ".npy", *NPZ, *HDF5)
_SHAPE = re.compile(
    r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)|cannot reshape array of size (\d+) into shape \(([-\d,]+)\)"
)
"""What torch and NumPy say of images that are not as large as a script takes them for."""
_AXES = re.compile(
    r"axis \d is out of bounds for array of dimension 2|axes don't match array|tuple index out of range"
    r"|only integer scalar arrays can be converted|list indices must be integers or slices, not|'list' object has no attribute"
)
"""What is said of rows of numbers where an image has axes of its own, and of a list of labels that is taken for an array."""
_TOO_MANY_AXES = re.compile(r"4D \(batched\) input to conv2d, but got input of size: \[(?:\d+, ){4}3\]")
"""What torch says of colors that are an axis beside the one that a script made for the one channel of gray images."""
_SIDES, _CHANNEL_COUNTS = range(8, 1025), (1, 3, 4)
_OTHER_ROWS = re.compile(
    r"inconsistent numbers of samples: \[(\d+), (\d+)\]|Length of values \((\d+)\) does not match length of index \((\d+)\)"
)
"""What scikit-learn and pandas say of two files that are one set and were made with as many rows as each has alone."""


def lesson(stage: Stage, text: str) -> bool:
    """What the text of an error says of the images that the next attempt should make."""
    if _FLOATS.search(text) and any(item.what.endswith(_ARRAYS) for item in stage.standins) and stage.learn("floats", True):
        return True
    pickled = any(item.what.endswith(PICKLES) for item in stage.standins)
    if _TOO_MANY_AXES.search(text) and stage.learn("mode", "L"):
        return True
    if pickled and _AXES.search(text) and stage.learn(APART, True):
        return True
    if (shape := _SHAPE.search(text)) is not None:
        wanted, held = shape[1] or shape[4], int(shape[2] or shape[3])
        if _is_gray(wanted, held) and stage.learn("mode", "L"):
            return True
        if (size := _image_size(wanted)) is not None and stage.learn("image", size):
            return True
    if (counts := _OTHER_ROWS.search(text)) is not None:
        rows = min(int(count) for count in counts.groups() if count is not None)
        return rows >= ROWS and stage.learn("rows", rows)
    return False


def _is_gray(shape: str, held: int) -> bool:
    """Whether what is to have a shape with one channel, `1, 1, 28, 28` or `28, 28`, holds three times what that would."""
    sides = [int(side) for side in shape.replace(" ", "").split(",") if side]
    plain = len(sides) == 2 and all(side in _SIDES for side in sides)
    return (plain or 1 in sides[-3:]) and held == 3 * math.prod(sides)


def _image_size(shape: str) -> list[int] | None:
    """Height and width of the images that are to have a shape, `-1, 1, 64, 64`, `64, 64, 3` or, flat, `-1, 4096`."""
    sides = [int(side) for side in shape.replace(" ", "").split(",") if side.isdecimal()]
    if sides[-1:] and sides[-1] in _CHANNEL_COUNTS:
        sides.pop()
    pair = sides[-2:] if len(sides) <= 2 or sides[-3] in _CHANNEL_COUNTS or sides[-3] not in _SIDES else []
    if len(sides) == 1:
        pair = [math.isqrt(sides[0])] * 2 if math.isqrt(sides[0]) ** 2 == sides[0] else []
    return pair if pair and all(side in _SIDES for side in pair) else None
