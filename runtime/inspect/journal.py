"""What a graph says of its own doings, as loud as `Graph.debug` asked: captures, plans, measurements, operations.

Everything goes to the logger "headrace.graph", whose level and handlers stay the user's: how loud one graph is, is kept with
that graph. Where no handler is configured at all, a loud graph writes to stderr.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from ..artifact.plan import Plan
from ..base.passes import PassRecord
from ..capture.source_locations import of_node
from .plan_table import plan_table

log = logging.getLogger("headrace.graph")

LEVELS = (0, 1, 2, 3)
_WIDTH = 200


class Journal:
    """The voice of one graph, whose name stands before all it says. Level 0 says nothing but warnings."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.level = 0
        self._own = logging.NullHandler()  # type: logging.Handler

    def set(self, level: int) -> None:
        """Raises ValueError for a level that there is not."""
        if level not in LEVELS or isinstance(level, bool):
            raise ValueError(
                f"level must be one of {', '.join(map(str, LEVELS))} (off, captures, measurements, operations); got {level!r}"
            )
        self.level = level
        self._own = logging.StreamHandler() if level else logging.NullHandler()
        self._own.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def report(self, level: int, message: str) -> None:
        """Say it if the graph is that loud, whatever the logger's own level: somebody called `debug` to hear it."""
        severity = logging.INFO if level == 1 else logging.DEBUG
        if self.level < level or log.manager.disable >= severity:
            return
        path, line, function, _ = log.findCaller(stacklevel=2)
        record = log.makeRecord(log.name, severity, path, line, f"{self.title}: {message}", (), None, function)
        (log if log.hasHandlers() else self._own).handle(record)

    def warn(self, message: str) -> None:
        """Say it as any library warns, at every level of `debug`."""
        log.warning("%s: %s", self.title, message)


def passes_text(records: Iterable[PassRecord]) -> str:
    """ "fold_batch_norm applied, fold_constants unchanged"; why a pass was rejected is added."""
    return ", ".join(f"{item.name} {item.status}{f' ({item.why})' if item.why else ''}" for item in records) or "none"


def plan_text(plan: Plan, buckets: Iterable[int]) -> str:
    """The winner per bucket, and among how many candidates."""
    parts = []
    for bucket in buckets:
        measured = [item for item in plan.measurements if item.bucket == bucket]
        won = next((item for item in measured if item.status == "won"), None)
        time = f" ({won.median_ms:.3g} ms, best of {len(measured)} candidates)" if won is not None and won.median_ms else ""
        parts.append(f"batch {bucket} by {plan.choices[bucket]}{time}")
    return ", ".join(parts)


def measurements_text(plan: Plan) -> str:
    """Every candidate's measurement, as `headrace tune` prints them."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=_WIDTH).print(plan_table(plan.to_json()))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def operations_text(nodes: Iterable[Node]) -> str:
    """A line for each operation, the user's own file and line first where they are known."""
    lines = []
    for node in nodes:
        if node.op == "call_function":
            path, line = of_node(node)
            arguments = ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])
            lines.append(f"  {f'{path}:{line}: ' if path else ''}{node.name} = {_name(node.target)}({arguments})")
    return "\n".join(lines)


def _name(target: Any) -> str:
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
