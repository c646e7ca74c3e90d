"""Files of arrays that have names, of images and of their labels: NumPy's `.npz`, HDF5 and pickled tables."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .. import hints
from ..stage import Stage

KEYS = "keys"
"""Learned: the names of arrays that a script asked for."""
APART = "apart"
"""Learned: rows, columns and colors of images are axes of their own in pickled arrays, and labels are one, too."""
NPZ, HDF5, PICKLES = (".npz",), (".h5", ".hdf5", ".hdf"), (".pkl", ".pickle", ".p")
PACKED = tuple(f"{ending}.gz" for ending in PICKLES)
_OF_IMAGES = re.compile(r"(^|[_-])(images?|imgs?|photos?|pictures|pixels|features|x)([_-]|$)", re.I)
"""Names of files and of keys that hold an array of images."""
_NAMES_BY_NUMBER = re.compile(r"(idx|index|id)\w*to\w*(label|human|class|name)", re.I)
_USUAL = ("x_train", "y_train", "x_test", "y_test", "images", "labels")


class Maker(Protocol):
    """What makes data in the way the sources say, as far as arrays need it."""

    stage: Stage
    rows: int
    classes: int
    size: tuple[int, int]
    names: list[str]

    def is_labels(self, path: str) -> bool: ...

    def arrays(self, path: str, count: int) -> list[np.ndarray]: ...

    @property
    def channels(self) -> tuple[int, ...]: ...

    def drawn(self, path: str, *shape: int) -> np.ndarray: ...


def npz(maker: Maker, path: str) -> bytes:
    """The arrays that were asked for, and those of most such files."""
    file = io.BytesIO()
    np.savez(file, **_arrays(maker, path, [*maker.stage.learned.get(KEYS, ()), *_USUAL]))  # type: ignore[arg-type]
    return file.getvalue()


def hdf5(maker: Maker, path: str) -> bytes:
    """The arrays that were asked for, else those of most such files. Where one lies in another, the other is a group."""
    import h5py

    keys = maker.stage.learned.get(KEYS, ()) or _USUAL
    keys = [key for key in keys if not any(other.startswith(f"{key}/") for other in keys)]
    file = io.BytesIO()
    with h5py.File(file, "w") as made:
        for key, values in _arrays(maker, path, keys).items():
            made[key] = values
    return file.getvalue()


def _arrays(maker: Maker, path: str, keys: list[str]) -> dict[str, np.ndarray]:
    images = maker.drawn(path, maker.rows, *maker.size, *maker.channels)
    labels: np.ndarray = np.arange(maker.rows) % maker.classes
    return {key: labels if maker.is_labels(key) else images for key in keys}


def pickled(maker: Maker, path: str) -> bytes:
    """One array where the name says so, else a table as CIFAR's files hold, with the keys that were asked for."""
    name = os.path.basename(path)
    if _NAMES_BY_NUMBER.search(name):
        return pickle.dumps(dict(enumerate(maker.names)))
    of_images = _OF_IMAGES.search(os.path.splitext(name)[0]) is not None
    if (of_images or maker.is_labels(path)) and not hints.is_keyed(maker.stage.root, maker.stage.request.script, path):
        return pickle.dumps(maker.arrays(path, 2)[0 if of_images else 1])
    pixels, own = maker.arrays(path, 2)
    if maker.stage.learned.get(APART):
        pixels = images = maker.drawn(path, maker.rows, *maker.size, *maker.channels)
    else:
        pixels, images = pixels.reshape(len(pixels), -1), maker.drawn(path, maker.rows, 3 * 32 * 32)
    labels: Any = own if maker.stage.learned.get(APART) else own.tolist()
    keys = {key: pixels if _OF_IMAGES.search(key) else own for key in maker.stage.learned.get(KEYS, ())}
    return pickle.dumps({"data": images, "labels": labels, "fine_labels": labels, "label_names": maker.names, **keys})


def packed(maker: Maker, path: str) -> bytes:
    """Pairs of flat gray images from 0 to 1 and their labels, to train, validate and test, as in the MNIST of tutorials."""
    images, labels = maker.arrays(path, 2)
    pair = images.reshape(len(images), -1).astype(np.float32) / 255, labels
    return gzip.compress(pickle.dumps((pair, pair, pair)))


def watch(stage: Stage, opened: Callable[[str], str], library: Any) -> None:
    """HDF5 opens a path without Python's `open`: it is given what `opened` says."""

    def begin(original: Any, file: Any, name: Any, mode: Any = "r", *args: Any, **named: Any) -> None:
        if mode == "r" and isinstance(name, str | os.PathLike):
            name = opened(os.fspath(name))
        original(file, name, mode, *args, **named)

    def take(original: Any, own: Any, name: Any, *args: Any) -> Any:
        try:
            return original(own, name, *args)
        except (KeyError, ValueError) as error:  # of a group, and of an array that was taken for one
            if isinstance(name, str):
                error.headrace_asked = f"{own.name}/{name}".strip("/")  # type: ignore[union-attr]
            raise

    stage.wrap(library.File, "__init__", begin)
    for kind in (library.Group, library.Dataset):
        stage.wrap(kind, "__getitem__", take)


def lesson(stage: Stage, error: BaseException) -> bool:
    """What an error says of an array that the next attempt's files should have, by its whole path in the file."""
    asked = getattr(error, "headrace_asked", None)
    return asked is not None and stage.add(KEYS, asked)
