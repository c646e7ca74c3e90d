"""Queues of tasks, such as Celery: a function that a worker would call is handed a made image, in place of a queue."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from ..requests import ENCODED, Form, forms, speaks_of_images
from ..silent import Silent
from ..stage import Stage
from . import answered, at_its_class, definition, own_values, source_of
from .cloud_functions import Event, events_read

LIBRARIES = ("arq", "celery", "dramatiq", "huey", "procrastinate", "rq", "taskiq")
_DECORATORS = frozenset(["actor", "job", "periodic_task", "shared_task", "task"])


def hosted(stage: Stage) -> list[Any]:
    """The script's tasks, those that speak of images."""
    if not any(name in sys.modules for name in LIBRARIES):
        return []
    found = [value for value in own_values(stage) if _decorator(stage, value) is not None]
    return [value for value in found if speaks_of_images(value.__name__, _plain(value))]


def _plain(task: Any) -> Any:
    """The function of a task, as it was written; an installed library may have made an object of it."""
    made = getattr(task, "run", None) or getattr(task, "fn", None) or getattr(task, "func", None)
    return inspect.unwrap(task if isinstance(task, types.FunctionType) or made is None else made)


def _decorator(stage: Stage, value: Any) -> ast.expr | None:
    if isinstance(value, type) or not callable(value) or not isinstance(getattr(value, "__name__", None), str):
        return None
    node = definition(stage, value)
    for item in node.decorator_list if node is not None else ():
        made = item.func if isinstance(item, ast.Call) else item
        if (made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")) in _DECORATORS:
            return item
    return None


def call(stage: Stage, task: Any) -> None:
    stage.served = True
    function = _plain(task)
    said = {item.arg: item.value for item in getattr(_decorator(stage, task), "keywords", ())}
    asked = inspect.signature(function).parameters.values()
    needed = [item for item in asked if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
    first = []
    if "bind" in said and isinstance(task, types.FunctionType):  # of a library that is not here
        base = vars(sys.modules["__main__"]).get(ast.unparse(said["base"])) if "base" in said else None
        first, needed = [base() if isinstance(base, type) else Silent("task")], needed[1:]

    def told(form: Form) -> Callable[[], Any]:
        def ask() -> Any:
            value = Event(form.make()) if form.name in (*ENCODED, "path") else form.make()
            with events_read():
                return at_its_class(stage, function, None, function, *first, *[value] * len(needed))

        return ask

    answered(stage, f"the task {task.__name__}", [(form.name, told(form)) for form in forms(stage, source_of(stage, function))])
