"""Run the migrated forms of a repository's scripts, and judge each by what the original did."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...proving.confined_run import Completed
from ...proving.loss_trace import TracedLoop, compare_losses
from ...proving.measurements import Agreement, Losses, agreements, losses
from ...proving.rehearsal_protocol import StandIn
from ...proving.verify import ScriptRun, compare, ends_otherwise, obstacle_in, stopped_at
from ...reading.facts import Script
from ...reporting.report import ExecutedOn, LossTrace, Outcome
from ...rewriting.rewrite import Change
from ..migrated_copy import apply
from ..migration import Migration
from .originals import OriginalRun, Originals, no_time, run_once, trained_loops, within_time
from .unsteady import fed_by_rounding, trained_by_rounding, unless_unsteady

_NEAR = 0.4
"""Of the time limit: an original that takes so long may well be stopped when it compiles a graph first."""
_BUSY = 2.0
"""Processes for each core that make any run take several times as long."""


@dataclass(frozen=True, kw_only=True)
class ScriptOutcome:
    """How a script's migrated form fared against the original."""

    status: Outcome
    why: str | None = None
    parity_failed: bool = False
    executed_on: ExecutedOn | None = None
    standins: Sequence[StandIn] = ()
    loss_trace: LossTrace | None = None
    up_to: str | None = None
    """Where the same error stopped both, if it did."""
    only_prints: bool = False
    """Whether neither outputs nor losses were there to compare."""
    uncaptured: str | None = None
    """Why its model cannot become a graph, where that alone stopped it."""
    agreements: Sequence[Agreement] = ()
    losses: Sequence[Losses] = ()


def run_migrated(
    migration: Migration, changes: Sequence[Change], originals: Originals, *, last: bool = False
) -> dict[str, ScriptOutcome]:
    """Run the migrated form of each script that ran, with the same arguments in a fresh copy, and compare.

    Unless these are the `last` changes, one that stops because its model cannot become a graph is not judged: it may be left
    eager.
    """
    outcomes: dict[str, ScriptOutcome] = {}
    scripts = {script.path: script for script in migration.surveyed.scripts}
    whole, started = migration, time.monotonic()
    for path, original in originals.runs.items():  # in the order in which those were run
        script = scripts[path]
        limited = within_time(whole, started, first=not outcomes)
        if limited is None:
            outcomes[path] = ScriptOutcome(status="not-run", why=no_time(script, started))
            continue
        migration = limited
        migration.stages.start(f"Running the migrated {script.path}")
        migration.fresh_tree()
        apply(changes, migration.tree)
        loops = trained_loops(migration, script)
        # torchrun gives a script no option for its number.
        argv = [word for word in original.argv if "{rank}" not in word]
        run = run_once(script, argv, migration, loops, migrated=True, **original.migrated)
        if why := _too_near(original.run.done, run.done, short=limited is not whole):
            migration.remark("PS402", f"{why}; so the migrated script could not be checked", "warning", script.path)
            outcomes[script.path] = ScriptOutcome(status="not-run", why=why)
            continue
        why = _compiles_too_long(migration, changes, script, original, run) if not loops else None
        if why is not None:
            migration.remark("PS402", f"{why}; so its graph could not be checked", "warning", script.path)
            outcomes[script.path] = ScriptOutcome(status="not-run", why=why)
            continue
        if not last and (obstacle := obstacle_in(run.done.stderr if not run.done.ok else None)) is not None:
            obstacle = migration.plain(obstacle)
            outcomes[script.path] = ScriptOutcome(status="failed", why=obstacle, uncaptured=obstacle)
            continue
        if original.run.losses:
            outcome = _judge_losses(migration, script, original, run, loops)
            outcomes[script.path] = replace(outcome, executed_on=original.executed_on, standins=original.standins)
            continue
        verdict = compare(original.run, run)
        if verdict.status == "failed" and (run.done.ok or not original.run.done.ok):
            migration.fresh_tree()
            again = run_once(script, original.argv, migration, loops, migrated=False, **original.again)
            repeated = compare(original.run, again)
            if repeated.status == "failed" and ends_otherwise(original.run, again) is None and original.run.sites:
                verdict = compare(original.run, run, again)
            if repeated.status == "failed" and verdict.status == "failed":
                why = f"two runs of the original differ: {repeated.why}"
                migration.remark("PS402", f"{why}; so the migrated script could not be checked", "warning", script.path)
                outcomes[script.path] = ScriptOutcome(status="not-run", why=migration.plain(why))
                continue
            if verdict.status == "failed":
                verdict = unless_unsteady(migration, script, original, run, verdict)
            if verdict.status == "failed" and (why := fed_by_rounding(migration, script, original, run)) is not None:
                migration.remark("PS409", why, "warning", script.path)
                outcomes[script.path] = ScriptOutcome(status="not-run", why=migration.plain(why))
                continue
        if verdict.status == "failed":
            message = f"the migrated script does not do what the original does: {verdict.why}"
            migration.remark("PS401", message, "error", script.path)
        stopped = _compared_until(migration, script, original) if verdict.status == "passed" else None
        why = verdict.why or (stopped[1] if stopped is not None else None)
        outcomes[script.path] = ScriptOutcome(
            status=verdict.status,
            why=migration.plain(why) if why is not None else None,
            up_to=stopped[0] if stopped is not None else None,
            only_prints=verdict.status == "passed" and not original.run.sites,
            parity_failed=verdict.parity_failed,
            executed_on=original.executed_on,
            standins=original.standins,
            agreements=agreements(script.path, original.run.sites, run.sites),
        )
    return outcomes


def _compared_until(migration: Migration, script: Script, original: OriginalRun) -> tuple[str, str] | None:
    """Where a script was stopped before and after alike, and what is to be said of that; None where it came to its end."""
    rehearsal = original.run.rehearsal
    if stopped_at(original.run) is None or rehearsal is None or rehearsal.where is None:
        return None
    remedy = f"; {rehearsal.remedy}" if rehearsal.remedy is not None else ""
    why = f"compared up to {rehearsal.where}, where the original and the migrated script are both stopped: {rehearsal.why}"
    migration.remark("PS406", f"{why}{remedy}", "warning", script.path)
    return rehearsal.where, migration.plain(f"{why}{remedy}")


def _too_near(original: Completed, migrated: Completed, *, short: bool) -> str | None:
    """Why a migrated script that was stopped at the time limit failed at nothing: compiling a graph takes its time as well.
    `short` says that the limit was less than what the caller gives a run."""
    if migrated.stopped != "timeout":
        return None
    said = f"the migrated script was stopped after {migrated.seconds:.0f} s, "
    if short:
        return f"{said}when the time for other scripts than the model's own was over; --entry runs it first"
    if original.seconds >= _NEAR * migrated.seconds:
        return f"{said}the time limit, and the original took {original.seconds:.0f} s of it: too near the limit to tell"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > _BUSY * cores:
        return f"{said}the time limit, while the machine did much other work (load {load:.0f}, {cores} cores): too slow to tell"
    return None


def _compiles_too_long(
    migration: Migration, changes: Sequence[Change], script: Script, original: OriginalRun, run: ScriptRun
) -> str | None:
    """Why a migrated script that was stopped at the time limit did nothing else than the original: here a graph is compiled at
    the first call, so that it is proved, and for a user once that pays; and without graphs it does what the original does."""
    if run.done.stopped != "timeout":
        return None
    migration.fresh_tree()
    apply(changes, migration.tree)
    eager = run_once(script, original.argv, migration, (), migrated=True, compiles=False, **original.again)
    if compare(original.run, eager).status != "passed":
        return None
    return (
        f"compiling the migrated script's graph takes longer than the time limit, {run.done.seconds:.0f} s; without its graph "
        f"it does what the original does, in {eager.done.seconds:.0f} s"
    )


def _judge_losses(
    migration: Migration, script: Script, original: OriginalRun, run: ScriptRun, loops: Sequence[TracedLoop]
) -> ScriptOutcome:
    """Compare the losses; where they differ, the original runs once more: one that is drawn anew each time proves nothing."""
    ended = ends_otherwise(original.run, run)
    if ended is not None:
        why = migration.plain(ended)
        migration.remark("PS401", f"the migrated script does not do what the original does: {why}", "error", script.path)
        return ScriptOutcome(status="failed", why=why)
    before = original.run.losses
    found = compare_losses(before, run.losses, loops)
    if run.ranks_differ is not None:
        found = replace(found, wrong=run.ranks_differ)
    if found.wrong is not None:
        migration.fresh_tree()
        again = run_once(script, original.argv, migration, loops, migrated=False, **original.again)
        if compare_losses(before, again.losses, loops).wrong is not None:
            why = "two runs of the original have different losses, though random numbers start alike"
            migration.remark("PS402", f"{why}; so the migrated loop could not be checked", "warning", script.path)
            return ScriptOutcome(status="not-run", why=why)
        several = original.migrated_on.ranks > 1
        rounding = None if several else trained_by_rounding(migration, script, original, run, loops)
        if rounding is not None:
            migration.remark("PS409", rounding, "warning", script.path)
            return ScriptOutcome(status="not-run", why=rounding)
        message = f"the migrated script does not train as the original does: {found.wrong}"
        migration.remark("PS401", message, "error", script.path)
    status: Outcome = "passed" if found.wrong is None else "failed"
    stopped = _compared_until(migration, script, original) if status == "passed" else None
    worst = found.max_relative if math.isfinite(found.max_relative) else None
    return ScriptOutcome(
        status=status,
        why=found.wrong or (stopped[1] if stopped is not None else None),
        up_to=stopped[0] if stopped is not None else None,
        parity_failed=found.wrong is not None,
        loss_trace=LossTrace(
            status=status, steps=found.steps, max_relative=worst, tolerance=found.tolerance, ranks=original.migrated_on.ranks
        ),
        losses=losses(script.path, before, run.losses),
    )
