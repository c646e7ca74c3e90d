"""torchvision's own decoding of images, where its extension cannot be loaded: Pillow decodes them."""

from __future__ import annotations

import functools
import io
from typing import Any

from ...stage import Stage

_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA", "RGBA": "RGBA"}
_KEPT = ("L", "LA", "RGB", "RGBA")


def stand_in(stage: Stage) -> None:
    def told(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            stage.note("libraries", "torchvision could not load its image extension; Pillow decoded images in its place")
            return function(*args, **named)

        return call

    def replace(library: Any) -> None:
        if not library._has_image_ops():
            for name, function in _FUNCTIONS.items():
                stage.patch(library, name, told(function))

    stage.when_imported("torchvision.io.image", replace)


def decode_by_pillow(library: Any) -> None:
    """The same whether the extension is there or not, in `torchvision.io`: to follow what becomes of an image."""
    for owner in (library, library.image):
        for name, function in _FUNCTIONS.items():
            setattr(owner, name, function)


def _read_file(path: Any) -> Any:
    """The bytes of a file: uint8 [size]."""
    import torch

    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def _decode(data: Any, mode: Any = "UNCHANGED", *_: Any, apply_exif_orientation: bool = False, **__: Any) -> Any:
    """An image from its bytes: uint8 [channels, height, width]."""
    import numpy
    import torch
    from PIL import Image, ImageOps

    if isinstance(data, (list, tuple)):
        return [_decode(item, mode, apply_exif_orientation=apply_exif_orientation) for item in data]
    image: Image.Image = Image.open(io.BytesIO(data.numpy().tobytes()))
    if apply_exif_orientation:
        image = ImageOps.exif_transpose(image)
    wanted = _MODES.get(getattr(mode, "name", mode), image.mode if image.mode in _KEPT else "RGB")
    pixels = numpy.array(image.convert(wanted))
    return torch.from_numpy(pixels if pixels.ndim > 2 else pixels[..., None]).permute(2, 0, 1).contiguous()


def _read_image(path: Any, *args: Any, **named: Any) -> Any:
    return _decode(_read_file(path), *args, **named)


_FUNCTIONS = {"read_file": _read_file, "read_image": _read_image} | dict.fromkeys(
    ["decode_image", "decode_jpeg", "decode_png", "decode_gif", "decode_webp"], _decode
)
