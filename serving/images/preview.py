"""How one image becomes a model's input, step by step, for people to look at: small pictures and a sentence each."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ...errors import InputError
from ...runtime.images.preprocessing import ImageError, Preprocessor
from ...specs import Preprocessing

_SIDE = 256  # pixels of a picture's longer side at most
_MOST_PIXELS = 4_000_000  # of a row, which takes twelve bytes for each
_WHAT = {
    "resize": "resized",
    "center_crop": "cropped to its center",
    "pad": "padded",
    "convert": "converted",
    "point": "changed value by value",
}


def preview(preprocessing: Preprocessing, data: bytes, *, max_pixels: int, takes_pixels: bool) -> dict[str, Any]:
    """The image as it is decoded, after each step of the geometry, and as the model sees it, each as a PNG in base64.

    The steps are those of the exact path, by Pillow; a server that decodes faster stays within 2 of 255 of them. Raises
    InputError.
    """
    described = preprocessing.to_json()["steps"]
    exact = Preprocessor(described, max_pixels=max_pixels)
    try:
        opened = exact.open(data)
        form, size, mode = opened.format, (opened.width, opened.height), opened.mode
        image = exact.load(opened)
        how = f"{form}, {size[0]} x {size[1]} pixels, {mode}{f' as {exact.mode}' if mode != exact.mode else ''}"
        if _turned(described, opened):
            told = "as it is turned here" if exact.upright else "which this model's preprocessing ignores"
            how += f"; its EXIF data say that it lies otherwise, {told}"
        steps = [_step("decoded", how, image)]
        for step in exact.geometry:
            image = exact.shape(image, [step])
            steps.append(_step(_WHAT[step["op"]], _said(step), image))
        if image.width * image.height > _MOST_PIXELS:
            raise InputError(f"the image is {image.width}x{image.height} pixels after preprocessing, too many to be drawn")
        row = exact.row(np.asarray(image))
    except ImageError as error:
        raise InputError(str(error)) from None
    steps.append(_seen(preprocessing, row, takes_pixels))
    return {"steps": steps}


def _turned(steps: Sequence[Mapping[str, Any]], image: Image.Image) -> bool:
    upright = Preprocessor([{**steps[0], "upright": True}, *steps[1:]])
    with contextlib.suppress(ImageError):
        return upright.orientation(image) != 1
    return False


def _said(step: Mapping[str, Any]) -> str:
    if step["op"] == "convert":
        return "to gray" if step["mode"] == "L" else "to three channels"
    if step["op"] == "point":
        return f"by a table of {len(step['table'])} values"
    size = step["size"]
    if isinstance(size, int):
        said = f"its {step.get('side', 'short')} side to {size}"
    else:
        said = "to a square" if size is None else f"to {size[1]} x {size[0]}"
    if step["op"] == "resize":
        library = "" if step.get("library", "pillow") == "pillow" else f" as {step['library']} does it"
        return f"{said}, {step['interpolation']}{library}"
    return said


def _seen(preprocessing: Preprocessing, row: np.ndarray, takes_pixels: bool) -> dict[str, Any]:
    """The numbers that reach the model, from the lowest, black, to the highest, white."""
    low, high = float(row.min()), float(row.max())
    shown = np.rint((row - low) * (255 / (high - low) if high > low else 0.0)).astype(np.uint8).transpose(1, 2, 0)
    picture = Image.fromarray(shown[:, :, 0] if shown.shape[2] == 1 else shown)
    numbers = f"mean {_listed(preprocessing.mean)}, std {_listed(preprocessing.std)}, scale {preprocessing.scale:.4g}"
    how = f"{preprocessing.channels}, {numbers}: from {low:.3g} to {high:.3g}"
    if preprocessing.channels == "BGR":
        how += "; blue comes first, so that red and blue change places here"
    if takes_pixels:
        how += "; the arithmetic is in the model's graph, which takes the pixels before it"
    return _step("as the model sees it", how, picture)


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in (values[:1] if len(set(values)) == 1 else values))


def _step(what: str, how: str, image: Image.Image) -> dict[str, Any]:
    small, ratio = image, _SIDE / max(image.size)
    if ratio < 1:
        size = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
        small = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    file = io.BytesIO()
    small.save(file, "PNG", compress_level=1)
    png = base64.b64encode(file.getvalue()).decode()
    return {"what": what, "how": how, "width": image.width, "height": image.height, "png": png}
