"""Run the original and the migrated script on the same data, in fresh copies at the same path, and compare what they did.

Compared are the model's recorded outputs (largest difference, top-1 agreement) and what the scripts print and write into tables
and texts, but for timings.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ...errors import SandboxError
from ..reading.facts import Loop, Script
from ..reading.source import CELLS, NOTEBOOK, read_source
from .confined_run import Completed, patience
from .instrument import install
from .loss_trace import TracedLoop, note_losses, of_all_ranks
from .rehearsal_protocol import OF_MIGRATED, Rehearsal, RehearsalReport
from .sandbox import Sandbox, read_left, read_left_arrays
from .texts.printed import first_difference
from .texts.written import differs, states, written_since

RELATIVE = 1e-3
"""Outputs may differ by this share of the largest reference output: float32 sums in another order, over a deep network."""
SAME_DATA = 1e-6
"""By how much what a model is fed may differ."""
REHEARSED_BATCHES = 3
"""Batches of each loop of a rehearsal: enough for a trace of losses."""
BATCHES_OF_RANKS = 10
"""Those of a rehearsal on several ranks, or of one that is compared with it."""
REHEARSAL_SECONDS = 300.0
IDLE_SECONDS = 45.0
"""In a rehearsal nothing sleeps or downloads: what computes nothing for so long waits for a process or a lock, for ever."""
REPORT = "rehearsal.json"
NEVER = "1e9"
"""Seconds of patience that no run has."""
Nudge = float | Mapping[str, float]
_OBSTACLE = re.compile(r"^\s*((?:.+:\d+: )?PG\d{3} .+)$", re.MULTILINE)
"""A line of a CaptureError that names one obstacle."""
# What a batch needed is kept for the next: the C library gives large blocks back after each layer, and the kernel then clears
# every page anew, which takes a third of a network's time.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
# A notebook runs in its own folder, from the first cell to the last, without what only a person at the screen would see.
# A cell may await something on its own level.
_RUN_CELLS = """
import ast, asyncio, sys
def display(*values, **options): pass
del sys.argv[0]
with open(sys.argv[0], encoding="utf-8", newline="") as file:
    code = compile(file.read(), sys.argv[0], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if awaited := eval(code):
    asyncio.run(awaited)
"""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What one model call was fed and gave, over a run; rows are float32 [N, ...]."""

    inputs: np.ndarray = field(repr=False)
    outputs: np.ndarray = field(repr=False)
    targets: np.ndarray | None = field(default=None, repr=False)
    classes: tuple[str, ...] | None = None
    calls: np.ndarray | None = field(default=None, repr=False)
    """Which of all recorded calls of the run, in their order, each row belongs to."""
    models: np.ndarray | None = field(default=None, repr=False)
    """Which of the models that the call was made with, in the order of their first calls, each row belongs to."""
    kinds: tuple[str, ...] = ()
    """The classes of these models."""
    precision: str | None = None
    """What the script computed in, where that is lower than float32; the outputs are those of the same calls in float32."""
    own: np.ndarray | None = field(default=None, repr=False)
    """The outputs that the script had then."""
    made: bool = False
    """Whether data stood in for the user's: then outputs can be compared on it, and it shows nothing of accuracy."""

    @property
    def reduced(self) -> float:
        """How far the outputs that the script had are from those of the models' own precision, at most."""
        if self.own is None:
            return 0.0
        both = np.isfinite(self.own) & np.isfinite(self.outputs)
        return float(np.abs(self.own[both] - self.outputs[both]).max(initial=0.0))

    def of_model(self, kind: str | None) -> Recorded:
        """What the first model of a class gave, where the call was made with several: without one of it, the first of all."""
        if self.models is None or len(self.kinds) < 2:
            return self
        chosen = self.models == (self.kinds.index(kind) if kind in self.kinds else 0)
        return replace(
            self,
            inputs=self.inputs[chosen],
            outputs=self.outputs[chosen],
            targets=self.targets[chosen] if self.targets is not None else None,
            calls=self.calls[chosen] if self.calls is not None else None,
            models=self.models[chosen],
            own=self.own[chosen] if self.own is not None else None,
        )


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """One run of one script."""

    done: Completed
    sites: Mapping[str, Recorded]
    losses: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The losses of the first training steps by loop, float64 [steps]; only `run_training` notes them."""
    rehearsal: RehearsalReport | None = None
    """What stood in for what, where the script was rehearsed."""
    slice: tuple[int, int] | None = None
    """Rows that stood for all of the longest data set, and how many these are, where it was not gone through whole."""
    losses_of_ranks: Sequence[Mapping[str, np.ndarray]] = ()
    """The same for each of several ranks."""
    ranks_differ: str | None = None
    """What several ranks did differently that they should do alike."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The tables and texts that it wrote into the repository's copy, where nothing stood in."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    """On how many processes a script is run, and how many GPUs nn.DataParallel is to find in one; both are stood in for."""

    ranks: int = 1
    replicas: int = 1

    @property
    def several(self) -> bool:
        return self.ranks > 1 or self.replicas > 1


ONE = Processes()


@dataclass(frozen=True, kw_only=True)
class Executed:
    """How a script fared in its migrated form, against its original."""

    status: Literal["passed", "failed", "not-run"]
    why: str | None = None
    max_abs: float | None = None
    top1_agreement: float | None = None
    parity_failed: bool = False
    in_print: bool = False
    """Whether it failed by what it printed or wrote alone."""


def run_script(
    script: Script,
    argv: Sequence[str],
    sandbox: Sandbox,
    *,
    cwd: Path | None = None,
    made: Path | None = None,
    learned: str | None = None,
    rows: int | None = None,
    nudge: Nudge = 0.0,
    compiles: bool = True,
) -> ScriptRun:
    """Run `script` in a fresh copy of the repository, recording every model call that it reaches. The copy is then used up.

    `cwd` is the copy's root unless given. With `rows`, about so many, evenly spread, stand for all that torch's loaders give
    of longer data sets: the same in every run. With `made` the script is rehearsed: stand-ins take the place of what is not
    here, and that folder keeps what they are made of, so that a second run with it, and with what the first had `learned`,
    finds the same. By `nudge`, one for all or by site, each output of a recorded call is changed, up or down, before the script
    goes on with it. A migrated script whose graphs are to be proved `compiles` them at their first call; else it never does.
    """
    return _recorded(
        script, argv, sandbox, script.loops, made, learned, cwd=cwd, rows=rows, nudge=nudge, compiles=compiles
    )  # fmt: skip


def run_training(
    script: Script,
    argv: Sequence[str],
    sandbox: Sandbox,
    loops: Sequence[TracedLoop],
    *,
    migrated: bool,
    made: Path | None = None,
    learned: str | None = None,
    nudge: float = 0.0,
    processes: Processes = ONE,
) -> ScriptRun:
    """Run the first steps of a script that trains in a fresh copy of the repository, noting each loss, and what it evaluates
    before, where it does. The copy is used up.

    With `made` the script is rehearsed, as by `run_script`, and `learned` is what it is there. By `nudge` the outputs of its
    model are changed, those that it trains with, too. On several `processes` it is always rehearsed, and the losses are those
    of all ranks' rows.
    """
    note_losses(sandbox.tree, loops, migrated=migrated)
    recorded = [loop for loop in script.loops if nudge or (loop.kind != "train" and not processes.several)]
    run = _recorded(script, argv, sandbox, recorded, made, learned, nudge=nudge, processes=processes)
    if processes.ranks == 1 or not run.losses_of_ranks:
        return run
    losses, differ = of_all_ranks(run.losses_of_ranks, whole=migrated)
    return replace(run, losses=losses, ranks_differ=differ)


def _recorded(
    script: Script,
    argv: Sequence[str],
    sandbox: Sandbox,
    loops: Sequence[Loop],
    made: Path | None,
    learned: str | None,
    *,
    cwd: Path | None = None,
    rows: int | None = None,
    nudge: Nudge = 0.0,
    compiles: bool = True,
    processes: Processes = ONE,
) -> ScriptRun:
    """Run a script with the recorder at the calls of `loops`."""
    readable, writable = sandbox.readable_folder(), sandbox.writable_folder()
    install(sandbox.tree, readable, loops, script.path)
    record = writable / "record.npz"
    limits = sandbox.limits
    if made is not None:
        arguments, folder = rehearsal_command(script, argv, sandbox, readable, writable, made, learned, processes)
        slow = patience()
        limits = replace(limits, timeout=min(limits.timeout, slow * REHEARSAL_SECONDS), idle=slow * IDLE_SECONDS)
    elif cwd is not None and not script.path.endswith(NOTEBOOK):
        arguments, folder = [str(sandbox.tree / script.path), *argv], cwd
    else:
        arguments, folder = command(script, argv, sandbox.tree, readable)
    # A slice would end before a graph pays; what is to be proved is the graph, and the package where it has the weights.
    models = str(sandbox.models)
    environment = {"HEADRACE_RECORD": str(record), "HEADRACE_MODELS": models, **KEEP_MEMORY}
    environment["HEADRACE_PATIENCE"] = "0" if compiles else NEVER
    if made is None:  # a set has another order than where the labels were seen: what hangs on it is printed otherwise
        environment["PYTHONHASHSEED"] = "1"
    if rows is not None:
        environment["HEADRACE_SLICE"] = str(rows)
    if nudge:
        environment["HEADRACE_NUDGE"] = json.dumps(nudge)
    before = states(sandbox.tree) if made is None else {}
    done = sandbox.run(arguments, writable, cwd=folder, extra=environment, search=readable, limits=limits)
    done = replace(done, stdout=done.stdout.replace(str(writable), ""))  # the home folder is another one in every run
    try:
        rehearsal = _report(writable, made)
        sites, losses, taken = read_record(record), read_losses(record), read_slice(record)
        others = [read_losses(record.with_name(f"{record.name}.rank{rank}")) for rank in range(1, processes.ranks)]
        return ScriptRun(
            done=done, sites=sites, losses=losses, rehearsal=rehearsal, slice=taken,
            losses_of_ranks=[losses, *others] if others else (),
            written=written_since(sandbox.tree, before) if made is None else {},
        )  # fmt: skip
    except SandboxError as error:
        # The record is not as the recorder leaves it: the script can write there too.
        stderr = f"{done.stderr}\nthe record of its calls: {error}"
        return ScriptRun(done=replace(done, exit=done.exit or 1, stderr=stderr), sites={})


def rehearsal_command(
    script: Script,
    argv: Sequence[str],
    sandbox: Sandbox,
    readable: Path,
    writable: Path,
    made: Path,
    learned: str | None = None,
    processes: Processes = ONE,
) -> tuple[list[str], Path]:
    """The arguments with which Python rehearses a script of the sandbox's copy, or a notebook, and the folder for it."""
    path, directory, tree = script.path, sandbox.tree, sandbox.tree
    if path.endswith(NOTEBOOK):
        directory = (tree / path).parent
        path += CELLS  # beside the notebook, for it is the user's code
        with (tree / path).open("w", encoding="utf-8", newline="") as file:
            file.write(read_source(tree, script.path).text or "")
    request = Rehearsal(
        root=str(tree.resolve()),
        script=path,
        argv=tuple(argv),
        directory=str(directory.resolve()),
        made=str(made),
        learned=learned,
        report=str(writable / REPORT),
        batches=BATCHES_OF_RANKS if processes.several else REHEARSED_BATCHES,
        checkpoint=str(sandbox.checkpoint) if sandbox.checkpoint is not None else None,
        ranks=processes.ranks,
        replicas=processes.replicas,
    )
    asked = readable / REPORT
    asked.write_text(request.to_json(), encoding="utf-8")
    program = "headrace.migrate.worker.rehearsal" if processes.ranks == 1 else "headrace.migrate.worker.ranks.launch"
    return ["-P", "-m", program, str(asked)], directory


def _report(writable: Path, made: Path | None) -> RehearsalReport | None:
    if made is None or not os.path.lexists(writable / REPORT):
        return None
    try:
        return RehearsalReport.from_json(read_left(writable / REPORT).decode())
    except ValueError as error:
        raise SandboxError(f"{REPORT} is no report of a rehearsal: {error}") from None


def read_losses(path: Path) -> dict[str, np.ndarray]:
    """The losses that the recorder wrote, by loop. Raises SandboxError where they cannot be read."""
    if not os.path.lexists(path):
        return {}
    losses = {name: array for name, array in read_left_arrays(path).items() if name.endswith("/losses")}
    if any(array.dtype.kind != "f" or array.ndim != 1 for array in losses.values()):
        raise SandboxError(f"{path.name} holds losses that are no numbers")
    return {name.removesuffix("/losses"): array for name, array in losses.items()}


def read_slice(path: Path) -> tuple[int, int] | None:
    """How many rows of how many the script was given, where not all. Raises SandboxError where that cannot be read."""
    if not os.path.lexists(path):
        return None
    taken = read_left_arrays(path).get("/slice")
    if taken is None:
        return None
    if taken.shape != (2,) or taken.dtype.kind not in "iu" or not 0 < taken[0] < taken[1]:
        raise SandboxError(f"{path.name} holds a slice that is none")
    return int(taken[0]), int(taken[1])


def command(script: Script, argv: Sequence[str], tree: Path, readable: Path) -> tuple[list[str], Path]:
    """The arguments with which Python runs a script of the copy in `tree`, or a notebook's cells, and the folder for it."""
    if not script.path.endswith(NOTEBOOK):
        return [script.path, *argv], tree
    cells = readable / "cells.py"
    with cells.open("w", encoding="utf-8", newline="") as file:
        file.write(read_source(tree, script.path).text or "")
    return ["-c", _RUN_CELLS, str(cells), *argv], (tree / script.path).parent


def read_record(path: Path) -> dict[str, Recorded]:
    """What the recorder wrote, per call site; empty when it wrote nothing. Raises SandboxError where it cannot be read."""
    if not os.path.lexists(path):
        return {}
    fields: dict[str, dict[str, np.ndarray]] = {}
    for name, array in read_left_arrays(path).items():
        site, _, part = name.rpartition("/")
        fields.setdefault(site, {})[part] = array
        if part in ("inputs", "outputs", "own", "targets", "calls", "models") and array.dtype.kind not in "biuf":
            raise SandboxError(f"{path.name} holds {part} that are no numbers")
    return {
        site: Recorded(
            inputs=parts["inputs"],
            outputs=parts["outputs"],
            targets=parts.get("targets"),
            classes=_names(path, str(parts["classes"])) if "classes" in parts else None,
            calls=_of_rows(path, parts, "calls", parts["inputs"].shape[:1]),
            models=_of_rows(path, parts, "models", parts["inputs"].shape[:1]),
            kinds=_names(path, str(parts["kinds"])) if "kinds" in parts else (),
            precision=str(parts["precision"]) if "precision" in parts else None,
            own=_of_rows(path, parts, "own", parts["outputs"].shape),
        )
        for site, parts in fields.items()
        if {"inputs", "outputs"} <= parts.keys()
    }


def _of_rows(path: Path, parts: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    found = parts.get(name)
    if found is not None and found.shape != shape:
        raise SandboxError(f"{path.name} holds {name} that are not those of its rows")
    return found


def _names(path: Path, text: str) -> tuple[str, ...]:
    with contextlib.suppress(ValueError, RecursionError):
        names = json.loads(text)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    raise SandboxError(f"{path.name} holds class names that are no texts")


def compare(original: ScriptRun, migrated: ScriptRun, again: ScriptRun | None = None) -> Executed:
    """Judge the migrated run by the original one, whose second run tells what it prints otherwise each time."""
    ended = ends_otherwise(original, migrated)
    if ended is not None:
        return Executed(status="failed", why=ended)
    worst, agreement = 0.0, 1.0
    for site, before in original.sites.items():
        after = migrated.sites.get(site)
        if after is None:
            return Executed(status="failed", why=f"the migrated script never made the model call of {site}")
        if before.inputs.shape != after.inputs.shape or not np.allclose(before.inputs, after.inputs, atol=SAME_DATA):
            why = f"the two runs fed the model different data at {site}, so nothing can be compared; is it drawn at random?"
            return Executed(status="failed", why=why)
        difference, agreed, close = agree(_nearest(before, after.outputs), after.outputs)
        worst, agreement = max(worst, difference), min(agreement, agreed)
        if not close:
            why = f"outputs at {site} differ by {difference:.3g}; {agreed:.2%} of the top-1 predictions agree"
            return Executed(status="failed", why=why, max_abs=worst, top1_agreement=agreement, parity_failed=True)
    different = first_difference(original.done.stdout, migrated.done.stdout, again.done.stdout if again is not None else None)
    said = f"it printed {different[1]!r} instead of {different[0]!r}" if different is not None else None
    said = said or differs(original.written, migrated.written, again.written if again is not None else None)
    if said is not None:
        return Executed(
            status="failed", why=said, parity_failed=True, max_abs=worst, top1_agreement=agreement, in_print=True
        )  # fmt: skip
    if not original.sites:
        why = "no model call could be recorded; only what is printed was compared"
        return Executed(status="passed", why=why)
    return Executed(status="passed", why=_of_precision(original), max_abs=worst, top1_agreement=agreement)


def _nearest(before: Recorded, after: np.ndarray) -> np.ndarray:
    """Which outputs of the original those of the migrated script are held to: row by row the nearest, where it computes in a
    lower precision; a call that runs eagerly has that, and one that a graph takes has not."""
    if before.own is None or before.own.shape != after.shape:
        return before.outputs
    axes = tuple(range(1, after.ndim))
    near = np.abs(before.own - after).max(axis=axes) < np.abs(before.outputs - after).max(axis=axes)
    return np.where(near.reshape(-1, *[1] * len(axes)), before.own, before.outputs)


def _of_precision(original: ScriptRun) -> str | None:
    """What is to be said of a script that computes in a lower precision than its graph."""
    lower = {site: of for site, of in original.sites.items() if of.precision is not None and of.reduced}
    if not lower:
        return None
    site, largest = max(lower.items(), key=lambda item: item[1].reduced)
    return (
        f"the original computes in {largest.precision} at {site}, which changes its outputs by up to {largest.reduced:.2g}; "
        "a graph computes in the precision of its plan, so it is held to what the original gives in float32"
    )


def stopped_at(run: ScriptRun) -> tuple[str, str] | None:
    """The user's file in which a rehearsed script was stopped, and by which error; None where it was not, or nobody knows."""
    rehearsal = run.rehearsal
    if run.done.ok or run.done.stopped is not None or rehearsal is None or rehearsal.ended != "stopped":
        return None
    if rehearsal.where is None:
        return None
    return rehearsal.where.rpartition(":")[0], rehearsal.why or ""


def ends_otherwise(original: ScriptRun, migrated: ScriptRun) -> str | None:
    """How the migrated run ended otherwise; None where both came to their end or were stopped by the same error."""
    if original.done.ok and migrated.done.ok:
        return None
    before = stopped_at(original)
    if before is not None and before == stopped_at(migrated):
        return None
    if migrated.done.ok:
        return f"the migrated script came to its end, where the original was stopped: {original.done.why}"
    return f"{OF_MIGRATED} {migrated.done.why}"


def obstacle_in(text: str | None) -> str | None:
    """What stood between a model and its graph, at which line, in the words of an error; None where none is told of."""
    found = _OBSTACLE.search(text or "")
    return found[1] if found is not None else None


def is_telling(numbers: np.ndarray) -> bool:
    """Whether numbers could show a difference: they are finite, and neither zero nor all the same."""
    finite = numbers[np.isfinite(numbers)]
    return bool(finite.any()) and (numbers.size == 1 or float(np.ptp(finite)) > 0)


def agree(before: np.ndarray, after: np.ndarray) -> tuple[float, float, bool]:
    """Largest difference, top-1 agreement (ties closer than the difference agree), and whether both are within bounds."""
    if before.shape != after.shape or not np.isfinite(after).all():
        return float("inf"), 0.0, False
    difference = float(np.abs(before - after).max(initial=0.0))
    close = difference <= RELATIVE * max(float(np.abs(before).max(initial=0.0)), 1e-3)
    if before.ndim < 2 or before.shape[1] < 2 or before.size != before.shape[0] * before.shape[1]:
        return difference, 1.0 if close else 0.0, close
    rows = np.arange(len(before))
    before, after = before.reshape(before.shape[:2]), after.reshape(after.shape[:2])  # of [rows, classes, 1, 1]
    lost = before.max(axis=1) - before[rows, after.argmax(axis=1)]
    agreed = float((lost <= 2 * difference if close else lost == 0).mean())
    return difference, agreed, close and agreed == 1.0
