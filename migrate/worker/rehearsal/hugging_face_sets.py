"""Data sets of Hugging Face that are not in the cache: rows of made images and their classes, in the usual splits."""

from __future__ import annotations

import ast
from typing import Any

from .hints import path_of, sources
from .making import Maker, photo
from .stage import Stage

ROWS = 32
_IMAGES = ("image", "img", "pixel_values", "images", "picture", "photo")
_LABELS = ("label", "labels", "fine_label", "target", "category", "class")
_MADE = "made rows"
"""By which a data set is known that was made, and all that is taken of it: a script that runs a second time has it at hand."""
_SPLITS = ("train", "validation", "test")


def install(stage: Stage, maker: Maker, datasets: Any) -> None:
    """Let `load_dataset` give made rows where it cannot have the real ones. Another module of that name may be the user's."""

    def load(original: Any, path: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(path, *args, **named)
        except Exception:  # noqa: BLE001 - whatever the library raises for what it cannot fetch
            stage.note("data", f"the data set {path} of Hugging Face")
            split = named.get("split")
            made = datasets.DatasetDict({name: _rows(stage, maker, datasets, name) for name in _SPLITS})
            if split is None:
                return made
            names = [str(item).partition("[")[0] for item in (split if isinstance(split, list) else [split])]
            parts = [made.get(name, made["train"]) for name in names]
            parts = [part.to_iterable_dataset() for part in parts] if named.get("streaming") else parts
            return parts if isinstance(split, list) else parts[0]

    def split(original: Any, own: Any, test_size: Any = None, train_size: Any = None, *args: Any, **named: Any) -> Any:
        sizes = [size for size in (test_size, train_size) if type(size) is int]
        if own.info.description == _MADE and sum(sizes) >= len(own):
            stage.note("data", f"{len(own)} rows were split in halves where {' and '.join(map(str, sizes))} are asked for")
            test_size, train_size = 0.5, None
        return original(own, test_size, train_size, *args, **named)

    if hasattr(datasets, "ClassLabel"):
        stage.wrap(datasets, "load_dataset", load)
        stage.wrap(datasets.Dataset, "train_test_split", split)


def _rows(stage: Stage, maker: Maker, datasets: Any, split: str) -> Any:
    """Rows with the columns by whose names the sources take something."""
    said = {
        node.value
        for tree in sources(stage.root, path_of(stage.root, stage.request.script))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    asked = stage.learned.get("columns", ())
    images = [name for name in _IMAGES if name in asked] or [name for name in _IMAGES[:2] if name in said] or [_IMAGES[0]]
    labels = [name for name in _LABELS if name in said or name in asked] or [_LABELS[0]]
    kinds = {images[0]: datasets.Image(), **{name: datasets.ClassLabel(names=maker.names) for name in labels}}
    values: dict[str, list[Any]] = {images[0]: [photo(f"{split}{row}", maker.size) for row in range(ROWS)]}
    values |= {name: [row % maker.classes for row in range(ROWS)] for name in labels}
    made = datasets.DatasetInfo(description=_MADE, features=datasets.Features(kinds))
    return datasets.Dataset.from_dict(values, features=made.features, info=made)
