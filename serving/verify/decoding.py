"""What decoders make of files that are no plain RGB: the package reads them as Pillow's `convert` does, others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from PIL import Image, ImageChops, ImageOps

from ...specs import Preprocessing
from . import images
from .hypotheses import CHANNELS, DECODE, Hypothesis, change_pipeline
from .pipeline import Decode

_ORIENTATION = 0x0112
# What undoes each orientation, turned the wrong way.
_WRONG_WAY = {
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
    5: Image.Transpose.TRANSVERSE,
    7: Image.Transpose.TRANSPOSE,
}


def of_group(group: str, preprocessing: Preprocessing) -> Iterator[Hypothesis]:
    """What may be wrong with the files of a group alone, as hypotheses about `Pipeline.decode`."""
    if group == images.EXIF:
        yield _exif(preprocessing)
        yield _decoded("exif", "images are turned the wrong way for their EXIF orientation", _turned_wrong)
    else:
        for fault, text, decode in _WAYS.get(group, ()):
            yield _decoded(fault, text, decode)


def of_gray_models() -> Iterator[Hypothesis]:
    """Other ways to gray, for models that take it."""
    for channel, color in enumerate(("red", "green", "blue")):
        yield _decoded("grayscale", f"gray is the {color} channel alone", _one_channel(channel), CHANNELS)
    yield _decoded("grayscale", "gray weighs red as blue and blue as red", _swapped_gray, CHANNELS)
    yield _decoded("grayscale", "gray is the mean of the channels", _mean_gray, CHANNELS)
    yield _decoded(
        "inverted", "dark and bright are exchanged", lambda image, mode: ImageOps.invert(image.convert(mode)), CHANNELS
    )


def _decoded(fault: str, text: str, decode: Decode, stage: str = DECODE) -> Hypothesis:
    return Hypothesis(fault, stage, text, change_pipeline(lambda one: replace(one, decode=decode)))


def _exif(preprocessing: Preprocessing) -> Hypothesis:
    text = (
        "the EXIF orientation is ignored"
        if preprocessing.upright
        else "images are turned as their EXIF data say, which the model's own preprocessing does not do"
    )
    change = change_pipeline(
        lambda one: replace(one, preprocessing=replace(one.preprocessing, upright=not one.preprocessing.upright))
    )
    return Hypothesis("exif", DECODE, text, change)


def _turned_wrong(image: Image.Image, mode: str) -> Image.Image:
    stated = image.getexif().get(_ORIENTATION, 1)
    turn = _WRONG_WAY.get(stated)
    image = image.convert(mode)
    return image if turn is None else image.transpose(turn)


def _on(color: int) -> Decode:
    def decode(image: Image.Image, mode: str) -> Image.Image:
        if not image.has_transparency_data:
            return image.convert(mode)
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (color, color, color, 255)), seen).convert(mode)

    return decode


def _one_channel(channel: int) -> Decode:
    return lambda image, mode: image.convert("RGB").getchannel(channel)


def _swapped_gray(image: Image.Image, mode: str) -> Image.Image:
    return Image.merge("RGB", image.convert("RGB").split()[::-1]).convert("L")


def _mean_gray(image: Image.Image, mode: str) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("RGB"), np.float32).mean(axis=2).round().astype(np.uint8))


def _as_numbers(image: Image.Image, mode: str) -> Image.Image:
    """The stored numbers as gray: the indices of a palette, 0 and 1 of black and white."""
    if image.mode not in ("P", "1"):
        return image.convert(mode)
    return Image.fromarray(np.asarray(image).astype(np.uint8)).convert(mode)


def _first_channel(image: Image.Image, mode: str) -> Image.Image:
    if image.mode not in ("L", "1"):
        return image.convert(mode)
    gray = image.convert("L")
    return Image.merge("RGB", (gray, Image.new("L", gray.size), Image.new("L", gray.size))).convert(mode)


def _deep(function: Callable[[np.ndarray], np.ndarray]) -> Decode:
    def decode(image: Image.Image, mode: str) -> Image.Image:
        if not image.mode.startswith("I"):
            return image.convert(mode)
        values = np.asarray(image).astype(np.float64)
        return Image.fromarray(np.clip(function(values), 0, 255).astype(np.uint8)).convert(mode)

    return decode


def _stretched(values: np.ndarray) -> np.ndarray:
    return np.asarray(255 * (values - values.min()) / max(1.0, float(np.ptp(values))))


def _inverted_cmyk(image: Image.Image, mode: str) -> Image.Image:
    return ImageChops.invert(image).convert(mode) if image.mode == "CMYK" else image.convert(mode)


def _three_of_four(image: Image.Image, mode: str) -> Image.Image:
    return Image.merge("RGB", image.split()[:3]).convert(mode) if image.mode == "CMYK" else image.convert(mode)


def _reduced(image: Image.Image, mode: str) -> Image.Image:
    image.draft(mode, (image.width // 2, image.height // 2))
    return image.convert(mode)


_WAYS: dict[str, tuple[tuple[str, str, Decode], ...]] = {
    images.ALPHA: (
        ("alpha", "transparent pixels are laid on white; the model's own preprocessing drops the alpha channel", _on(255)),
        ("alpha", "transparent pixels are laid on black; the model's own preprocessing drops the alpha channel", _on(0)),
    ),
    images.PALETTE: (("palette", "the indices of a palette are taken for gray values", _as_numbers),),
    images.GRAY: (
        ("grayscale", "gray images fill the first channel only", _first_channel),
        ("grayscale", "black and white are taken for 0 and 1", _as_numbers),
    ),
    images.DEEP: (
        ("16-bit", "16-bit gray values are divided by 256", _deep(lambda v: v // 256)),
        ("16-bit", "16-bit gray values are cut at 255", _deep(lambda v: v)),
        ("16-bit", "of 16-bit gray values the low 8 bits are taken", _deep(lambda v: v % 256)),
        ("16-bit", "16-bit gray values are stretched to their own range", _deep(_stretched)),
    ),
    images.CMYK: (
        ("cmyk", "CMYK colors are inverted", _inverted_cmyk),
        ("cmyk", "cyan, magenta and yellow are taken for red, green and blue", _three_of_four),
    ),
    images.JPEG: (("jpeg-decoding", "JPEG is decoded at half its size", _reduced),),
}  # fmt: skip
