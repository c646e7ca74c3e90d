"""Prove a rewritten training loop by its losses: both forms run the same first steps from the same random numbers.

A loss is noted where the original back-propagates it, or computes it where a round may end before that, and where the migrated
form gets it from its training graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..reading.edits import Edit, Positions, apply_edits
from ..reading.facts import Script, Survey
from ..reading.scopes import Module, Repository, dotted
from ..reading.source import SourceFile, parse_source
from ..rewriting.parallel.training import parallel_trainings
from ..rewriting.rule import Context
from ..rewriting.training_edits import training_calls
from ..survey.loops import TRAINING_STEP
from ..survey.survey import project_index
from .instrument import MODULE

STEPS = 20
FEWEST = 3
RANKS = 2
"""On so many processes a script is run that trains over global tensors."""
SAME_ON_RANKS = 1e-6
"""By what share the loss of all rows may differ from one rank to another, which all have the same sum."""
EXACT, MIXED = 1e-5, 1e-2
"""Relative differences that two losses may have: the same operations in float32; in half precision kernels are chosen anew."""


@dataclass(frozen=True)
class TracedLoop:
    """One rewritten loop: where it is, which number it has in its function, and whether it computes in mixed precision."""

    path: str
    function: str
    number: int
    mixed: bool
    places: tuple[tuple[ast.stmt, str], ...]
    """Statements after which the loss stands in that name."""

    @property
    def site(self) -> str:
        return f"{self.path}:{self.function}:{self.number}"


def rewritten_loops(surveyed: Survey, script: Script, *, parallel: bool = False) -> list[TracedLoop]:
    """The training loops that a script reaches and that the rules rewrite, in the original; `parallel` are those that become
    steps over global tensors."""
    known = project_index(surveyed)
    reached = {(loop.path, loop.call_line, loop.call_column) for loop in script.loops}
    found: list[TracedLoop] = []
    for module in known.repository.modules.values():
        sites = tuple(site for site in known.sites if site.module is module)
        if module.file.text is None or not any(
            (module.path, site.fact.call_line, site.fact.call_column) in reached for site in sites
        ):
            continue
        context = Context(module, surveyed, known, Positions(module.file.text), sites)
        counts: dict[str, int] = {}
        trained = parallel_trainings(context) if parallel else []
        taken = [found.training for found in trained if found.training is not None]
        for call in taken or training_calls(context):
            site, step = call.site, call.step
            if step is None:
                continue
            function = site.fact.function or ""
            counts[function] = counts.get(function, 0) + 1
            if (module.path, site.fact.call_line, site.fact.call_column) in reached:
                mixed = step.cast is not None or any(item.scaler is not None for item in step.backward)
                places = tuple((item.statement, item.loss) for item in step.backward)
                if step.computed_at is not None:  # the rewritten step computes it whether the round goes on or not
                    places = ((step.computed_at, step.backward[0].loss),)
                found.append(TracedLoop(module.path, function, counts[function], mixed, places))
    return found


def migrated_loops(path: str, data: bytes, known: Iterable[TracedLoop]) -> list[TracedLoop]:
    """The same loops in the migrated form of a file."""
    source = parse_source(path, data)
    if source.tree is None:
        return []
    module = Module(source, source.tree, Repository([source]))
    graphs = {
        name
        for node in module.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and module.expand(node.value.func) == TRAINING_STEP
        for target in node.targets
        if (name := dotted(target)) is not None
    }
    counts: dict[str, int] = {}
    found = {}
    calls = [node for node in module.nodes if isinstance(node, ast.Assign) and _called(node.value) in graphs]
    for node in sorted(calls, key=lambda node: node.lineno):
        target = node.targets[0]
        loss = dotted(target.elts[0] if isinstance(target, ast.Tuple) else target)
        if loss is None:
            continue
        function = module.qualified(module.function_of(node)) or ""
        counts[function] = counts.get(function, 0) + 1
        found[function, counts[function]] = (node, loss)
    return [
        TracedLoop(path, loop.function, loop.number, loop.mixed, (found[loop.function, loop.number],))
        for loop in known
        if loop.path == path and (loop.function, loop.number) in found
    ]


def note_losses(tree: Path, loops: Sequence[TracedLoop], *, migrated: bool) -> None:
    """Instrument the files of these loops below `tree` in place, without moving a line."""
    for path in sorted({loop.path for loop in loops}):
        file = tree / path
        data = file.read_bytes()
        there = [loop for loop in loops if loop.path == path]
        there = migrated_loops(path, data, there) if migrated else there
        file.write_bytes(_noted(parse_source(path, data), there))


def _noted(source: SourceFile, loops: Iterable[TracedLoop]) -> bytes:
    if source.text is None:
        return source.data
    positions = Positions(source.text)
    edits = []
    for loop in loops:
        for statement, loss in loop.places:
            _, end = positions.span(statement)
            edits.append(Edit(end, end, f'; __import__("{MODULE}").note_loss({loop.site!r}, {loss}, {STEPS})'))
    return source.encode(apply_edits(source.text, edits))


@dataclass(frozen=True, kw_only=True)
class LossComparison:
    """Steps compared, the largest relative difference between losses, and in words what is wrong, if anything."""

    steps: int
    max_relative: float
    tolerance: float
    wrong: str | None = None


def compare_losses(
    original: Mapping[str, np.ndarray], migrated: Mapping[str, np.ndarray], loops: Sequence[TracedLoop]
) -> LossComparison:
    tolerance = tolerance_of(loops)
    steps, worst, wrong = 0, 0.0, None
    for site, before in original.items():
        after = migrated.get(site, np.empty(0))
        count = min(len(before), len(after))
        if count < min(FEWEST, len(before)):
            wrong = f"the migrated loop {site} took {len(after)} steps, the original {len(before)}"
            break
        difference = relative(before, after)
        steps += count
        worst = max(worst, float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)))
        if worst > tolerance:
            step = int(np.argmax(~(difference <= tolerance)))
            wrong = f"the loss of step {step + 1} is {after[step]:.7g} instead of {before[step]:.7g}"
            break
    return LossComparison(steps=steps, max_relative=worst, tolerance=tolerance, wrong=wrong)


def of_all_ranks(ranks: Sequence[Mapping[str, np.ndarray]], *, whole: bool) -> tuple[dict[str, np.ndarray], str | None]:
    """The losses of the rows of all ranks, by loop, and in words what is wrong with them, if anything.

    As the original has them each rank's is that of its own rows, and theirs is the mean, for as many rows each. Where each
    rank's is `whole`, that of all rows, it must be the same on all.
    """
    found: dict[str, np.ndarray] = {}
    for site in ranks[0]:
        traces = [losses.get(site, np.empty(0)) for losses in ranks]
        if len({len(trace) for trace in traces}) != 1:
            taken = ", ".join(f"{len(trace)} on rank {rank}" for rank, trace in enumerate(traces))
            return found, f"the ranks took different numbers of steps in {site}: {taken}"
        found[site] = np.mean(traces, axis=0)
        for rank, trace in enumerate(traces[1:], start=1):
            apart = relative(traces[0], trace)
            if whole and (far := ~(apart <= SAME_ON_RANKS)).any():
                step = int(np.argmax(far))
                values = f"{traces[0][step]:.7g} on rank 0 and {trace[step]:.7g} on rank {rank}"
                return found, f"the loss of step {step + 1} at {site} is that of all ranks' rows, and is {values}"
    return found, None


def tolerance_of(loops: Sequence[TracedLoop]) -> float:
    return MIXED if any(loop.mixed for loop in loops) else EXACT


def relative(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """By how much the losses of the steps that both took differ."""
    count = min(len(before), len(after))
    one, other = before[:count], after[:count]
    with np.errstate(invalid="ignore"):
        difference: np.ndarray = np.abs(one - other) / np.maximum(np.abs(one), 1e-6)
    difference[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0  # infinite alike is alike
    return difference


def _called(value: ast.expr) -> str | None:
    if isinstance(value, ast.Subscript):
        value = value.value
    return dotted(value.func) if isinstance(value, ast.Call) else None
