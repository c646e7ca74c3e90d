"""Files of arrays that have names: NumPy's `.npz` and HDF5, of images and of their labels."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..stage import Stage

KEYS = "keys"
"""Learned: the names of arrays that a script asked for."""
NPZ, HDF5 = (".npz",), (".h5", ".hdf5", ".hdf")
_USUAL = ("x_train", "y_train", "x_test", "y_test", "images", "labels")
_LABELS = re.compile(r"label|class|target|categor|diagnos|level|grade|species|breed|emotion|(^|/)y", re.I)


class Maker(Protocol):
    """What makes data in the way the sources say, as far as arrays need it."""

    stage: Stage
    rows: int
    classes: int
    size: tuple[int, int]

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
    return {key: labels if _LABELS.search(key) else images for key in keys}


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
