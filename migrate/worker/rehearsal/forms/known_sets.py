"""The files of MNIST, CIFAR-10 and CIFAR-100, and of sets in their form, by their names: scripts read them by hand.

The forms are described at http://yann.lecun.com/exdb/mnist and https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100 = _CIFAR100.split()
_IDX = re.compile(r"(images|labels)[-.]idx[13]-ubyte(\.gz)?$")
_BATCH = re.compile(r"(data_batch_\d|test_batch)$")
_OF_100 = "cifar-100-python"
_PICKLER: Any = pickle._Pickler  # type: ignore[attr-defined]
"""The one in Python, whose methods may be another's."""
_TRAINING, _TESTS, _IN_BATCH = 60_000, 10_000, 10_000


def is_file(path: str) -> bool:
    """Whether a file is one of those sets', by its name."""
    return _form(path) is not None


def contents(path: str) -> bytes:
    """What such a file holds, as many images as in the set itself: scripts that read it by hand know how many there are."""
    make = _form(path)
    assert make is not None
    return make(path)


def _form(path: str) -> Callable[[str], bytes] | None:
    folder, name = os.path.split(path)
    if _IDX.search(name):
        return _idx
    if _BATCH.match(name):
        return lambda path: cifar_batch(os.path.basename(path), _IN_BATCH)
    if name == "batches.meta":
        return lambda _: cifar_names()
    if os.path.basename(folder) == _OF_100 and name in ("train", "test"):
        rows = 50_000 if name == "train" else _TESTS
        return lambda path: cifar_batch(os.path.basename(path), rows, fine=True)
    return (lambda _: cifar_names(fine=True)) if os.path.basename(folder) == _OF_100 and name == "meta" else None


def _idx(path: str) -> bytes:
    name = os.path.basename(path)
    make = idx_images if "images" in name else idx_labels
    data = make(name, _TRAINING if "train" in name else _TESTS)
    return gzip.compress(data, compresslevel=0) if name.endswith(".gz") else data


def idx_images(name: str, rows: int) -> bytes:
    """A file of gray images of 28 x 28 pixels; `name` says which."""
    return struct.pack(">4i", 0x803, rows, 28, 28) + _drawn(name, rows, 28, 28).tobytes()


def idx_labels(name: str, rows: int, classes: int = 10) -> bytes:
    return struct.pack(">2i", 0x801, rows) + (np.arange(rows) % classes).astype(np.uint8).tobytes()


def cifar_batch(name: str, rows: int, *, fine: bool = False) -> bytes:
    """A file of images of 32 x 32 pixels, a row each; `fine` as in CIFAR-100, whose classes are in groups too."""
    labels = [row % (100 if fine else 10) for row in range(rows)]
    entry = {"data": _drawn(name, rows, 3072), "batch_label": name, "filenames": [f"{row:06d}.png" for row in range(rows)]}
    entry |= {"fine_labels": labels, "coarse_labels": [label // 5 for label in labels]} if fine else {"labels": labels}
    return _pickled(entry)


def cifar_names(*, fine: bool = False) -> bytes:
    """The file of the classes' names."""
    if fine:
        return _pickled({"fine_label_names": CIFAR100, "coarse_label_names": [f"group_{i:02d}" for i in range(20)]})
    return _pickled({"label_names": CIFAR10, "num_cases_per_batch": _IN_BATCH, "num_vis": 3072})


def _drawn(name: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, shape, np.uint8)


def _pickled(value: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


class _Python2Pickler(_PICKLER):  # type: ignore[misc]
    """Writes texts as Python 2 did, in which CIFAR was pickled: they are bytes to who reads with `encoding="bytes"`."""

    dispatch: ClassVar[dict[type, Any]] = dict(_PICKLER.dispatch)

    def _save_bytes(self, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = _save_bytes
