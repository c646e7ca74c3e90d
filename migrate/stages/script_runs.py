"""Run the scripts of a repository before and after, and note in the report how each fared."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ..proving.loss_trace import TracedLoop, compare_losses, rewritten_loops
from ..proving.measurements import agreements, losses
from ..proving.script_arguments import arguments, evaluating, on_cpu
from ..proving.verify import ScriptRun, compare, run_script, run_training
from ..reading.facts import Script
from ..reporting.report import LossTrace, ScriptReport
from ..resolving.resolved import Resolved
from ..rewriting.rewrite import Change
from .migrated_copy import apply
from .migration import Migration

TRAINING_RULES = frozenset(["PS301", "PS302"])
_REFUSED = re.compile(r"error: (argument .*: )?(invalid|unrecognized|expected)\b")
"""What argparse says of an argument that the script does not take."""
_NO_CUDA = re.compile(r"not compiled with CUDA|no NVIDIA driver|No CUDA GPUs|_cuda_setDevice|on a CUDA device", re.I)
"""What torch says where a script asks for a GPU and there is none."""
_TRAINS = "it trains, and its training loop was not rewritten; only rewritten loops are run"
Originals = Mapping[str, tuple[list[str], ScriptRun]]
"""Script path -> the arguments it was run with, and what it did."""


def run_originals(migration: Migration, resolved: Resolved | None) -> Originals:
    """Run every rewritten script as it was; those that do not run here are left out, with the reason in the report."""
    originals: dict[str, tuple[list[str], ScriptRun]] = {}
    if not migration.options.verify:
        migration.remark("PS403", "the scripts were not run (--no-verify): that they compute the same is unproved", "note")
        return originals
    for script, entry in zip(migration.surveyed.scripts, migration.report.scripts, strict=True):
        if not entry.rewritten:
            entry.why = "nothing in it was rewritten"
            continue
        loops = _trained(migration, script, entry)
        argv = _arguments(script, migration, resolved, trains=bool(loops))
        if isinstance(argv, str):
            entry.why = argv
            continue
        migration.stages.start(f"Running {'the first steps of ' if loops else ''}{script.path}")
        argv, run = _first_run(migration, resolved, script, argv, loops)
        missing = [name for name in ("network", "filesystem") if not run.done.isolation.get(name)]
        if missing:
            migration.remark("PS507", f"this platform lets no process cut itself off from: {', '.join(missing)}", "note")
        if run.done.ok and loops and not run.losses:
            entry.why = "the original took no training step here"
            migration.remark("PS402", f"{entry.why}; so the migrated loop could not be checked", "warning", script.path)
        elif run.done.ok and not loops and not run.sites:
            entry.why = "the original ended without calling the model, so there was nothing to compare"
            migration.remark("PS402", entry.why, "warning", script.path)
        elif run.done.ok:
            originals[script.path] = (argv, run)
        else:
            entry.why = migration.plain(f"the original does not run here: {run.done.why}")
            migration.remark("PS402", f"{entry.why}; so the migrated script could not be checked", "warning", script.path)
    if originals and migration.repairs:
        places = ", ".join(change.path for change in migration.repairs)
        message = (
            f"the scripts were run repaired ({places}) before the migrated ones were: the runs prove what was rewritten after"
        )
        migration.remark("PS404", message, "note")
    return originals


def _first_run(
    migration: Migration, resolved: Resolved | None, script: Script, argv: list[str], loops: Sequence[TracedLoop]
) -> tuple[list[str], ScriptRun]:
    """Run a script as it was; where its arguments stop it, again with others. The arguments last used, and what it did."""
    run = _run(script, argv, migration, loops, migrated=False)
    migration.fresh_tree()
    others: list[str] | str | None = None
    if resolved is not None and script != resolved.script and _REFUSED.search(run.done.why or ""):
        others = _arguments(script, migration, None, trains=bool(loops))  # what the model's script takes, this one may not
    if _NO_CUDA.search(run.done.why or ""):
        others = on_cpu(script, argv)
    if isinstance(others, list) and others != argv:
        argv, run = others, _run(script, others, migration, loops, migrated=False)
        migration.fresh_tree()
    return argv, run


def run_migrated(migration: Migration, changes: Sequence[Change], originals: Originals) -> None:
    """Run the migrated form of each script that ran, with the same arguments in a fresh copy, and compare."""
    for script, entry in zip(migration.surveyed.scripts, migration.report.scripts, strict=True):
        if script.path not in originals:
            continue
        argv, original = originals[script.path]
        migration.stages.start(f"Running the migrated {script.path}")
        migration.fresh_tree()
        apply(changes, migration.tree)
        loops = _trained(migration, script, entry)
        run = _run(script, argv, migration, loops, migrated=True)
        if loops:
            _judge_losses(migration, script, entry, argv, original, run, loops)
            continue
        verdict = compare(original, run)
        migration.report.agreements += agreements(script.path, original.sites, run.sites)
        entry.executed, entry.why = verdict.status, migration.plain(verdict.why) if verdict.why else None
        migration.report.parity_failed |= verdict.parity_failed
        if verdict.status == "failed":
            message = f"the migrated script does not do what the original does: {verdict.why}"
            migration.remark("PS401", message, "error", script.path)


def _trained(migration: Migration, script: Script, entry: ScriptReport) -> list[TracedLoop]:
    return rewritten_loops(migration.surveyed, script) if any(code in TRAINING_RULES for code in entry.rules) else []


def _run(script: Script, argv: list[str], migration: Migration, loops: Sequence[TracedLoop], *, migrated: bool) -> ScriptRun:
    return (
        run_training(script, argv, migration.sandbox, loops, migrated=migrated)
        if loops
        else run_script(script, argv, migration.sandbox)
    )


def _judge_losses(
    migration: Migration,
    script: Script,
    entry: ScriptReport,
    argv: list[str],
    original: ScriptRun,
    run: ScriptRun,
    loops: Sequence[TracedLoop],
) -> None:
    """Compare the losses; where they differ, the original runs once more: one that is drawn anew each time proves nothing."""
    if not run.done.ok:
        entry.executed, entry.why = "failed", migration.plain(f"the migrated script: {run.done.why}")
        migration.remark("PS401", f"the migrated script does not do what the original does: {entry.why}", "error", script.path)
        return
    steps, worst, tolerance, wrong = compare_losses(original.losses, run.losses, loops)
    if wrong is not None:
        migration.fresh_tree()
        again = _run(script, argv, migration, loops, migrated=False)
        if compare_losses(original.losses, again.losses, loops)[3] is not None:
            entry.why = "two runs of the original have different losses, though random numbers start alike"
            migration.remark("PS402", f"{entry.why}; so the migrated loop could not be checked", "warning", script.path)
            return
    migration.report.losses += losses(script.path, original.losses, run.losses)
    entry.executed, entry.why = ("passed", None) if wrong is None else ("failed", wrong)
    entry.loss_trace = LossTrace(
        status=entry.executed, steps=steps, max_relative=worst if math.isfinite(worst) else None, tolerance=tolerance
    )
    if wrong is not None:
        migration.report.parity_failed = True
        migration.remark("PS401", f"the migrated script does not train as the original does: {wrong}", "error", script.path)


def _arguments(script: Script, migration: Migration, resolved: Resolved | None, *, trains: bool) -> list[str] | str:
    known = list(resolved.recipe.get("argv", [])) if resolved is not None else []
    argv = arguments(script, migration.tree, known, data=migration.options.data)
    if trains or "train" not in script.roles or isinstance(argv, str):
        return argv
    return evaluating(script, argv) or _TRAINS
