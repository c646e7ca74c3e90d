"""Run the scripts of a repository as they were, with what is here or with stand-ins, and say what keeps one from running."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from ...proving.loss_trace import RANKS, TracedLoop, rewritten_loops
from ...proving.record import ROWS as RECORDED_ROWS
from ...proving.rehearsal_protocol import WANTING, StandIn, kept_in, saved_by_training
from ...proving.verify import (
    ONE,
    Nudge,
    Processes,
    ScriptRun,
    is_telling,
    run_script,
    run_training,
    stopped_at,
)
from ...proving.visible_files import remedy
from ...reading.facts import Script, Survey
from ...reporting.report import ExecutedOn
from ...resolving.ranking import documented_arguments, ranked
from ...resolving.resolved import Resolved
from ...resolving.task import may_have_labels
from ...survey.survey import project_index
from ..migration import Migration
from .arguments import MADE_IMAGE, arguments, carried, evaluating, on_cpu

DISTRIBUTED, REPLICATED = "PS304", "PS305"
TRAINING_RULES = frozenset(["PS301", "PS302", DISTRIBUTED, REPLICATED])
OTHERS_SECONDS = 240.0
"""After so long no further script is run than those that were, neither as they were nor migrated: somebody waits for it,
however busy the machine is."""
_LEAST_SECONDS = 60.0
"""What a script that is run may take at least, though the time for all ends before."""
_NOT_HERE = frozenset(["arguments", "data", "device", "functions", "libraries", "network", "processes", "servers"])
"""Edges at which a script that needs a stand-in does not run without."""
_SERVERS = frozenset(
    ("aiogram", "aiohttp", "bottle", "dash", "discord", "fastapi", "flask", "gradio", "nicegui", "panel", "quart", "sanic",
     "socketserver", "telebot", "telegram", "tornado", "uvicorn", "waitress")
)  # fmt: skip
"""Libraries by which a script answers others and comes to no end: without stand-ins it would be waited for in vain."""
_ARGUMENT_REJECTED = re.compile(r"error: (argument .*: )?(invalid|unrecognized|expected)\b")
"""What argparse says of an argument that the script does not take."""
_NO_CUDA = re.compile(r"not compiled with CUDA|no NVIDIA driver|No CUDA GPUs|_cuda_setDevice|on a CUDA device", re.I)
"""What torch says where a script asks for a GPU and there is none."""
_ROWS = 128
"""Of a data set stand for all of it: outputs are compared on half as many, and int8 is fitted and judged with all."""
_ROW_VALUES = 3 * 224 * 224
"""Of the inputs for which these rows are enough; there are more of smaller ones, up to what is recorded."""
_TRAINS = "it trains, and its training loop was not rewritten; only rewritten loops are run"


class Again(TypedDict):
    """What `run_once` is to be given so that a run finds what the original did."""

    made: Path | None
    learned: str | None
    rows: int | None
    processes: Processes


@dataclass(frozen=True, kw_only=True)
class OriginalRun:
    """The arguments that a script was run with, and what it did."""

    argv: Sequence[str]
    run: ScriptRun
    made: Path | None = None
    """What its stand-ins are made of, where it was rehearsed."""
    rows: int | None = None
    """The rows that stand for all of a longer data set; None where it ran on the whole."""
    processes: Processes = ONE
    """On which it ran,"""
    migrated_on: Processes = ONE
    """and on which the migrated script is to run."""

    @property
    def executed_on(self) -> ExecutedOn:
        """Whose data the script read: an image that was made for its argument is not the user's either."""
        rehearsal = self.run.rehearsal
        own = rehearsal.user_data if rehearsal is not None else not any(MADE_IMAGE in argument for argument in self.argv)
        return "your data" if own else "stand-in data"

    @property
    def again(self) -> Again:
        """How it is run once more, or the migrated script is. What its rehearsal had learned when it ended is part of that:
        others of the same folder, as when its transform is traced, learn more, of which these runs are to know nothing."""
        learned = self.run.rehearsal.learned if self.run.rehearsal is not None else None
        return {"made": self.made, "learned": learned, "rows": self.rows, "processes": self.processes}

    @property
    def migrated(self) -> Again:
        """How the migrated script is run."""
        return {**self.again, "processes": self.migrated_on}

    @property
    def standins(self) -> tuple[StandIn, ...]:
        return self.run.rehearsal.standins if self.run.rehearsal is not None else ()


@dataclass(frozen=True, kw_only=True)
class Originals:
    """The scripts as they were, by path: what those did that ran to an end, and why the others were not run or did not run."""

    runs: Mapping[str, OriginalRun] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    unchanged: Mapping[str, OriginalRun] = field(default_factory=dict)
    """What the model's own script did where nothing in it was rewritten: its package is held to that all the same."""

    def of(self, script: str) -> OriginalRun | None:
        return self.runs.get(script) or self.unchanged.get(script)

    def on_own_data(self, script: str) -> bool:
        """Whether a script ran on nothing but the user's data."""
        found = self.of(script)
        return found is not None and found.executed_on == "your data"


def run_originals(migration: Migration, resolved: Resolved | None) -> Originals:
    """Run every rewritten script as it was; what keeps one from running here is remarked."""
    if not migration.options.verify:
        migration.remark("PS403", "the scripts were not run (--no-verify): that they compute the same is unproved", "note")
        return Originals()
    if not migration.options.planned and not migration.options.scripts and _seen_whole(resolved):
        return Originals()
    own = resolved.script.path if resolved is not None and resolved.script is not None else None
    if not migration.surveyed.scripts:
        why = (
            "no script was found that calls a model"
            if own is None
            else f"no call of the model of {own} is one that rules rewrite"
        )
        migration.remark("PS408", f"{why}, so none was run before and after: only the package is proved", "note")
    runs: dict[str, OriginalRun] = {}
    why_not: dict[str, str] = {}
    stopped: dict[str, str] = {}
    unchanged: dict[str, OriginalRun] = {}
    started = time.monotonic()
    for script in sorted(ranked(migration.surveyed, migration.surveyed.scripts), key=lambda script: script.path != own):
        if script.path not in migration.rewritten:
            why_not[script.path] = "nothing in it was rewritten"
            if script.path == own and (found := _unchanged(migration, resolved, script)) is not None:
                unchanged[script.path] = found
            continue
        limited = within_time(migration, started, first=not runs and not stopped)
        if limited is None:
            why_not[script.path] = no_time(script, started)
            continue
        original: OriginalRun | str | None = None
        if not _needs_stand_ins(migration, script) and not _on_several(migration, script):
            original = _as_its_user(limited, resolved, script)
        if not isinstance(original, OriginalRun):
            original = _rehearsed(limited, resolved, script, original)
        if isinstance(original, OriginalRun):
            runs[script.path] = original
        else:
            stopped[script.path] = original
    for script in migration.surveyed.scripts:
        if WANTING in stopped.get(script.path, "") and saved_by_training(kept_in(migration.scratch / "cache", "", ())):
            again = _rehearsed(migration, resolved, script, None)  # another script has saved meanwhile what this one looked for
            if isinstance(again, OriginalRun):
                runs[script.path] = again
                del stopped[script.path]
    for path, why in stopped.items():
        migration.remark("PS402", f"{why}; so the migrated script could not be checked", "warning", path)
    if runs and migration.repairs:
        places = ", ".join(change.path for change in migration.repairs)
        message = (
            f"the scripts were run repaired ({places}) before the migrated ones were: the runs prove what was rewritten after"
        )
        migration.remark("PS404", message, "note")
    return Originals(runs=runs, why_not=why_not | stopped, unchanged=unchanged)


def _needs_stand_ins(migration: Migration, script: Script) -> bool:
    return bool(_NOT_HERE & migration.stood_in.get(script.path, frozenset())) or serves(migration.surveyed, script)


def serves(surveyed: Survey, script: Script) -> bool:
    """Whether a script imports what answers requests."""
    module = project_index(surveyed).repository.modules[script.path]
    return not _SERVERS.isdisjoint(name.partition(".")[0] for name in (*module.imports.values(), *module.star_imports))


def _seen_whole(resolved: Resolved | None) -> bool:
    """Whether the run that showed the model, and the sources, tell all that is packaged, its labels too if it has some."""
    if resolved is None or resolved.recipe.live is None:
        return False
    return bool(resolved.labels or resolved.class_names or resolved.class_names_recipe) or not may_have_labels(resolved.task)


def within_time(migration: Migration, started: float, *, first: bool) -> Migration | None:
    """The migration as the next script is run in it: whole for the first, then within the time for all; None where that is
    over."""
    left = OTHERS_SECONDS - (time.monotonic() - started)
    if first:
        return migration
    return migration.within(max(left, _LEAST_SECONDS)) if left > 0 else None


def no_time(script: Script, started: float) -> str:
    return f"other scripts were run for {time.monotonic() - started:.0f} s; --entry {script.path} runs it first"


def _as_its_user(migration: Migration, resolved: Resolved | None, script: Script) -> OriginalRun | str:
    """Run a script with nothing but what is here; or why that does not do."""
    loops = trained_loops(migration, script)
    argv = _arguments(script, migration, resolved, trains=bool(loops))
    if isinstance(argv, str):
        return argv
    migration.stages.start(f"Running {'the first steps of ' if loops else ''}{script.path}")
    original = _first_run(migration, resolved, script, argv, loops)
    if original.run.slice is not None and not original.run.done.ok:  # it counts its rows, perhaps
        original = _first_run(migration, resolved, script, argv, loops, whole=True)
    if original.run.slice is not None:
        message = "the original and the migrated script were run on {:,} of {:,} images, evenly spread; --full runs all"
        migration.remark("PS405", message.format(*original.run.slice), "note", script.path)
    _remark_isolation(migration, original.run)
    return _why_not(migration, original.run, loops) or original


def _unchanged(migration: Migration, resolved: Resolved | None, script: Script) -> OriginalRun | None:
    """Run the model's own script, of which nothing was rewritten, with what is here; None where that does not do."""
    argv = _arguments(script, migration, resolved, trains=False) if not _needs_stand_ins(migration, script) else ""
    if isinstance(argv, str):
        return None
    migration.stages.start(f"Running {script.path}")
    original = _first_run(migration, resolved, script, argv, ())
    return original if _why_not(migration, original.run, ()) is None else None


def _rehearsed(migration: Migration, resolved: Resolved | None, script: Script, why: str | None) -> OriginalRun | str:
    """Run a script with stand-ins for what is not here; or why it does not run even so. `why` says what stopped it without, if
    that was tried."""
    loops = trained_loops(migration, script)
    known, told = _told(script, migration, resolved)
    migration.stages.start(f"Rehearsing {script.path}")
    own = resolved is not None and script == resolved.script
    for takes in (known,) if own or not known else (known, ()):  # what the model's script takes, this one may not
        argv, _ = carried(script, takes, told=told, data=migration.options.data)
        made = kept_in(migration.scratch / "cache", script.path, argv)
        number = _local_rank(script, "0") if _on_several(migration, script) else []
        run = run_once(script, [*argv, *number], migration, loops, migrated=False, made=made)
        migration.fresh_tree()
        if not _ARGUMENT_REJECTED.search(run.done.stderr):
            break
    _remark_isolation(migration, run)
    failed = _why_not(migration, run, loops, prints="train" in script.roles)
    if failed is None and _on_several(migration, script):
        return _on_processes(migration, script, OriginalRun(argv=argv, run=run, made=made), loops)
    if failed is None:
        return OriginalRun(argv=argv, run=run, made=made)
    return failed if why is None or failed == why else f"{why}; {failed}"


def _on_several(migration: Migration, script: Script) -> bool:
    """Whether a script becomes one over global tensors."""
    return not {DISTRIBUTED, REPLICATED}.isdisjoint(migration.rewritten.get(script.path, ()))


def _on_processes(migration: Migration, script: Script, alone: OriginalRun, loops: Sequence[TracedLoop]) -> OriginalRun | str:
    """The original on several ranks, or with several replicas in one process, once a run alone has found what it takes."""
    distributed = DISTRIBUTED in migration.rewritten[script.path]
    processes = Processes(ranks=RANKS) if distributed else Processes(replicas=RANKS)
    argv = [*alone.argv, *_local_rank(script, "{rank}")] if distributed else list(alone.argv)
    migration.stages.start(f"Running {script.path} on {RANKS} ranks" if distributed else f"Running {script.path}")
    original = OriginalRun(
        argv=argv, run=alone.run, made=alone.made, processes=processes, migrated_on=Processes(ranks=RANKS)
    )  # fmt: skip
    run = run_once(script, argv, migration, loops, migrated=False, **original.again)
    migration.fresh_tree()
    on = f"on {RANKS} ranks" if distributed else f"with {RANKS} replicas"
    if run.ranks_differ is not None:
        return f"{on} {run.ranks_differ}"
    failed = _why_not(migration, run, loops)
    if failed is None and not run.losses:
        failed = "the original took no training step here"
    return replace(original, run=run) if failed is None else f"{on}: {failed}"


def _local_rank(script: Script, number: str) -> list[str]:
    """What torch.distributed.launch gives a script that has an option for it."""
    flags = [flag for option in script.options for flag in option.flags if flag in ("--local_rank", "--local-rank")]
    return [f"{flags[-1]}={number}"] if flags else []


def _remark_isolation(migration: Migration, run: ScriptRun) -> None:
    missing = [name for name in ("network", "filesystem") if not run.done.isolation.get(name)]
    if missing:
        migration.remark("PS507", f"this platform lets no process cut itself off from: {', '.join(missing)}", "note")


def _why_not(migration: Migration, run: ScriptRun, loops: Sequence[TracedLoop], *, prints: bool = False) -> str | None:
    """Why a run of an original is nothing to compare with; what it prints is enough of a script that trains."""
    rehearsal = run.rehearsal
    if not run.done.ok and rehearsal is not None and stopped_at(run) is not None:
        told = ", ".join(filter(None, (f"{rehearsal.why} ({rehearsal.where})", rehearsal.remedy)))
        if (run.losses or run.sites) and WANTING not in told and _proves_nothing(run) is None:
            return None  # what it computed until then can be compared
        return migration.plain(f"with stand-ins for what is not here the original was stopped: {told}")
    if not run.done.ok:
        return migration.plain(f"the original does not run here: {run.done.why}{remedy(run.done.why)}")
    if loops and not run.losses and not run.sites:
        return "the original took no training step here"
    if not loops and not run.sites and not (prints and run.done.stdout.strip()):
        return "the original ended without calling the model, so there was nothing to compare"
    return _proves_nothing(run)


def _proves_nothing(run: ScriptRun) -> str | None:
    """Why what a run computed would be the same whatever the migration did; None where it would not."""
    stubs = run.rehearsal.stubs if run.rehearsal is not None else ()
    install = f"; install {' and '.join(stubs)}, whose numbers are zero here" if stubs else ""
    computed = [*run.losses.values()] or [recorded.outputs for recorded in run.sites.values()]
    if computed and not any(is_telling(numbers) for numbers in computed):
        return f"all that the original computed is one number, which proves nothing{install}"
    if stubs and not computed:
        return f"only what the original printed could be compared, and that depends on what is not here{install}"
    return None


def _first_run(
    migration: Migration,
    resolved: Resolved | None,
    script: Script,
    argv: list[str],
    loops: Sequence[TracedLoop],
    *,
    whole: bool = False,
) -> OriginalRun:
    """Run a script as it was; where its arguments stop it, again with others. The arguments are those last used."""
    rows = None if whole else _rows(migration, resolved)
    run = run_once(script, argv, migration, loops, migrated=False, rows=rows)
    migration.fresh_tree()
    others: list[str] | str | None = None
    if resolved is not None and script != resolved.script and _ARGUMENT_REJECTED.search(run.done.why or ""):
        others = _arguments(script, migration, None, trains=bool(loops))  # what the model's script takes, this one may not
    if _NO_CUDA.search(run.done.why or ""):
        others = on_cpu(script, argv)
    if isinstance(others, list) and others != argv:
        argv, run = others, run_once(script, others, migration, loops, migrated=False, rows=rows)
        migration.fresh_tree()
    return OriginalRun(argv=argv, run=run, rows=rows)


def _rows(migration: Migration, resolved: Resolved | None) -> int | None:
    """How many rows stand for a whole data set; None where all are to be run."""
    if migration.options.full:
        return None
    size = migration.options.input_size or (resolved.input_size if resolved is not None else None)
    return min(RECORDED_ROWS, max(_ROWS, _ROWS * _ROW_VALUES // math.prod(size))) if size is not None else _ROWS


def trained_loops(migration: Migration, script: Script) -> list[TracedLoop]:
    trains = not TRAINING_RULES.isdisjoint(migration.rewritten.get(script.path, ()))
    return rewritten_loops(migration.surveyed, script, parallel=_on_several(migration, script)) if trains else []


def run_once(
    script: Script,
    argv: Sequence[str],
    migration: Migration,
    loops: Sequence[TracedLoop],
    *,
    migrated: bool,
    made: Path | None = None,
    learned: str | None = None,
    rows: int | None = None,
    nudge: Nudge = 0.0,
    compiles: bool = True,
    processes: Processes = ONE,
) -> ScriptRun:
    if loops:
        by = nudge if isinstance(nudge, float) else 0.0
        return run_training(
            script, argv, migration.sandbox, loops,
            migrated=migrated, made=made, learned=learned, nudge=by, processes=processes,
        )  # fmt: skip
    return run_script(
        script, argv, migration.sandbox, made=made, learned=learned, rows=rows, nudge=nudge, compiles=compiles
    )  # fmt: skip


def _arguments(script: Script, migration: Migration, resolved: Resolved | None, *, trains: bool) -> list[str] | str:
    known, told = _told(script, migration, resolved)
    argv = arguments(script, migration.tree, known, told=told, data=migration.options.data)
    if trains or "train" not in script.roles or isinstance(argv, str):
        return argv
    return evaluating(script, argv) or _TRAINS


def _told(script: Script, migration: Migration, resolved: Resolved | None) -> tuple[Sequence[str], Sequence[str]]:
    """The arguments by which the model was found, and what a script itself is told: for that, or by its documentation."""
    known = resolved.recipe.argv if resolved is not None else ()
    if resolved is not None and resolved.script is not None and resolved.script.path == script.path:
        return known, resolved.told
    return known, migration.told.get(script.path) or documented_arguments(migration.surveyed, script)[0]
