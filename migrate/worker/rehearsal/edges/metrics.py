"""Metrics of torchmetrics as scripts made them before 0.11, without a task: as many classes as the script tells apart."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from ..making import Maker
from ..stage import Stage

_GONE = ("compute_on_step", "mdmc_average", "mdmc_reduce", "multiclass", "subset_accuracy", "reduce", "is_multiclass")
"""Arguments that they took then."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    stage.when_imported("torchmetrics.classification", lambda library: _classes(stage, library))
    for name in ("torchmetrics.functional.classification", "torchmetrics.functional"):
        stage.when_imported(name, lambda library: _functions(stage, library))
    yield


def _classes(stage: Stage, library: Any) -> None:
    for name, kind in vars(library).items():
        if isinstance(kind, type) and "__new__" in vars(kind) and "task" in inspect.signature(kind.__new__).parameters:
            stage.patch(kind, "__new__", staticmethod(_made(stage, name, kind.__new__)))


def _made(stage: Stage, name: str, original: Any) -> Any:
    def make(own: Any, *args: Any, **named: Any) -> Any:
        if not args and "task" in named:
            return original(own, **named)
        if args and isinstance(args[0], str):
            return original(own, *args, **named)
        threshold = {"threshold": args[0]} if args and isinstance(args[0], float) else {}
        count = {"num_classes": args[0]} if args and isinstance(args[0], int) else {}
        metric = original(own, **_task(stage, name, {**threshold, **count, **named}, None))
        # A collection calls its metrics by their classes, and callbacks ask for them so: by the name that was written.
        metric.__class__ = type(name, (type(metric),), {"__module__": type(metric).__module__})
        return metric

    return make


def _functions(stage: Stage, library: Any) -> None:
    for name, function in list(vars(library).items()):
        if callable(function) and not isinstance(function, type) and _takes_task(function):
            stage.wrap(library, name, _called(stage, name))


def _takes_task(function: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return list(inspect.signature(function).parameters)[:3] == ["preds", "target", "task"]
    return False


def _called(stage: Stage, name: str) -> Any:
    def call(original: Any, preds: Any, target: Any, *args: Any, **named: Any) -> Any:
        if args or "task" in named:
            return original(preds, target, *args, **named)
        width = int(preds.shape[1]) if preds.dim() > target.dim() else None
        return original(preds, target, **_task(stage, name, named, width))

    return call


def _task(stage: Stage, name: str, named: dict[str, Any], width: int | None) -> dict[str, Any]:
    """The arguments with the task that they meant: several labels at once where as many are said, else one of the classes."""
    named = {key: value for key, value in named.items() if key not in _GONE}
    if named.get("num_labels"):
        return {**named, "task": "multilabel"}
    classes = named.get("num_classes") or width or Maker(stage).classes
    if classes == 1:
        named.pop("num_classes", None)
        return {**named, "task": "binary"}
    stage.note("metrics", f"torchmetrics' {name} has no task: one of {classes} classes, as older versions took it")
    return {**named, "task": "multiclass", "num_classes": classes}
