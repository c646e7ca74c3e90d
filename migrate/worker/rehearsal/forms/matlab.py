"""Tables of MATLAB's that are not here: `scipy.io.loadmat` gives lists of files, labels from one on, and stacks of images."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import hints

_LABELS = re.compile(r"label|class|target|categor|^y$|grade", re.I)
_FILES = re.compile(r"file|path|name|list", re.I)
_IMAGES = re.compile(r"^x$|image|data|pixel|faces", re.I)
_READERS = frozenset(["loadmat"])


def table(root: str, script: str, classes: int, images: np.ndarray, more: list[str]) -> bytes:
    """A .mat file with what the sources take out of one by name, a row for each of `images` (rows, height, width, 3).

    MATLAB counts classes and rows from one. Columns are (rows, 1), but (1, rows) where the sources take the first of them.
    """
    from scipy.io import savemat

    taken = dict(_taken(root, script)) or {"labels": False, "file_list": False, "images": False}
    taken |= {key: False for key in more if key not in taken}
    file = io.BytesIO()
    savemat(file, {key: _values(key, is_row, classes, images) for key, is_row in taken.items()})
    return file.getvalue()


def _values(key: str, is_row: bool, classes: int, images: np.ndarray) -> np.ndarray:
    rows = len(images)
    column: Any
    if _LABELS.search(key):
        column = np.arange(rows, dtype=np.int32) % classes + 1
    elif _FILES.search(key):
        column = np.empty(rows, object)
        column[:] = [np.array([f"image_{row:04d}.jpg"]) for row in range(rows)]
    elif _IMAGES.search(key):
        return np.moveaxis(images, 0, -1)  # the last axis is that of the images, as in SVHN's
    else:
        column = np.arange(rows, dtype=np.int32) + 1
    return column.reshape((1, rows) if is_row else (rows, 1))  # type: ignore[no-any-return]


def _taken(root: str, script: str) -> Iterator[tuple[str, bool]]:
    """The names that files which read such tables take by a constant, and whether their first row is taken of it."""
    for tree in hints.sources(root, hints.path_of(root, script)):
        if not any(isinstance(node, ast.Name | ast.Attribute) and _last(node) in _READERS for node in ast.walk(tree)):
            continue
        firsts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript) and _is_zero(node.slice)}
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=held, slice=ast.Constant(value=str(key))) if hints.is_table(held):
                    yield key, id(node) in firsts


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _is_zero(node: ast.expr) -> bool:
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    return isinstance(first, ast.Constant) and first.value == 0
