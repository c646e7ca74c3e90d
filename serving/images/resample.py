"""Pillow's bilinear, bicubic and Lanczos resizing of 8-bit pixels by SIMD, computing only the window that is kept.

The filter, its widened support when shrinking, the two passes, their order, and the rounding to 8 bits between them are
Pillow's (src/libImaging/Resample.c). The weights are not: fast_image_resize keeps them in 16 bits where Pillow has 22 bits
after the point, so a value may differ by `BOUND`. Mostly fewer than one in a hundred differ, by 1; where a simple ratio such
as 4/5 makes many values end on a half, it may be one in ten. tests/serving/images/test_resample.py holds that.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import PIL
from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer

BOUND = 2
"""The most by which a resized 8-bit value was seen to differ from Pillow's."""

# Pillow's name of a filter, the library's, and how many pixels the filter reaches at scale 1.
_FILTERS = {
    "bilinear": (FilterType.bilinear, 1.0),
    "bicubic": (FilterType.catmull_rom, 2.0),
    "lanczos": (FilterType.lanczos3, 3.0),
}
FILTERS = frozenset(_FILTERS)

_PILLOW = int(PIL.__version__.partition(".")[0])
_PIXELS = {1: PixelType.U8, 3: PixelType.U8x3}


class Resampler:
    """One filter of `FILTERS`. Safe to share between threads: each has scratch memory of its own."""

    def __init__(self, interpolation: str) -> None:
        kind, self._reach = _FILTERS[interpolation]
        self._algorithm = ResizeAlg.convolution(kind)
        self._own = threading.local()

    def __call__(
        self,
        pixels: np.ndarray,
        size: tuple[int, int],
        *,
        window: tuple[int, int, int, int] | None = None,
        extent: tuple[float, float] | None = None,
    ) -> np.ndarray:
        """uint8 [H, W, C] with 1 or 3 channels to `size` (height, width), of which `window` is returned, or all.

        `window` is (top, left, height, width) in pixels of the result, inside it. `extent` is the (height, width) that the
        pixels stand for, where a scaled decoder rounded a fraction of a pixel up; by default they stand for themselves.
        """
        top, left, height, width = window or (0, 0, *size)
        rows = _Side(pixels.shape[0], size[0], top, height, extent[0] if extent else None, self._reach)
        columns = _Side(pixels.shape[1], size[1], left, width, extent[1] if extent else None, self._reach)
        # All that the two passes read for the window, which is a margin around it.
        part = pixels[rows.first : rows.last, columns.first : columns.last]
        if rows.same and columns.same:
            return part
        channels = pixels.shape[2]
        image = ImageData(part.shape[1], part.shape[0], _PIXELS[channels], part.tobytes())
        down_first = rows_first(pixels.shape[:2], size)
        for down in (down_first, not down_first):
            if down and not rows.same:
                image = self._pass(image, channels, (height, image.width), (0.0, rows.start, image.width, rows.length))
            elif not down and not columns.same:
                image = self._pass(image, channels, (image.height, width), (columns.start, 0.0, columns.length, image.height))
        return np.frombuffer(image.get_buffer(), np.uint8).reshape(height, width, channels)

    def _pass(
        self, image: ImageData, channels: int, size: tuple[int, int], box: tuple[float, float, float, float]
    ) -> ImageData:
        """One direction: the (left, top, width, height) of the image becomes `size` (height, width)."""
        if not hasattr(self._own, "resizer"):
            self._own.resizer = Resizer()
        result = ImageData(size[1], size[0], _PIXELS[channels])
        options = ResizeOptions(resize_alg=self._algorithm, crop_box=CropBox(*box), use_alpha=False)
        self._own.resizer.resize(image, result, options)
        return result


def rows_first(before: tuple[int, ...], after: tuple[int, int]) -> bool:
    """Whether Pillow resizes rows before columns from one (height, width) to another: since 13.0 (pull request 9549), where the
    height loses more than twice the pixels that the width loses."""
    lost = before[0] - after[0]
    return _PILLOW >= 13 and lost > 0 and lost > 2 * (before[1] - after[1])


class _Side:
    """One direction: the pixels [first, last) to read, and the [start, start + length) among them that become the window."""

    __slots__ = ("first", "last", "length", "same", "start")

    def __init__(self, given: int, wanted: int, offset: int, kept: int, extent: float | None, reach: float) -> None:
        self.same = given == wanted and extent in (None, given)
        if self.same:
            self.first, self.last, self.start, self.length = offset, offset + kept, 0.0, float(kept)
            return
        whole = float(given if extent is None else extent)
        scale = whole / wanted
        begin, end = offset * scale, (whole if offset + kept == wanted else (offset + kept) * scale)
        margin = math.ceil(reach * max(scale, 1.0)) + 1
        self.first = max(0, math.floor(begin) - margin)
        self.last = min(given, math.ceil(end) + margin)
        self.start = begin - self.first
        self.length = min(end - begin, self.last - self.first - self.start)
