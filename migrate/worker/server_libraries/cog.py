"""Cog's predictor class and its inputs, as far as a predictor for images meets them. What asks one is `rehearsal.hosts.cog`."""

# mypy: ignore-errors
# The names, and what their arguments may be, are those of another library.
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

try:
    from pydantic import BaseModel
except ImportError:

    class BaseModel:
        def __init__(self, **values):
            vars(self).update(values)


_Item = TypeVar("_Item")
Secret = str


class Path(type(pathlib.Path())):
    """A file of the request, as the predictor finds it on its disk."""


class File: ...


class Field:
    """What `Input` says of an argument; without a default it is `...`."""

    def __init__(self, default, options):
        self.default, self.options = default, options
        self.choices = options.get("choices")


def Input(default=..., **options) -> Any:  # noqa: N802
    return Field(default, options)


class BasePredictor:
    """What a predictor of the user's is made of; `setup` loads its model."""

    def setup(self, weights=None): ...

    def predict(self, **inputs):
        raise NotImplementedError("predict is not implemented")


class ConcatenateIterator(Iterator[_Item]): ...


class AsyncConcatenateIterator(AsyncIterator[_Item]): ...


def current_scope():
    return None
