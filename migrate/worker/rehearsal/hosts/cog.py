"""Cog, as Replicate runs it: a predictor of the user's is set up and predicts for an image in a file."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Sequence
from typing import Any

from ..requests import forms, is_image_key
from ..stage import Stage
from . import answered, at_its_class, own_values, settled

LIBRARY = "cog"
_BLANK = {str: "", int: 1, float: 1.0, bool: False}


def hosted(stage: Stage) -> list[Any]:
    """The predictors that the script defines."""
    library = sys.modules.get("cog")
    kind = getattr(library, "BasePredictor", None)
    if kind is None:
        return []
    defined = [value for value in own_values(stage) if isinstance(value, type) and issubclass(value, kind)]
    return [value for value in defined if not any(value in other.__mro__[1:] for other in defined)]


def call(stage: Stage, kind: Any) -> None:
    stage.served = True
    predictor = kind()
    at_its_class(stage, kind, predictor, predictor.setup)
    names = [item.name for item in _needed(kind)]
    images = [name for name in names if is_image_key(name)] or names[:1]

    def ask() -> Any:
        return at_its_class(stage, kind, predictor, _answer, predictor, _inputs(stage, kind, images))

    answered(stage, f"{kind.__name__} of Cog", [(f"a file as {', '.join(images)}", ask)])


def _needed(kind: Any) -> Sequence[inspect.Parameter]:
    """The inputs of a predictor without a default; all that are files where each has one."""
    every = list(inspect.signature(kind.predict).parameters.values())[1:]
    needed = [item for item in every if _default(item) is ...]
    return needed or [item for item in every if _is_file(kind, item)]


def _default(item: inspect.Parameter) -> Any:
    if item.default is item.empty:
        return ...
    stated = getattr(item.default, "default", item.default)  # what `Input` gives
    return ... if type(stated).__name__ == "PydanticUndefinedType" else stated


def _is_file(kind: Any, item: inspect.Parameter) -> bool:
    """Whether an input is annotated as a file, or as one that may be left out."""
    hint = typing.get_type_hints(kind.predict).get(item.name)
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    library = sys.modules["cog"]
    return any(each in (library.Path, library.File) for each in kinds)


def _inputs(stage: Stage, kind: Any, images: Sequence[str]) -> dict[str, Any]:
    (path,) = (form.make() for form in forms(stage, "") if form.name == "path")
    found = {}
    for item in list(inspect.signature(kind.predict).parameters.values())[1:]:
        choices = getattr(item.default, "choices", None)
        if item.name in images:
            found[item.name] = sys.modules["cog"].Path(path)
        elif _default(item) is not ...:
            found[item.name] = _default(item)
        else:
            hint = typing.get_type_hints(kind.predict).get(item.name)
            found[item.name] = choices[0] if choices else next((_BLANK[each] for each in _BLANK if each is hint), None)
    return found


def _answer(predictor: Any, inputs: dict[str, Any]) -> Any:
    return settled(predictor.predict(**inputs))
