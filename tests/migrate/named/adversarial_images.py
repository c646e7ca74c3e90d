"""Encoded images that pipelines part on: odd and tiny sizes, long strips, every mode that files have, rotations by EXIF."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator

import numpy as np
from PIL import ExifTags, Image

SIZES = (
    (1, 1), (2, 3), (7, 5), (31, 57), (33, 32), (97, 61), (61, 97), (127, 255), (223, 224), (224, 224), (225, 223), (255, 257),
    (256, 256), (301, 201), (333, 250), (375, 500), (500, 333), (641, 479), (3, 200), (400, 4),
)  # fmt: skip
MODES = ("RGB", "L", "RGBA", "P", "LA", "1", "CMYK")
FORMATS = {"CMYK": ("JPEG",), "L": ("PNG", "JPEG"), "RGB": ("PNG", "JPEG", "WEBP", "BMP"), "P": ("PNG", "GIF")}


def images(count: int = 200) -> list[tuple[str, bytes]]:
    """So many of them, with what each is; the same whenever it is called."""
    found = list(itertools.islice(_all(), count))
    assert len(found) == count
    return found


def _all() -> Iterator[tuple[str, bytes]]:
    random = np.random.default_rng(22)
    for turn in itertools.count():
        for index, size in enumerate(SIZES):
            mode = MODES[(index + turn) % len(MODES)]
            kind = FORMATS.get(mode, ("PNG",))[turn % len(FORMATS.get(mode, ("PNG",)))]
            orientation = 1 + (index + 3 * turn) % 8 if kind in ("JPEG", "PNG", "WEBP") and index % 3 == 0 else 1
            yield f"{turn}-{size[0]}x{size[1]}-{mode}-{kind}-{orientation}", _encoded(random, size, mode, kind, orientation)


def _encoded(random: np.random.Generator, size: tuple[int, int], mode: str, kind: str, orientation: int) -> bytes:
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 90 * np.sin(x / random.uniform(3, 90) + y / random.uniform(3, 90) + phase) for phase in range(4)]
    values = np.clip(np.stack(waves, axis=2) + random.normal(0, 20, (height, width, 4)), 0, 255).astype(np.uint8)
    if mode == "CMYK":
        image = Image.fromarray(values, "CMYK")
    elif mode in ("RGBA", "LA"):
        image = Image.fromarray(values, "RGBA").convert(mode)
    else:
        image = Image.fromarray(np.ascontiguousarray(values[:, :, :3])).convert(mode)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    options = {"exif": exif} if orientation != 1 else {}
    file = io.BytesIO()
    image.save(file, kind, **options, **({"quality": 92} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()
