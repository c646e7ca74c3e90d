"""How many classes the weights in a file tell apart, for a model that is built with as many as its library's own weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from .checkpoint import shapes, stripped


def classes_in(build: Callable[[], torch.nn.Module], path: str | Path, classes: int) -> int:
    """As many as the checkpoint's layers have outputs where the model, as `build` makes it, has `classes`; `classes` itself
    where nothing else fits, and whoever loads the file says what is wrong."""
    with torch.device("meta"):
        own = {name: tuple(value.shape) for name, value in build().state_dict().items()}
    stored = stripped(shapes(path) or {}, set(own))
    differing = [(shape, stored[name]) for name, shape in own.items() if name in stored and stored[name] != shape]
    heads = {found[:1] for shape, found in differing if shape[:1] == (classes,) and shape[1:] == found[1:]}
    return heads.pop()[0] if len(heads) == 1 and all(shape[:1] == (classes,) for shape, _ in differing) else classes
