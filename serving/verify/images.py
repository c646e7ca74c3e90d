"""The pictures that an endpoint is asked about, always the same: each tells some mistakes from others.

Flat colors know nothing of sizes, filters or crops: they judge the model, its labels and the arithmetic of pixels. Photos, PNG
so that no decoder blurs them, add geometry. All other groups differ from a photo in one thing alone.
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

FLAT, PHOTO, EXIF, GRAY, ALPHA, PALETTE, DEEP, CMYK, JPEG, FORMAT = (
    *("flat", "photo", "exif", "gray", "alpha", "palette", "16-bit", "cmyk", "jpeg", "format"),
)
CORE = (FLAT, PHOTO)
"""The groups that judge everything but what becomes of unusual files."""

TRIALS = ("landscape", "JPEG 4:2:0")
"""Two that any endpoint should take one of."""

_COLORS = (
    *((12, 12, 12), (243, 243, 243), (128, 128, 128), (215, 40, 30), (25, 180, 60)),
    *((35, 60, 210), (240, 200, 20), (150, 30, 160)),
)
_ORIENTATION = 0x0112
_LARGEST = 1600  # pixels of a side: files stay below a megabyte, which proxies refuse


@dataclass(frozen=True)
class Sample:
    """One encoded image, its `group`, and whether decoders may differ on it by a few of 255 levels."""

    name: str
    group: str
    data: bytes
    lossy: bool = False

    @property
    def content_type(self) -> str:
        return {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png", b"BM": "image/bmp", b"RI": "image/webp"}.get(
            self.data[:2], "image/gif"
        )


@functools.cache
def samples(height: int, width: int) -> tuple[Sample, ...]:
    """Every image for a model whose rows are of that size in pixels, the core first."""
    made = _Maker(height, width)
    for number, color in enumerate(_COLORS):
        made.flat(f"flat color {number + 1}", color)
    sizes = (
        ("landscape", 2.1, 1.4), ("portrait", 1.3, 1.9), ("square", 1.5, 1.5), ("large", 3.1, 2.3), ("small", 0.62, 0.5),
        ("the model's size", 1.0, 1.0), ("a pixel wider", 1.17, 1.2), ("slightly larger", 1.25, 1.1), ("wide", 6.0, 0.5),
        ("tall", 0.5, 5.0), ("narrow", 1.05, 2.6),
    )  # fmt: skip
    for name, wide, high in sizes:
        exact = name == "the model's size"
        made.photo(name, PHOTO, (wide, high), odd=not exact)
    made.photo("2x3 pixels", PHOTO, None, pixels=(2, 3))
    made.photo("one pixel", PHOTO, None, pixels=(1, 1))
    for orientation in range(1, 9):
        made.photo(f"EXIF orientation {orientation}", EXIF, (1.7, 1.2), kind="JPEG", orientation=orientation)
    made.photo("gray PNG", GRAY, (1.6, 1.2), change=_mode("L"))
    made.photo("gray JPEG", GRAY, (1.3, 1.5), change=_mode("L"), kind="JPEG")
    made.photo("black and white PNG", GRAY, (1.4, 1.4), change=_mode("1"))
    made.photo("RGBA PNG", ALPHA, (1.6, 1.3), change=_transparent)
    made.photo("RGBA PNG, half transparent", ALPHA, (1.3, 1.6), change=_half_transparent)
    made.photo("gray PNG with alpha", ALPHA, (1.5, 1.2), change=lambda image: _transparent(image).convert("LA"))
    made.photo("palette PNG", PALETTE, (1.5, 1.2), change=_palette)
    made.photo("palette GIF", PALETTE, (1.2, 1.5), change=_palette, kind="GIF")
    made.photo("16-bit gray PNG", DEEP, (1.5, 1.3), change=_deep)
    made.deep_color("16-bit color PNG")
    made.photo("CMYK JPEG", CMYK, (1.5, 1.3), change=_mode("CMYK"), kind="JPEG")
    made.photo("JPEG 4:2:0", JPEG, (1.9, 1.4), kind="JPEG", subsampling="4:2:0", quality=88)
    made.photo("progressive JPEG", JPEG, (1.4, 1.9), kind="JPEG", progressive=True)
    made.photo("BMP", FORMAT, (1.5, 1.2), kind="BMP")
    made.photo("WebP", FORMAT, (1.2, 1.5), kind="WEBP", lossless=True)
    return tuple(made.made)


def as_jpeg(sample: Sample) -> Sample:
    """The same picture for those who take nothing else, as near as JPEG comes."""
    data = io.BytesIO()
    Image.open(io.BytesIO(sample.data)).convert("RGB").save(data, "JPEG", quality=100, subsampling="4:4:4")
    return Sample(sample.name, sample.group, data.getvalue(), lossy=True)


class _Maker:
    def __init__(self, height: int, width: int) -> None:
        self._height, self._width = height, width
        self._random = np.random.default_rng(19)
        self.made: list[Sample] = []

    def flat(self, name: str, color: tuple[int, int, int]) -> None:
        side = 2 * max(self._height, self._width)
        self._add(name, FLAT, Image.new("RGB", (side, side), color))

    def photo(
        self,
        name: str,
        group: str,
        size: tuple[float, float] | None,
        *,
        pixels: tuple[int, int] | None = None,
        odd: bool = True,
        change: Callable[[Image.Image], Image.Image] | None = None,
        orientation: int = 0,
        **options: Any,
    ) -> None:
        """A photo of (width, height) times the model's own, made odd so that halves round."""
        if pixels is None:
            assert size is not None, "one of the two is given"
            sides = (round(self._width * size[0]), round(self._height * size[1]))
            pixels = tuple(min(_LARGEST, side | 1 if odd else side) for side in sides)  # type: ignore[assignment]
        image = _photo(self._random, *pixels)  # type: ignore[misc]
        if orientation:
            exif = Image.Exif()
            exif[_ORIENTATION] = orientation
            options["exif"] = exif
        self._add(name, group, image if change is None else change(image), **options)

    def deep_color(self, name: str) -> None:
        """RGB with 16 bits a channel, which Pillow reads but does not write."""
        image = _photo(self._random, self._width | 1, (5 * self._height // 4) | 1)
        wide = np.asarray(image).astype(">u2") * 257
        lines = b"".join(b"\0" + line.tobytes() for line in wide)
        head = struct.pack(">IIBBBBB", image.width, image.height, 16, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
        data = b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
        )
        self.made.append(Sample(name, DEEP, b"\x89PNG\r\n\x1a\n" + data))

    def _add(self, name: str, group: str, image: Image.Image, kind: str = "PNG", **options: Any) -> None:
        if kind == "JPEG":
            options = {"quality": 95, "subsampling": "4:4:4", **options} if image.mode == "RGB" else {"quality": 95, **options}
        data = io.BytesIO()
        image.save(data, kind, **options)
        self.made.append(Sample(name, group, data.getvalue(), lossy=kind == "JPEG"))


def _photo(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Large shapes of strong colors with edges, under fine grain: every filter, offset and turn leaves its mark."""
    shapes = Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(shapes.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    blocks = np.asarray(
        shapes.resize((width, height), Image.Resampling.NEAREST).transpose(Image.Transpose.FLIP_LEFT_RIGHT), np.float32
    )
    y, x = np.mgrid[0:height, 0:width]
    waves = 40 * np.sin(x / random.uniform(0.8, 3) + y / random.uniform(0.8, 3))
    tint = random.uniform(-1, 1, 3)
    values = np.where((x * height + y * width < width * height)[..., None], smooth, blocks) + waves[..., None] * tint
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _mode(mode: str) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.convert(mode)


def _transparent(image: Image.Image) -> Image.Image:
    """Wholly transparent in a corner, where colors are hidden, and opaque in another."""
    ramp = np.add.outer(np.linspace(-0.6, 1, image.height), np.linspace(-0.6, 1, image.width))
    image = image.copy()
    image.putalpha(Image.fromarray((np.clip(ramp, 0, 1) * 255).astype(np.uint8)))
    return image


def _half_transparent(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.putalpha(128)
    return image


def _palette(image: Image.Image) -> Image.Image:
    return image.convert("P", palette=Image.Palette.ADAPTIVE)


def _deep(image: Image.Image) -> Image.Image:
    """Gray with 16 bits, most of them dark: whoever cuts at 255 leaves almost nothing."""
    return Image.fromarray((np.asarray(image.convert("L")).astype(np.uint32) * 40).astype(np.uint16))
