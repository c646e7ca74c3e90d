"""What `runtime.images.preprocessing` does, faster for JPEG: libjpeg-turbo decodes, SIMD resizes what a crop keeps.

Pillow reads every header but those that it is sure to take (`jpeg_header`), so limits and errors are those of the exact path,
and everything that is unusual goes there whole: other formats, progressive and CMYK files, rare subsamplings, anything
libjpeg-turbo as much as warns about.
"""

from __future__ import annotations

import functools
import io
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, JpegImagePlugin

from ...runtime.images.preprocessing import MAX_PIXELS, Preprocessor, crop_box, resized
from .jpeg_header import usual_header

log = logging.getLogger("headrace.serving")

DECODINGS = ("exact", "fast", "scaled")

# Images that are taller than so many times their width Pillow resizes in an order of its own, in versions before 13.
_TALL = 100

_SUBSAMPLINGS = ("444", "422", "420", "Gray")

# A scaled image keeps at least so many pixels per pixel of the resized one, in both directions; Pillow's thumbnail() and
# its documentation of reducing_gap call 2 hard to tell from resizing the whole image, and 3 indistinguishable.
_REDUCING_GAP = 2


def make_preprocessor(
    steps: Sequence[Mapping[str, Any]], *, decoding: str = "fast", max_pixels: int = MAX_PIXELS, pixels: bool = False
) -> Preprocessor:
    """What executes the steps: "exact" as Pillow does, "fast", or "scaled" (see `FastPreprocessor`). Exact also where
    simplejpeg or cykooz_resizer is not installed, or where simplejpeg and Pillow decode differently."""
    if decoding not in DECODINGS:
        raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, got {decoding!r}")
    if decoding == "exact" or not _usable():
        return Preprocessor(steps, max_pixels=max_pixels, pixels=pixels)
    return FastPreprocessor(steps, max_pixels=max_pixels, pixels=pixels, scaled=decoding == "scaled")


class FastPreprocessor(Preprocessor):
    """A `Preprocessor` whose 8-bit values of JPEG images may differ by `resample.BOUND` after its first resize.

    With `scaled`, images at least twice as large as they are needed, and that twice over, are decoded at 1/2, 1/4 or 1/8 in
    the frequency domain, which reads less and averages differently; docs/decoding.md has the differences.
    """

    def __init__(
        self,
        steps: Sequence[Mapping[str, Any]],
        *,
        max_pixels: int = MAX_PIXELS,
        pixels: bool = False,
        scaled: bool = False,
    ) -> None:
        from .resample import FILTERS, Resampler

        super().__init__(steps, max_pixels=max_pixels, pixels=pixels)
        first = self.geometry[0] if self.geometry else {}
        fits = first.get("op") == "resize" and first.get("library", "pillow") == "pillow"
        fits = fits and not any(_is_steep(step) for step in self.geometry)
        self._resampler = Resampler(first["interpolation"]) if fits and first["interpolation"] in FILTERS else None
        self._scaled = scaled and self._resampler is not None

    def decode(self, data: bytes) -> np.ndarray:
        """As `Preprocessor.decode`: uint8 [H, W, C], or [H, W] of a gray mode. Raises ImageError."""
        size, image = self._usual(data), None
        if size is None:
            image = self.open(data)
            size = self._size_of(data, image)
        pixels = None if size is None or size[0] > _TALL * size[1] else self._turbo(data, size)
        if pixels is None:
            return np.asarray(self.shape(self.load(image or self.open(data)), self.geometry))
        return pixels

    def _usual(self, data: bytes) -> tuple[int, int] | None:
        """The (height, width) of an image that need not be opened to be checked; None for one that must."""
        header = usual_header(data)
        if header is None or (self.upright and header.may_lie) or (header.components == 3 and not self._taken("RGB")):
            return None
        size = header.height, header.width
        return size if self.fits(size, min(self.max_pixels, MAX_PIXELS)) else None  # Pillow has a limit of its own

    def _size_of(self, data: bytes, image: Image.Image) -> tuple[int, int] | None:
        """The same of one that was opened; None for what must go the exact way."""
        import simplejpeg

        if not isinstance(image, JpegImagePlugin.JpegImageFile) or "progressive" in image.info:
            return None
        if self.orientation(image) != 1:
            return None
        if not self._taken(image.mode):
            return None
        try:
            *size, _, subsampling = simplejpeg.decode_jpeg_header(data)
        except ValueError:
            return None
        usual = tuple(size) == (image.height, image.width) and subsampling in _SUBSAMPLINGS
        return (image.height, image.width) if usual else None

    def _taken(self, mode: str) -> bool:
        """Whether libjpeg-turbo makes of an image of this mode what it is to be: of colors their luma, not Pillow's gray."""
        return mode == self.mode or (mode, self.mode, self.gray) in (("L", "RGB", "pillow"), ("RGB", "L", "opencv"))

    def _turbo(self, data: bytes, size: tuple[int, int]) -> np.ndarray | None:
        """What `decode` gives, of an image of this size; None where libjpeg-turbo has as much as a warning."""
        import simplejpeg

        scale = self._scale(size) if self._scaled else 1
        height, width = -(-size[0] // scale), -(-size[1] // scale)
        try:
            pixels: np.ndarray = simplejpeg.decode_jpeg(
                data, "GRAY" if self.mode == "L" else "RGB", min_height=height, min_width=width, min_factor=2
            )
        except ValueError:  # warnings too: Pillow says what is wrong, or takes it
            return None
        if pixels.shape[:2] != (height, width):
            return None
        steps = self.geometry
        if self._resampler is not None:
            wanted = resized(steps[0], size)
            window, taken = self._window(wanted)
            extent = (size[0] / scale, size[1] / scale)
            pixels = self._resampler(pixels, wanted, window=window, extent=extent)
            steps = steps[taken:]
        if self.mode == "L":
            pixels = pixels[:, :, 0]
        return np.asarray(self.shape(Image.fromarray(pixels), steps)) if steps else pixels

    def _scale(self, size: tuple[int, int]) -> int:
        """8, 4, 2 or 1: how much smaller an image may be decoded that is resized first."""
        height, width = resized(self.geometry[0], size)
        most = min(size[0] // height, size[1] // width) // _REDUCING_GAP
        return next((scale for scale in (8, 4, 2) if scale <= most), 1)

    def _window(self, size: tuple[int, int]) -> tuple[tuple[int, int, int, int] | None, int]:
        """What of the first resize's result the next step keeps, and how many steps that makes. A crop may also reach out."""
        if len(self.geometry) > 1 and self.geometry[1]["op"] == "center_crop":
            left, top, right, bottom = crop_box(self.geometry[1], *size)
            if left >= 0 and top >= 0 and right <= size[1] and bottom <= size[0]:
                return (top, left, bottom - top, right - left), 2
        return None, 1


def _is_steep(step: Mapping[str, Any]) -> bool:
    """Whether a step makes more of a small difference, as a threshold does, so that what is before it must be exact."""
    return step["op"] == "point" and bool(np.abs(np.diff(np.reshape(step["table"], (-1, 256)))).max() > 1)


@functools.cache
def _usable() -> bool:
    """Whether both libraries are there and libjpeg-turbo decodes to the very pixels of this machine's Pillow."""
    try:
        import cykooz_resizer  # noqa: F401
        import simplejpeg
    except ImportError:
        log.info("images are decoded by Pillow alone; pip install simplejpeg cykooz-resizer makes that faster")
        return False
    noise = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((61, 45), Image.Resampling.BICUBIC)
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        encoded = io.BytesIO()
        photo.save(encoded, "JPEG", quality=90, subsampling=subsampling)
        with Image.open(encoded) as image:
            same = np.array_equal(np.asarray(image), simplejpeg.decode_jpeg(encoded.getvalue()))
        if not same:
            log.warning("images are decoded by Pillow alone: its JPEG library and simplejpeg's give different pixels")
            return False
    return True
