"""Why torch.export refused a module: every obstacle on the way, not only the first."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import draft_export

from ...errors import Obstacle
from ..base.silence import silence
from . import source_locations
from .obstacles import fixed_batch, from_exception, value_needed
from .rehearsal import rehearse

_NUMPY = "numpy computes outside of the graph; use torch's own operations"
_ELSEWHERE = "something is computed outside of the capture; look for other threads, numpy, .data and global state"


@contextlib.contextmanager
def printing_suppressed() -> Iterator[None]:
    """torch.export prints partial graphs when it gives up; the obstacle list replaces them."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def diagnose(
    flat: torch.nn.Module, module: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any, error: Exception
) -> list[Obstacle]:
    """Why `flat`, which calls `module`, could not be exported; `error` is what torch.export said.

    What draft_export found comes together with what was heard in a rehearsal. Each line is named once.
    """
    with silence("torch"), printing_suppressed():
        drafted, errors = _drafted(flat, example, shapes)
        heard = rehearse(flat, example)
    values = [value_needed(*place) for kind, place in heard if kind == "value"]
    arrays = [Obstacle("PG122", _NUMPY, *place) for kind, place in heard if kind == "array"]
    batches = [fixed_batch(f" ({kind})", *place) for kind, place in heard if kind not in ("value", "array") and place[0]]
    by_line: dict[source_locations.Place, Obstacle] = {}
    for obstacle in (*arrays, *values, *drafted, *batches):
        by_line.setdefault((obstacle.path, obstacle.line), obstacle)
    for stopped_by in (error, *errors) if errors else ():  # the draft ended early, and what ended it may be one more obstacle
        obstacle = from_exception(stopped_by, code=_code(stopped_by))
        if obstacle.path:
            by_line.setdefault((obstacle.path, obstacle.line), obstacle)
    if by_line:
        return list(by_line.values())
    if "fake tensor in the exported program" in str(error):
        return [Obstacle("PG122", _ELSEWHERE, *source_locations.of_forward(module))]
    return [from_exception(error, code=_code(error), module=module)]


def _drafted(
    flat: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any
) -> tuple[list[Obstacle], Sequence[Exception]]:
    """The obstacles in draft_export's report, or what it raised: it goes on with the example's values as far as it can."""
    try:
        report = draft_export(flat, example, dynamic_shapes=shapes, strict=False)._report
    except Exception as error:  # noqa: BLE001 - it raises what the user's code and its own internals raise
        return [], [error]
    files = {**_interned(), **getattr(report, "str_to_filename", {})}
    found = []
    for failure in getattr(report, "failures", []):
        kind, data = failure.failure_type.name, failure.data
        path, line = _place(data.get("user_stack"), files)
        if kind == "GUARD_ADDED" and data.get("prefix") != "runtime_assert":
            found.append(fixed_batch(f" ({_readable(data)})", path, line))
        elif kind == "DATA_DEPENDENT_ERROR":
            found.append(value_needed(path, line))
        elif kind in ("MISSING_FAKE_KERNEL", "MISMATCHED_FAKE_KERNEL"):
            message = f"the operator {data.get('op')} cannot be traced; register a fake kernel for it"
            found.append(Obstacle("PG122", message, path, line))
    return found, ()


def _code(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    if "DataDependent" in name or "data-dependent" in text or "SymFloat" in text or "SymBool" in text:
        return "PG120"
    return "PG121" if "Constraints violated" in text or "SymInt" in text else "PG122"


def _place(stack: Sequence[Mapping[str, Any]] | None, files: Mapping[int, str]) -> source_locations.Place:
    return source_locations.innermost(
        (files.get(frame.get("filename", -1), ""), int(frame.get("line", 0))) for frame in stack or ()
    )


def _interned() -> dict[int, str]:
    """File names by number, as torch's structured log knows them: a name is logged only the first time in a process."""
    from torch._logging import structured

    table: Mapping[str, int] = getattr(structured, "INTERN_TABLE", {})
    return {number: name for name, number in table.items()}


def _readable(data: Mapping[str, Any]) -> str:
    guard = str(data.get("expr", ""))
    for symbol in data.get("symbol_to_sources", {}):
        guard = guard.replace(str(symbol), "batch")
    return guard
