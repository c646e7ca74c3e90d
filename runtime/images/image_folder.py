"""Rows of a model's input from a folder of images, as calibration and judging take them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...specs import Labels, Preprocessing
from .preprocessing import ImageError, Preprocessor

Array = np.ndarray[Any, Any]

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif"})
MOST_IMAGES = 512
_MOST_SCANNED = 1_000_000


def read_images(
    folder: Path,
    preprocessing: Preprocessing,
    labels: Labels | None,
    *,
    pixels: bool = False,
    most: int = MOST_IMAGES,
    report: Callable[[float, str], None] = lambda fraction, text: None,
) -> tuple[Array, Array | None]:
    """At most `most` images, evenly spread over all below the folder in sorted order, as float32 rows [n, C, H, W], or
    with `pixels` as uint8 [n, H, W, C].

    With them come class numbers [n], if every image lies in a folder named like one of the labels; else None. Files that are no
    readable images are left out. Raises InputError when there is no folder, or no image that can be read.
    """
    files = image_files(folder, most)
    preprocessor = Preprocessor(preprocessing.to_json()["steps"], pixels=pixels)
    rows, used, why = [], [], ""
    for index, file in enumerate(files):
        report(index / len(files), f"reading {file.name}")
        try:
            rows.append(preprocessor(file.read_bytes()))
            used.append(file)
        except (ImageError, OSError) as error:
            why = f"{file}: {error}"
    if not rows:
        raise InputError(f"{folder} holds no image that can be read; {why}")
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise InputError(f"the preprocessing gives rows of several shapes ({sorted(shapes)[:3]}), so they cannot be batched")
    return np.stack(rows), _classes(used, labels)


def image_files(folder: Path, most: int) -> list[Path]:
    """At most `most` images below the folder, evenly spread over all in sorted order. Raises InputError where there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of images")
    files = _spread(_files(folder), most)
    if not files:
        raise InputError(f"{folder} holds no images ({', '.join(sorted(_SUFFIXES))})")
    return files


def _files(folder: Path) -> list[Path]:
    found: list[Path] = []
    scanned = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        scanned += len(names)
        found += [Path(place) / name for name in sorted(names) if Path(name).suffix.lower() in _SUFFIXES]
        if scanned > _MOST_SCANNED:
            break
    return found


def _spread(files: Sequence[Path], most: int) -> list[Path]:
    if len(files) <= most:
        return list(files)
    return [files[index] for index in np.linspace(0, len(files) - 1, most).astype(int)]


def _classes(files: Sequence[Path], labels: Labels | None) -> Array | None:
    names = [file.parent.name for file in files]
    if labels is None or not set(names) <= set(labels.names):
        return None
    numbers = {name: index for index, name in enumerate(labels.names)}
    return np.array([numbers[name] for name in names])
