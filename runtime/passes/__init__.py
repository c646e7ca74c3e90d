"""Pure rewrites of a captured graph: one pass, one file, found by its file name, proved after it ran.

Each module here has one module-level `PASS`. It must hold in exact arithmetic: it is proved by applying it to a float64 copy of
the graph and comparing the results.
Passes that a target asks for (`lowering`) run by the same runner. They round, so the plan's parity gate is their proof.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import replace

import torch

from ...errors import BackendError
from ..base.numerics import fresh_rows, largest_difference
from ..base.passes import Pass, PassRecord
from ..capture.capture import CapturedGraph
from ..capture.graph_obstacles import writes_to_its_own
from ..capture.programs import computing, in_float64

_EXACT = 1e-9
_ROWS = (2, 1)  # of the first draw, so that rows that mix are seen, and of the second: float64 takes longest here


@functools.cache
def discover() -> tuple[Pass, ...]:
    """Every pass in this folder, in order. Raises BackendError when two have one name."""
    files = (item.name for item in pkgutil.iter_modules(__path__) if not item.name.startswith("_"))
    found: list[Pass] = [importlib.import_module(f".{name}", __name__).PASS for name in files]
    names = [item.name for item in found]
    if len(set(names)) != len(names):
        raise BackendError(f"two passes have one name in {sorted(names)}; rename one")
    return tuple(sorted(found, key=lambda item: (item.order, item.name)))


def run_passes(
    captured: CapturedGraph, passes: Sequence[Pass] | None = None, *, target: str = ""
) -> tuple[CapturedGraph, tuple[PassRecord, ...]]:
    """Apply the passes in order, but for those that the graph has `disabled`; by default those of this folder.

    Each result is kept only if it is proved, and a pass that fails leaves the graph as it was. With a `target`, such as
    "inductor bf16", they are lowering passes: nothing is proved here, and an error in one is the target's.
    """
    records = []
    for item in discover() if passes is None else sorted(passes, key=lambda item: item.order):
        if item.name in captured.disabled:
            record = PassRecord(name=item.name, status="disabled")
        elif target:
            captured, record = _lower(item, captured, target)
        else:
            captured, record = _prove(item, captured)
        records.append(record)
    return captured, tuple(records)


def _lower(item: Pass, captured: CapturedGraph, target: str) -> tuple[CapturedGraph, PassRecord]:
    rewritten = item.apply(captured)
    if rewritten is captured:
        return captured, PassRecord(name=item.name, status="unchanged", why=f"for {target}")
    if why := writes_to_its_own(rewritten.program):
        raise BackendError(f"the pass {item.name} makes a graph that keeps state: {why}")
    return _applied(item, captured, rewritten), PassRecord.of_target(item.name, target)


def _applied(item: Pass, captured: CapturedGraph, rewritten: CapturedGraph) -> CapturedGraph:
    return replace(rewritten, passes=(*captured.passes, item.name))


def _prove(item: Pass, captured: CapturedGraph) -> tuple[CapturedGraph, PassRecord]:
    try:
        rewritten = item.apply(captured)
        if rewritten is captured:
            return captured, PassRecord(name=item.name, status="unchanged")
        if why := writes_to_its_own(rewritten.program):
            return captured, PassRecord(name=item.name, status="rejected", why=why)
        difference = _difference_in_float64(item, captured)
    except Exception as error:  # noqa: BLE001 - a broken pass must cost speed only; the record says what happened
        return captured, PassRecord(name=item.name, status="rejected", why=f"{type(error).__name__}: {error}")
    if not difference <= _EXACT:
        why = f"outputs differ by {difference:.1e} of their range in float64, more than {_EXACT:.0e}"
        return captured, PassRecord(name=item.name, status="rejected", difference=difference, why=why)
    return _applied(item, captured, rewritten), PassRecord(name=item.name, status="applied", difference=difference)


def _difference_in_float64(item: Pass, captured: CapturedGraph) -> float:
    exact = replace(captured, program=in_float64(captured.program))
    rewritten = item.apply(exact)
    before, after = computing(exact.program), computing(rewritten.program)
    drawn = [
        [fresh_rows(value, rows, seed=seed + index) for index, value in enumerate(captured.example)]
        for rows, seed in zip(_ROWS, (0, len(captured.example)), strict=True)
    ]
    first, others = ([value.double() if value.is_floating_point() else value for value in rows] for rows in drawn)
    with torch.no_grad():
        wanted = before(*first)
        pairs = [*zip(wanted, after(*first), strict=True), *zip(before(*others), after(*others), strict=True)]
        pairs += zip(wanted, after(*first), strict=True)  # again after other rows: a graph keeps no state
    return max(largest_difference(a, b) for a, b in pairs)
