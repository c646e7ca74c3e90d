"""From encoded image bytes to one row of a model's input, exactly as Pillow-based transforms compute it.

The source of this file is copied verbatim into the Triton decode model, so it stands alone: the standard library,
numpy and Pillow, nothing of this package, and nothing newer than Python 3.10.

Pixels are bit-exact to decode, `convert`, `resize` and `crop` of the Pillow that runs here; the floats agree with
`(pixel * scale - mean) / std` in float32 within 1e-6. EXIF orientation is applied only where the decode step says
"upright", as the usual transforms do not apply it. Only the first frame of an animation is read.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

MAX_PIXELS = 50_000_000
"""The default limit on the pixels of an image, both as encoded and as resized."""

FORMATS = tuple(
    plugin.format
    for plugin in (
        JpegImagePlugin.JpegImageFile,
        PngImagePlugin.PngImageFile,
        WebPImagePlugin.WebPImageFile,
        BmpImagePlugin.BmpImageFile,
        GifImagePlugin.GifImageFile,
    )
)
_READABLE = "JPEG, PNG, WebP, BMP and GIF images can be read"

# Pillow goes through the parts of an image in Python, and millions of empty ones cost minutes: some 2 us each, a GIF's block
# longer the more there are, a run-length encoded BMP 0.4 us for a byte. Every scan of a progressive JPEG passes over the whole
# image; encoders write about ten.
_MAX_PARTS = 50_000
_MAX_JPEG_SCANS, _MAX_GIF_BLOCKS, _MAX_RLE_BYTES = 200, 5_000, 4_000_000
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])", re.DOTALL)
_WITHOUT_LENGTH = frozenset((*range(0xC0), 0xC8, 0xD8, 0xD9, *range(0xF0, 0xFE)))

_FILTERS = {name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")}
_OPENCV = ["area", "bicubic", "bilinear", "nearest"]
_OF_COLORS = ("convert", "point")  # steps that change no size

# What Pillow's readers raise on damaged files, beside its own UnidentifiedImageError (an OSError).
_DAMAGED = (
    OSError, SyntaxError, ValueError, TypeError, EOFError, LookupError, ArithmeticError, AssertionError, struct.error,
    zlib.error,
)  # fmt: skip


class ImageError(ValueError):
    """The bytes are not an image this model can take. The message is fit for the caller who sent them."""


class Preprocessor:
    """The steps of `Preprocessing.to_json()["steps"]`, validated once and executed per image. Safe to share between threads.

    `size` is the (height, width) of every row, or None where it follows from the image. With `pixels` a row is what stands
    before the arithmetic, uint8 [H, W, C] in the order of the mode, for a graph that has the arithmetic inside.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any]], *, max_pixels: int = MAX_PIXELS, pixels: bool = False) -> None:
        names = [step["op"] for step in steps]
        if names[:1] != ["decode"] or names[-3:] != ["scale", "normalize", "layout"]:
            raise ValueError(f"preprocessing: cannot read the steps {names}")
        self.max_pixels = max_pixels
        self.pixels = pixels
        self.dtype = np.dtype(np.uint8 if pixels else np.float32)
        self.mode: str = steps[0]["mode"]
        self.upright: bool = steps[0].get("upright", False)
        self.gray: str = steps[0].get("gray", "pillow")
        if self.gray not in ("pillow", "opencv"):
            raise ValueError(f"preprocessing: cannot make gray as {self.gray!r} does")
        self.deep: str = steps[0].get("deep", "clip")
        if self.deep not in ("clip", "high-byte"):
            raise ValueError(f"preprocessing: cannot bring 16 bits to 8 as {self.deep!r} does")
        self.geometry = [_checked(step) for step in steps[1:-3]]
        self.size = _row_size(self.geometry)
        scale, normalize, layout = steps[-3:]
        if layout.get("order", "CHW") != "CHW":
            raise ValueError(f"preprocessing: cannot lay out pixels as {layout['order']!r}")
        # (x * scale - mean) / std == (x - mean / scale) * (scale / std): the subtraction comes first because pixels are
        # small integers, exact in float32, so nothing is lost where the two nearly cancel.
        factor = float(scale["factor"])
        order = slice(None, None, -1) if layout["channels"] == "BGR" else slice(None)
        mean, std = (np.asarray(normalize[key], np.float64)[order] for key in ("mean", "std"))
        self._shift = (mean / factor).astype(np.float32)
        self._gain = (factor / std).astype(np.float32)
        self._order = order

    def __call__(self, data: bytes, out: np.ndarray | None = None) -> np.ndarray:
        """One row, float32 [C, H, W] or pixels; into `out` when given (a contiguous slot of that shape). Raises ImageError."""
        return self.row(self.decode(data), out)

    def row(self, pixels: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The arithmetic alone, of what `decode` gives. Raises ImageError where `out` has another shape."""
        if pixels.ndim == 2:
            pixels = pixels[:, :, np.newaxis]
        channels_first = pixels.transpose(2, 0, 1)[self._order]
        shape = pixels.shape if self.pixels else channels_first.shape
        if out is None:
            out = np.empty(shape, self.dtype)
        elif out.shape != shape or out.dtype != self.dtype:
            height, width = pixels.shape[:2]
            takes = "x".join(str(side) for side in reversed(out.shape[:2] if self.pixels else out.shape[1:]))
            raise ImageError(f"the image is {width}x{height} pixels after preprocessing; this model takes {takes}")
        if self.pixels and out.flags.c_contiguous and pixels.flags.c_contiguous:
            # Without letting go of the interpreter, as numpy does: others would have it for longer than the copy takes.
            out.data.cast("B")[:] = pixels.data.cast("B")
            return out
        if self.pixels:
            out[...] = pixels
            return out
        for channel, shift, gain, row in zip(channels_first, self._shift, self._gain, out):  # noqa: B905 - one length
            np.subtract(channel, shift, out=row, dtype=np.float32)
            np.multiply(row, gain, out=row)
        return out

    def decode(self, data: bytes) -> np.ndarray:
        """What stands before the arithmetic: uint8 [H, W, C], or [H, W] of a gray mode. Raises ImageError."""
        return np.asarray(self.shape(self.load(self.open(data)), self.geometry))

    def shape(self, image: Image.Image, steps: Sequence[Mapping[str, Any]]) -> Image.Image:
        """An image in the wanted mode after some of the geometry's steps."""
        for step in steps:
            if step["op"] == "resize":
                height, width = resized(step, (image.height, image.width))
                if step.get("library", "pillow") == "opencv":
                    image = Image.fromarray(opencv_resize(np.asarray(image), height, width, step["interpolation"]))
                else:
                    image = image.resize((width, height), _FILTERS[step["interpolation"]])
            elif step["op"] == "pad":
                height, width = resized(step, (image.height, image.width))
                if (height, width) != (image.height, image.width):
                    canvas = Image.new("RGB" if isinstance(step["fill"], tuple) else "L", (width, height), step["fill"])
                    top, left = _corner(step, image.height, image.width)
                    canvas.paste(image, (left, top))
                    image = canvas
            elif step["op"] == "convert":
                if step.get("library", "pillow") == "opencv" and image.mode == "RGB":
                    turned = -1 if step.get("order") == "BGR" else 1
                    image = Image.fromarray(opencv_gray(np.asarray(image)[:, :, ::turned]))
                else:
                    image = image.convert(step["mode"])
            elif step["op"] == "point":
                image = image.point(step["table"] * (3 * 256 // len(step["table"]) if image.mode == "RGB" else 1))
            else:
                left, top, right, bottom = crop_box(step, image.height, image.width)
                if (left, top, right, bottom) != (0, 0, image.width, image.height):
                    image = image.crop((left, top, right, bottom))
        return image

    def open(self, data: bytes) -> Image.Image:
        """The image with only its header read; all limits are checked here, before pixels are allocated. Raises ImageError."""
        if not data:
            raise ImageError(f"the image is empty; {_READABLE}")
        self._check_webp(data)
        parts = 0
        for more in _parts(data):
            parts += more
            if parts > _MAX_PARTS:
                raise ImageError("the image has too many parts (segments, scans, chunks, blocks or runs); save it anew")
        try:
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ImageError(f"the image has more than {self.max_pixels:,} pixels, the limit here") from error
        except UnidentifiedImageError as error:
            raise ImageError(f"the bytes are not an image of a format that is read here; {_READABLE}") from error
        except _DAMAGED as error:
            raise ImageError(f"the image is {_harm(error)} in its header ({error})") from error
        size = (image.height, image.width)
        self._check_pixels(size, "has")
        if self.orientation(image) > 4:  # it lies on its side
            size = (image.width, image.height)
        self.check_steps(size)
        return image

    def check_steps(self, size: tuple[int, int]) -> None:
        """Raises ImageError where an upright image of this (height, width) would have too many pixels after some step."""
        for step in self.geometry:  # a 1 x 100,000 image would grow beyond all measure when its short side is resized
            size = resized(step, size)
            self._check_pixels(size, "would have")

    def fits(self, size: tuple[int, int], max_pixels: int) -> bool:
        """Whether an upright image of this (height, width) has at most so many pixels, and after every step."""
        if size[0] * size[1] > max_pixels:
            return False
        for step in self.geometry:
            size = resized(step, size)
            if size[0] * size[1] > max_pixels:
                return False
        return True

    def load(self, image: Image.Image) -> Image.Image:
        """An opened image decoded, in the wanted mode. Raises ImageError."""
        try:
            form = image.format
            if self.gray == "opencv":
                image.draft("L", None)  # a JPEG's own luma
            image.load()
            if self.upright:
                image = ImageOps.exif_transpose(image)
            if self.deep == "high-byte" and image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if image.mode == self.mode:
                return image
            if self.gray == "opencv":
                bits = 14 if form == "BMP" and image.mode == "RGB" else 15
                return Image.fromarray(opencv_gray(np.asarray(image.convert("RGB")), bits, rounded=form != "PNG"))
            return image.convert(self.mode)
        except _DAMAGED as error:
            what = str(error) or "its parts contradict each other"
            raise ImageError(f"the {image.format} image is {_harm(error)} ({what})") from error

    def orientation(self, image: Image.Image) -> int:
        """How an opened image lies, 1 to 8 as in EXIF 2.32, tag 0x0112; 1, upright, for all where that is left alone."""
        if not self.upright:
            return 1
        try:
            stated = image.getexif().get(0x0112, 1)
        except _DAMAGED as error:
            raise ImageError(f"the EXIF data of the image are damaged ({error})") from error
        return stated if stated in range(1, 9) else 1

    def _check_pixels(self, size: tuple[int, int], verb: str) -> None:
        height, width = size
        if height * width > self.max_pixels:
            after = "" if verb == "has" else " after resizing"
            raise ImageError(f"the image {verb} {width}x{height} pixels{after}; the limit here is {self.max_pixels:,}")

    def _check_webp(self, data: bytes) -> None:
        """Pillow allocates two WebP canvases already in `open`, so their size is read here (RFC 9649, section 2)."""
        if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
            return
        kind = data[12:16]
        if kind == b"VP8X":
            width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        elif kind == b"VP8 ":
            width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        elif kind == b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        else:
            return
        self._check_pixels((height, width), "has")


def image_to_row(
    data: bytes, steps: Sequence[Mapping[str, Any]], *, max_pixels: int = MAX_PIXELS, out: np.ndarray | None = None
) -> np.ndarray:
    """One encoded image as a float32 row [C, H, W]; a server keeps a `Preprocessor` instead. Raises ImageError."""
    return Preprocessor(steps, max_pixels=max_pixels)(data, out)


def _parts(data: bytes) -> Iterator[int]:
    """What Pillow has to go through, one by one: a JPEG's scans and all before them, a PNG's chunks, a GIF's blocks before its
    first frame, a BMP's runs. What follows an image in its file, as a film does in a phone's, is no part of it."""
    if data[:2] == b"\xff\xd8":
        at, scanning = 2, False
        while (marker := _jpeg_marker(data, at)) and not (scanning and marker[1] == b"\xd9"):
            yield 1 if scanning else marker.end() - at - 1
            at = marker.end()
            if marker[1] == b"\xda":
                if not scanning and data.count(b"\xff\xda", at) < _MAX_JPEG_SCANS:
                    return
                scanning = True
                yield _MAX_PARTS // _MAX_JPEG_SCANS
            if data[at - 1] not in _WITHOUT_LENGTH:
                at += max(2, int.from_bytes(data[at : at + 2], "big"))
        yield 0 if scanning else len(data) - at
    elif data[:4] == b"\x89PNG":
        at = 8
        while at < len(data) and data[at + 4 : at + 8] != b"IEND":
            yield 1
            at += 12 + int.from_bytes(data[at : at + 4], "big")
    elif data[:3] == b"GIF" and len(data) > 10:
        at = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)
        while at < len(data) and data[at] not in b",;":
            yield 1
            extends, at = data[at] == 0x21, at + 1
            while extends and at + 1 < len(data) and (size := data[at + 1]):  # behind the label, or the block before
                yield _MAX_PARTS // _MAX_GIF_BLOCKS
                at += 1 + size
            at += 2 if extends else 0
    elif data[:2] == b"BM" and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0"):
        yield _MAX_PARTS * len(data) // _MAX_RLE_BYTES


def _jpeg_marker(data: bytes, at: int) -> re.Match[bytes] | None:
    """The next one. It is looked for in pieces, since a search keeps the interpreter from all other threads."""
    found = None
    while found is None and at < len(data):
        found = _JPEG_MARKER.search(data, at, at + 65_536)
        at += 65_535
    return found


def _harm(error: Exception) -> str:
    return "truncated" if "truncated" in str(error).lower() else "damaged"


def _checked(step: Mapping[str, Any]) -> dict[str, Any]:
    """A geometry step with its size as an int or a (height, width) tuple; raises ValueError on anything unknown."""
    op = step["op"]
    if op not in ("resize", "center_crop", "pad", *_OF_COLORS):
        raise ValueError(f"preprocessing: unknown step {op!r}")
    library = step.get("library", "pillow")
    if op == "convert":
        if (
            step["mode"] not in ("RGB", "L")
            or library not in ("pillow", "opencv")
            or step.get("order", "RGB") not in ("RGB", "BGR")
        ):
            raise ValueError(f"preprocessing: cannot convert to {step['mode']!r} as {library!r} does")
        return dict(step)
    if op == "point":
        table = [int(value) for value in step["table"]]
        if len(table) not in (256, 768) or not all(0 <= value <= 255 for value in table):
            raise ValueError("preprocessing: a table of points must have 256 or 768 values of 8 bits")
        return {**step, "table": table}
    known = _OPENCV if library == "opencv" else sorted(_FILTERS)
    if library not in ("pillow", "opencv"):
        raise ValueError(f"preprocessing: cannot resize as {library!r} does with {step.get('interpolation')!r}")
    if op == "resize" and step["interpolation"] not in known:
        raise ValueError(f"preprocessing: unknown interpolation {step['interpolation']!r}; of {library} there are {known}")
    if op == "pad" and step["place"] not in ("floor", "ceil", "round", "start", "symmetric"):
        raise ValueError(f"preprocessing: cannot pad with the image placed as {step['place']!r}")
    size = step["size"]
    more: dict[str, Any] = {"size": size if size is None or isinstance(size, int) else (int(size[0]), int(size[1]))}
    if op == "pad":
        fill = tuple(int(value) for value in step["fill"])
        more["fill"] = fill if len(fill) > 1 else fill[0]
    return {**step, **more}


def resized(step: Mapping[str, Any], size: tuple[int, int]) -> tuple[int, int]:
    """The (height, width) after a step, as in `specs`: an integer size is one side, and the other follows."""
    height, width = size
    if step["op"] in _OF_COLORS:
        return size
    wanted = step["size"]
    if step["op"] == "pad":
        more = _lacking(step, height, width)
        if step["place"] == "symmetric":
            more = (more[0] // 2 * 2, more[1] // 2 * 2)
        return height + more[0], width + more[1]
    if not isinstance(wanted, int):
        return wanted  # type: ignore[no-any-return]
    rounding = step.get("long_side", "floor")
    given = min(height, width) if step.get("side", "short") == "short" else max(height, width)
    if rounding == "ratio":
        ratio = wanted / given
        return max(1, int(height * ratio)), max(1, int(width * ratio))
    exact = wanted * (height + width - given) / given
    other = max(1, int(exact) if rounding == "floor" else round(exact))
    return (wanted, other) if height == given else (other, wanted)


def _lacking(step: Mapping[str, Any], height: int, width: int) -> tuple[int, int]:
    """The rows and columns that a canvas has more than the image."""
    wanted = step["size"] or (max(height, width),) * 2
    return max(0, wanted[0] - height), max(0, wanted[1] - width)


def _corner(step: Mapping[str, Any], height: int, width: int) -> tuple[int, int]:
    """The (top, left) of an image on its canvas."""
    rows, columns = _lacking(step, height, width)
    if step["place"] == "start":
        return 0, 0
    if step["place"] == "ceil":
        return -(-rows // 2), -(-columns // 2)
    if step["place"] == "round":
        return round(rows / 2), round(columns / 2)
    return rows // 2, columns // 2


def _row_size(geometry: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """The (height, width) after all steps where it is the same for every image, as `specs.Preprocessing.row_size`."""
    known: tuple[int, int] | None = None
    square, longest = False, 0  # what is known of a size that is not: it is square, its long side is at most that
    for step in geometry:
        if step["op"] in _OF_COLORS:
            continue
        size = step["size"]
        if step["op"] == "pad" and known is None:
            if step["place"] != "symmetric":
                square = square or size is None
                known = size if size is not None and 0 < longest <= min(size) else None
        elif known is not None or (square and isinstance(size, int)) or not (size is None or isinstance(size, int)):
            known = resized(step, known or (1, 1))
        elif isinstance(size, int) and step.get("side", "short") == "long":
            longest = size
    return known


def crop_box(step: Mapping[str, Any], height: int, width: int) -> tuple[int, int, int, int]:
    """The (left, top, right, bottom) of a center crop; negative where the image is smaller, which Pillow fills with zero."""
    crop_height, crop_width = step["size"]
    corner = []
    for excess in (height - crop_height, width - crop_width):
        if step.get("offset", "round") == "floor":
            corner.append(math.floor(excess / 2))
        else:  # torchvision rounds half to even where it cuts, and pads the smaller half in front where it pads
            corner.append(round(excess / 2) if excess >= 0 else -(-excess // 2))
    top, left = corner
    return left, top, left + crop_width, top + crop_height


def opencv_gray(pixels: np.ndarray, bits: int = 15, *, rounded: bool = True) -> np.ndarray:
    """What `cv2.cvtColor` makes of uint8 RGB [H, W, 3], bit for bit: [H, W], with weights of 15 bits as in OpenCV 4 and 5
    (modules/imgproc/src/color_rgb.simd.hpp). Its reader of BMP files has 14 (modules/imgcodecs/src/utils.cpp), and for PNG
    files libpng cuts weights and sums off (`png_set_rgb_to_gray`)."""
    weights = (9797, 19234, 3737) if not rounded else (9798, 19235, 3735) if bits == 15 else (4899, 9617, 1868)
    wide: np.ndarray = pixels.astype(np.int32)
    weighed: np.ndarray = wide @ np.array(weights, np.int32)
    return ((weighed + (rounded << bits - 1)) >> bits).astype(np.uint8)


def opencv_resize(pixels: np.ndarray, height: int, width: int, interpolation: str) -> np.ndarray:
    """What `cv2.resize` makes of uint8 [H, W] or [H, W, C], bit for bit: INTER_LINEAR ("bilinear"), INTER_NEAREST, INTER_AREA.
    INTER_CUBIC is that of its packages for x86, in float32; where another path is taken, a few values differ by one level.

    The arithmetic is that of OpenCV 4 and 5 (modules/imgproc/src/resize.cpp): weights of 11 bits, a horizontal pass kept
    exact, a vertical one that drops 4 and 16 bits on its way; halving exactly is a mean of four. Areas are summed in float32,
    in the order of the pixels; where a side grows, "area" is bilinear with weights of its own.
    """
    before = pixels.shape[:2]
    if before == (height, width):
        return pixels
    if interpolation == "nearest":
        rows, columns = (
            np.minimum(np.floor(np.arange(after) * (1.0 / (after / size))).astype(np.int64), size - 1)
            for size, after in zip(before, (height, width))  # noqa: B905 - one length
        )
        return pixels[rows][:, columns]
    if interpolation == "bicubic":
        return _opencv_cubic(pixels, height, width)
    if interpolation == "area" and height <= before[0] and width <= before[1]:
        return _opencv_area(pixels, height, width)
    wide: np.ndarray = pixels.astype(np.int32)
    if before == (2 * height, 2 * width):
        return ((wide[0::2, 0::2] + wide[0::2, 1::2] + wide[1::2, 0::2] + wide[1::2, 1::2] + 2) >> 2).astype(np.uint8)
    area = interpolation == "area"
    left, right, of_left, of_right = _opencv_weights(before[1], width, area, clamped=True)
    above, below, of_above, of_below = _opencv_weights(before[0], height, area, clamped=False)
    inner = (slice(None), *(np.newaxis,) * (pixels.ndim - 2))
    outer = (slice(None), *(np.newaxis,) * (pixels.ndim - 1))

    def horizontal(lines: np.ndarray) -> np.ndarray:
        return (lines[:, left] * of_left[inner] + lines[:, right] * of_right[inner]) >> 4

    upper = (horizontal(wide[above]) * of_above[outer]) >> 16
    lower = (horizontal(wide[below]) * of_below[outer]) >> 16
    return ((upper + lower + 2) >> 2).astype(np.uint8)


def _opencv_weights(size: int, after: int, area: bool, *, clamped: bool) -> tuple[np.ndarray, ...]:
    """Indices and int32 weights of the two neighbors. Columns outside are clamped before the weights, rows after them."""
    if area:
        first = np.floor(np.arange(after) * (1.0 / (after / size))).astype(np.int64)
        part = (np.arange(1, after + 1) - (first + 1) * (after / size)).astype(np.float32)
        part = np.where(part <= 0, np.float32(0), part - np.floor(part)).astype(np.float32)
    else:
        place = ((np.arange(after) + 0.5) * (size / after) - 0.5).astype(np.float32)
        first = np.floor(place).astype(np.int64)
        part = (place - first).astype(np.float32)
    if clamped:
        part[(first < 0) | (first >= size - 1)] = 0
        first = np.clip(first, 0, size - 1)
    one = np.float32(2048)
    weights = [np.rint(value * one).astype(np.int32) for value in (np.float32(1) - part, part)]
    return np.clip(first, 0, size - 1), np.clip(first + 1, 0, size - 1), *weights


def _opencv_cubic(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """INTER_CUBIC, whose kernel (`interpolateCubic`, with A = -0.75) stays as narrow where a side shrinks."""
    made: np.ndarray = pixels.astype(np.float32)
    for axis, after in ((1, width), (0, height)):
        size = pixels.shape[axis]
        place = ((np.arange(after) + 0.5) * (size / after) - 0.5).astype(np.float32)
        first = np.floor(place)
        part = place - first
        near = [1.25 * x**3 - 2.25 * x**2 + 1 for x in (part, 1 - part)]
        outer = -0.75 * (part + 1) ** 3 + 3.75 * (part + 1) ** 2 - 6 * (part + 1) + 3
        weights = np.stack([outer, *near, 1 - outer - near[0] - near[1]]).astype(np.float32)
        shape = (after, *(1,) * (pixels.ndim - 1 - axis))
        taken = (np.clip(first.astype(np.int64) + step, 0, size - 1) for step in (-1, 0, 1, 2))
        made = sum(made.take(at, axis) * weight.reshape(shape) for at, weight in zip(taken, weights, strict=True))  # type: ignore[assignment]
    return np.clip(np.rint(made), 0, 255).astype(np.uint8)


def _opencv_area(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """INTER_AREA to a size that is nowhere larger: sums of whole pixels where they fit, else of pixels and their parts."""
    down, across = 1.0 / (height / pixels.shape[0]), 1.0 / (width / pixels.shape[1])
    rows, columns = round(down), round(across)
    if max(abs(down - rows), abs(across - columns)) < np.finfo(np.float64).eps:  # not of 49 to 1: 1 / (1 / 49) is not 49
        cells = pixels.reshape(height, rows, width, columns, -1)
        total = cells.sum((1, 3), dtype=np.int32).reshape(height, width, *pixels.shape[2:])
        if (rows, columns) == (2, 2):
            return ((total + 2) >> 2).astype(np.uint8)
        mean = total.astype(np.float32) * (np.float32(1) / np.float32(rows * columns))
        return np.clip(np.rint(mean), 0, 255).astype(np.uint8)
    lines = np.zeros((pixels.shape[0], width, *pixels.shape[2:]), np.float32)
    for index, weight in _opencv_shares(pixels.shape[1], width):
        lines += pixels[:, index] * weight.reshape(-1, *[1] * (pixels.ndim - 2))
    result = np.zeros((height, width, *pixels.shape[2:]), np.float32)
    for index, weight in _opencv_shares(pixels.shape[0], height):
        result += lines[index] * weight.reshape(-1, *[1] * (pixels.ndim - 1))
    return np.clip(np.rint(result), 0, 255).astype(np.uint8)


def _opencv_shares(size: int, after: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For the first, second, ... pixel that each new one covers: its index, and its float32 share (0 where there is none)."""
    scale = 1.0 / (after / size)
    start = np.arange(after) * scale
    end = start + scale
    covered = np.minimum(scale, size - start)
    last = np.minimum(np.floor(end).astype(np.int64), size - 1)
    first = np.minimum(np.ceil(start).astype(np.int64), last)
    shares = [(first - 1, np.where(first - start > 1e-3, (first - start) / covered, 0.0))]
    shares += [(first + k, np.where(first + k < last, 1.0 / covered, 0.0)) for k in range(int((last - first).max()))]
    shares.append((last, np.where(end - last > 1e-3, np.minimum(np.minimum(end - last, 1.0), covered) / covered, 0.0)))
    return [(np.clip(index, 0, size - 1), weight.astype(np.float32)) for index, weight in shares]
