"""How an image may become a row of a model's input: the package's own way, and what others do instead in each of its stages."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from ...runtime.images.preprocessing import Preprocessor, crop_box, resized
from ...specs import Preprocessing

Decode = Callable[[Image.Image, str], Image.Image]
"""An opened, unturned image and the wanted mode to an image of that mode."""
Resample = Callable[[np.ndarray, int, int], np.ndarray]
"""uint8 pixels [H, W, C], and a height and a width, to float pixels of that size."""


_KEPT = 256 << 10
"""Bytes of a file up to which its decoded image is kept for other hypotheses: of a photo that is 36 MB."""


@dataclass(frozen=True)
class Pipeline:
    """The steps of `preprocessing`, but for what stands in their place where it is given.

    `shift` moves each crop by (rows, columns). `square` cuts the middle square before all else. `pixels` are changed before
    the arithmetic, [H, W, C]; `row` after it, [C, H, W].
    """

    preprocessing: Preprocessing
    decode: Decode | None = None
    resample: Resample | None = None
    shift: tuple[int, int] | None = None
    square: bool = False
    pixels: Callable[[np.ndarray], np.ndarray] | None = None
    row: Callable[[np.ndarray], np.ndarray] | None = None

    def __call__(self, data: bytes, *, as_pixels: bool = False) -> np.ndarray:
        """One row, float32 [C, H, W], or uint8 [H, W, C] for a graph with the arithmetic inside. Raises ImageError."""
        pixels = _decoded(Pipeline(_geometry(self.preprocessing), self.decode, self.resample, self.shift, self.square), data)
        if self.pixels is not None:
            pixels = self.pixels(pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis])
        if as_pixels:
            return np.clip(np.rint(pixels), 0, 255).astype(np.uint8).reshape(*pixels.shape[:2], -1)
        row = _preprocessor(self.preprocessing).row(pixels)
        return row if self.row is None else np.ascontiguousarray(self.row(row), np.float32)

    def before_arithmetic(self, data: bytes) -> np.ndarray:
        """The pixels that decoding and geometry give, uint8 [H, W, C] or [H, W]. Raises ImageError."""
        maker = _preprocessor(self.preprocessing)
        opened = _opened if len(data) <= _KEPT else _opened.__wrapped__
        image = opened(_ungeometric(self.preprocessing), self.decode, data)
        maker.check_steps((image.height, image.width))
        if self.square:
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side))
        return self._shaped(maker, image)

    def _shaped(self, maker: Preprocessor, image: Image.Image) -> np.ndarray:
        """The pixels after the geometry."""
        if self.resample is None and self.shift is None:
            return np.asarray(maker.shape(image, maker.geometry))
        for step in maker.geometry:
            if step["op"] == "resize" and self.resample is not None:
                height, width = resized(step, (image.height, image.width))
                made = self.resample(np.asarray(image).reshape(image.height, image.width, -1), height, width)
                image = Image.fromarray(np.clip(np.rint(made), 0, 255).astype(np.uint8).squeeze())
            elif step["op"] == "center_crop" and self.shift is not None:
                box = crop_box(step, image.height, image.width)
                down, right = (
                    max(-at, min(by, size - until)) if until <= size else 0
                    for by, at, until, size in (
                        (self.shift[0], box[1], box[3], image.height),
                        (self.shift[1], box[0], box[2], image.width),
                    )
                )
                image = image.crop((box[0] + right, box[1] + down, box[2] + right, box[3] + down))
            else:
                image = maker.shape(image, [step])
        return np.asarray(image)


def without_antialias(kernel: str) -> Resample:
    """ "bilinear" or "bicubic" (a = -0.75) from the nearest 2 or 4 pixels, however far it shrinks: torch without antialias."""
    reach = 1 if kernel == "bilinear" else 2

    def weight(distance: np.ndarray) -> np.ndarray:
        near = np.abs(distance)
        if reach == 1:
            return np.maximum(0, 1 - near)
        inner = (1.25 * near - 2.25) * near**2 + 1
        outer = ((-0.75 * near + 3.75) * near - 6) * near + 3
        return np.where(near <= 1, inner, np.where(near < 2, outer, 0))

    def along(values: np.ndarray, size: int) -> np.ndarray:
        place = (np.arange(size) + 0.5) * (len(values) / size) - 0.5
        first = np.floor(place).astype(int)
        made = np.zeros((size, *values.shape[1:]))
        for offset in range(1 - reach, reach + 1):
            share = weight(place - (first + offset)).reshape(-1, *[1] * (values.ndim - 1))
            made += values[np.clip(first + offset, 0, len(values) - 1)] * share
        return made

    def resample(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
        wide = along(pixels.astype(np.float64).swapaxes(0, 1), width)
        return along(wide.swapaxes(0, 1), height)

    return resample


@functools.lru_cache(maxsize=256)
def _geometry(made: Preprocessing) -> Preprocessing:
    """The same without its arithmetic."""
    count = len(made.mean)
    plain = {"scale": 1 / 255, "mean": (0.0,) * count, "std": (1.0,) * count, "channels": made.row_mode}
    return replace(made, **plain)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _ungeometric(made: Preprocessing) -> Preprocessing:
    count = len(made.mode)
    return Preprocessing(
        mode=made.mode,
        channels=made.mode,
        mean=(0.0,) * count,
        std=(1.0,) * count,
        upright=made.upright,
        gray=made.gray,
        deep=made.deep,
    )


@functools.lru_cache(maxsize=64)  # most others differ in what becomes of the pixels
def _opened(preprocessing: Preprocessing, decode: Decode | None, data: bytes) -> Image.Image:
    maker = _preprocessor(preprocessing)
    image = maker.open(data)
    return maker.load(image) if decode is None else decode(image, maker.mode)


@functools.lru_cache(maxsize=256)  # most hypotheses differ in the arithmetic alone
def _decoded(pipeline: Pipeline, data: bytes) -> np.ndarray:
    return pipeline.before_arithmetic(data)


@functools.lru_cache(maxsize=256)
def _preprocessor(preprocessing: Preprocessing) -> Preprocessor:
    return Preprocessor(preprocessing.to_json()["steps"])
