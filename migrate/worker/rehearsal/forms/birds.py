"""The lists that come with CUB-200-2011, in whose form other sets of fine differences come too: a number and what it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from .. import hints
from ..stage import Stage

CLASSES = 200
_FORMS: dict[str, Callable[[int, str, int], str]] = {
    "images.txt": lambda label, name, row: f"{name}/image_{label * _EACH + row:04d}.jpg",
    "image_class_labels.txt": lambda label, name, row: str(label + 1),
    "train_test_split.txt": lambda label, name, row: str(int(row % 4 != 3)),
    "bounding_boxes.txt": lambda label, name, row: "10.0 10.0 200.0 200.0",
}
"""A file's lines after the number of the image, by the image's class, the folder of that and the image's number there.

http://www.vision.caltech.edu/datasets/cub_200_2011, README."""
_OF_CLASSES = "classes.txt"
_EACH = 4
"""Images of a class: three to train with and one to test."""


def is_list(stage: Stage, path: str) -> bool:
    """Whether a file is one of those: by its name, where the sources name one that only this form has."""
    if os.path.basename(path) not in (*_FORMS, _OF_CLASSES):
        return False
    script = hints.path_of(stage.root, stage.request.script)
    texts = (node for tree in hints.sources(stage.root, script) for node in hints.nodes(tree))
    named = {os.path.basename(str(getattr(node, "value", ""))) for node in texts}
    return not named.isdisjoint(("image_class_labels.txt", "train_test_split.txt"))


def contents(path: str, names: Sequence[str]) -> bytes:
    """The lines of such a file for classes of those names."""
    folders = [f"{number + 1:03d}.{name}" for number, name in enumerate(names)]
    if os.path.basename(path) == _OF_CLASSES:
        return "".join(f"{number + 1} {folder}\n" for number, folder in enumerate(folders)).encode()
    write = _FORMS[os.path.basename(path)]
    rows = [(label, folder, row) for label, folder in enumerate(folders) for row in range(_EACH)]
    return "".join(f"{number + 1} {write(*row)}\n" for number, row in enumerate(rows)).encode()
