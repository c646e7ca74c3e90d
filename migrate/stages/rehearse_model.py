"""The model taken live: the repository's scripts run as they stand, and the model that they evaluate is the one."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...errors import AmbiguousError, MigrateError
from ..proving.confined_run import TIME_LIMIT, patience
from ..proving.rehearsal_protocol import kept_in, saved_by_training
from ..proving.sandbox import Sandbox
from ..proving.worker_pool import RUNNING, WorkerPool
from ..proving.worker_protocol import Failed, Rehearse, Rehearsed
from ..reading.facts import Script, Survey
from ..reading.finding import Finding
from ..reading.recipe import Recipe
from ..reading.source import STORED, walk
from ..resolving.ranking import (
    candidates,
    classifying,
    documented_arguments,
    documented_folder,
    documented_models,
    importing,
    is_run_by_documents,
    last_candidates,
    listed,
    other_arguments,
    other_configurations,
    reaching,
    told_as,
)
from ..resolving.resolved import Resolved
from ..slicing.recipes import names_model, working_folder
from ..survey.survey import project_index, runnable
from .live_model import Run, best_of, is_called, resolved, why_none, worth
from .migration import Migration, Options
from .scripts.arguments import arguments, carried
from .worker_client import ask

_MOST_SCRIPTS = 3
_MOST_IN_VAIN = 8
"""So many are run to find a model, or that which the user's checkpoint fits."""
_MOST_TOLD = 8
"""So many other command lines are tried with a script that stopped."""
_MOST_SAVED = 3
"""So many files in which a script saves its model are tried for the weights."""
_ALL_SECONDS = 300.0
"""After so long, times `patience`, no further script, nor the same one with other arguments, is run to see a model."""
_PREVIEW_SECONDS = 20.0
"""The same for a preview, which is waited for."""
_SECONDS = 150.0
"""What one run may take at most, times `patience`; the worker ends it by itself long before."""
_UNENDED = (
    "it was still running after {:.0f} s, in one call of a library that nothing can interrupt; --entry takes another script"
)


def ready_to_run(options: Options, scratch: Path) -> WorkerPool:
    """What loads torch for the runs of scripts that are to come, while something else is done: for a `Migration.runs`."""
    sandbox = options.sandbox(scratch)
    sandbox.tree.mkdir()
    pool = WorkerPool(_bounded(sandbox), RUNNING, apart=True)
    pool.start()
    return pool


def rehearse_model(
    migration: Migration, found: Resolved | MigrateError, *, entry: str | None, model: str | None
) -> Resolved | list[Finding]:
    """The model of the script that says most about it, taken from a run; where none comes to call a model, what stopped each.

    `found` is what reading the sources led to: its arguments are tried first, and what a run cannot tell is taken from it.
    """
    static = found if isinstance(found, Resolved) else None
    read_in = static.script.path if static is not None and static.script is not None else None
    if static is not None and static.script is None and model is not None:
        return []  # a model that is built as no script does it
    scripts = _scripts(migration, entry, static, model)
    surveyed = migration.surveyed
    stored = any(walk(surveyed.root, STORED))
    runs: list[Run] = []
    alike: set[str] = set()
    seconds = patience() * (_PREVIEW_SECONDS if migration.options.preview else _ALL_SECONDS)
    end = time.monotonic() + seconds
    left = list(scripts)
    widened = entry is not None or model is not None  # what the user chose is not gone beyond
    while left or not (widened or any(run.best is not None for run in runs)):
        if not left:
            left, widened = [(script, []) for script in last_candidates(surveyed, [script for script, _ in scripts])], True
            scripts += left
            continue
        if runs and time.monotonic() > end:
            _cut_short(migration, seconds, [script.path for script, _ in left])
            break
        in_vain = all(run.best is None or run.compares(runs) or run.scores_nothing for run in runs)
        in_vain = in_vain or any(run.fits is False for run in runs)
        if len(runs) >= (_MOST_IN_VAIN if in_vain else _MOST_SCRIPTS):
            break
        script, given = left.pop(0)
        run = _run(migration, script, given, static, model)
        if not given and (_lacks(run) or not run.judged):
            run = _told_otherwise(migration, run, static, model, end)
        for choice in (
            _choices(surveyed, script) if _lacks(run) and not given and migration.options.checkpoint is not None else ()
        ):
            if time.monotonic() > end:
                break
            again = _run(migration, script, given, None, model, (choice, "the checkpoint"))
            run = replace(again, as_read=False) if again.fits else run
            if again.fits:
                break
        if len(runs) >= _MOST_SCRIPTS and run.best is not None and run.best.classes is None:
            run = replace(run, best=None)  # so late only a classifier counts: a part of another model may give a map as well
        runs.append(run)
        if run.answers(runs) and (run.is_certain or (not stored and run.fits is not False)):
            break
        if run.best is None:  # what needs the same libraries, or a file that cannot be imported, may end as this one did
            alike |= importing(surveyed, run.seen.absent) if run.seen.absent else _through(surveyed, run)
        if run.best is None or run.scores_nothing:
            told = {item[0].path for item in left if item[0].roles and is_run_by_documents(surveyed, item[0])}
            first = read_in if not told or read_in in told else None  # an undocumented file comes before no documented script
            likely = classifying(surveyed)  # in a collection the first may be for anything
            left.sort(key=lambda item: (item[0].path in alike, item[0].path != first, item[0].path not in likely))
    else:
        if time.monotonic() > end and not any(run.evaluated for run in runs):
            _cut_short(migration, seconds, [])
    at = next((at for at, run in enumerate(runs) if run.best is None), None)
    if at is not None and not any(run.evaluated for run in runs) and _saved(migration, runs[at]):
        again = _run(migration, *next(item for item in scripts if item[0] is runs[at].script), static, model)
        runs[at] = again if again.best is not None else runs[at]
    migration.stopped.update({run.script.path: run.seen.why for run in runs if run.best is None and run.seen.why is not None})
    stopped = [
        migration.remark("PS516", f"{run.script.path} was run to see its model, and {why}", "note", where or run.script.path)
        for run in runs
        for why, where in why_none(run)
    ]
    taken = [run for run in runs if run.best is not None]
    if (
        isinstance(found, AmbiguousError) and model is not None
    ):  # nothing in the sources has the name: it is a live model's, or wrong
        taken = [run for run in taken if run.best is not None and is_called(run.best, model, run.seen.models)]
    if not taken:
        return stopped
    chosen = max(taken, key=lambda run: _worth(run, taken))
    chosen = _as_documented(migration, chosen, model)
    chosen = _with_trained_weights(migration, chosen, model)
    return resolved(migration, chosen, static, [script.path for script, _ in scripts if script is not chosen.script])


def _through(surveyed: Survey, run: Run) -> set[str]:
    """The files that lead to the one of the repository's at which an import stopped a run."""
    at = (run.seen.where or "").rpartition(":")[0]
    stopped = re.match(r"(Import|ModuleNotFound|Syntax)Error", run.seen.why or "") is not None and at != run.script.path
    return reaching(surveyed, at) if stopped else set()


def _as_documented(migration: Migration, run: Run, model: str | None) -> Run:
    """The run of a script that was told nothing, and needs nothing, as it is documented where that names a file here and brings
    the weights that it lacked; else a remark on what it is told there: that may be another model, or other weights."""
    argv, where = documented_arguments(migration.surveyed, run.script, always=True)
    if not run.script.options or run.recipe.argv or not any(word.startswith("-") for word in argv):
        return run
    root = migration.surveyed.root
    lacks = not run.seen.weights_from or run.seen.saved_over  # it trains what it then evaluates
    if lacks and migration.options.checkpoint is None and any((root / word).is_file() for word in argv):
        again = _run(migration, run.script, [], None, model, (argv, where))
        if again.best is not None and again.seen.weights_from and not again.seen.saved_over:
            migration.told[run.script.path] = argv
            return replace(again, as_read=False)
    line = shlex.join([run.script.path, *argv])
    message = f"run without arguments, which it does not need; {where} tells it {' '.join(argv)}: --entry {line!r} does so"
    migration.remark("PS011", message, "note", run.script.path)
    return run


def _worth(run: Run, among: list[Run]) -> tuple[bool, bool, bool, bool, bool, tuple[bool, ...]]:
    """One whose model the user's checkpoint fits before others; a classifier that is evaluated before features that are, but
    one that predicts with the user's weights, and forgets to say that it evaluates, before one with weights of nobody's."""
    evaluated, answers = worth(run.best)[1:3] if run.best is not None else (), run.answers(among)
    return run.fits is True, answers and run.is_certain, run.predicts(among), answers, run.is_certain, evaluated


def _cut_short(migration: Migration, seconds: float, left: list[str]) -> None:
    others = f"; --entry takes one that was not: {listed(left)}" if left else ""
    longer = "; with --out OUT the search goes on for longer" if migration.options.preview else ""
    migration.remark("PS011", f"scripts were run for {seconds:.0f} s to see their models{others}{longer}", "note")


def _lacks(run: Run) -> bool:
    return run.best is None or run.fits is False


def _is_better(one: Run, other: Run) -> bool:
    return one.best is not None and (other.best is None or one.fits is not False)


def _with_trained_weights(migration: Migration, run: Run, model: str | None) -> Run:
    """The run with the weights of the one file, here before, in which its script saves the model that it trains; as it is
    where it had weights of the user's, or where no such file or several fit."""
    if migration.options.checkpoint is not None or run.seen.weights_from:
        return run
    fitting = []
    for path in run.seen.saved_over[:_MOST_SAVED]:
        told = list(run.recipe.argv), None
        again = _run(migration.given(migration.surveyed.root.resolve() / path), run.script, [], None, model, told)
        fitting += [(path, again)] if again.fits else []
    if len(fitting) != 1:
        return run
    ((path, again),) = fitting
    message = f"the weights are those of {path}, where {run.script.path} saves its model; --checkpoint FILE takes others"
    migration.remark("PS011", message, "note", run.script.path)
    return replace(again, remark=run.remark, as_read=run.as_read)


def _saved(migration: Migration, run: Run) -> bool:
    """Whether another script has saved weights meanwhile, such as this one may have looked for."""
    return bool(saved_by_training(kept_in(migration.scratch / "cache", run.script.path, run.recipe.argv)))


# -- which script


def _scripts(
    migration: Migration, entry: str | None, static: Resolved | None, model: str | None
) -> list[tuple[Script, list[str]]]:
    """The scripts to run, best first, each with the arguments that the user gave for it."""
    surveyed = migration.surveyed
    if entry is not None:
        path, *given = [entry] if Path(entry).is_file() else shlex.split(entry)
        known = [script for script in surveyed.scripts if _is_named(script.path, path, migration)]
        known = known or [script for script in runnable(surveyed) if _is_named(script.path, path, migration)]
        return [(known[0], given)] if len(known) == 1 else []
    scripts = candidates(surveyed)
    builds = static.script.path if static is not None and static.script is not None else None
    if model is not None:  # the one that builds what is asked for
        scripts.sort(key=lambda script: script.path != builds)
    return [(script, []) for script in scripts]


def _is_named(path: str, wanted: str, migration: Migration) -> bool:
    wanted = wanted.replace("\\", "/").removeprefix("./")
    absolute = Path(wanted).absolute()
    root = migration.surveyed.root.absolute()
    if absolute.is_relative_to(root) and absolute.is_file():
        wanted = absolute.relative_to(root).as_posix()
    return path == wanted or path.endswith(f"/{wanted}")


# -- one run


def _run(
    migration: Migration,
    script: Script,
    given: list[str],
    static: Resolved | None,
    model: str | None,
    told: tuple[list[str], str | None] | None = None,
) -> Run:
    """Run a script with the user's arguments, else those `told`, by default the documented ones that it needs."""
    migration.fresh_tree()
    told = told or documented_arguments(migration.surveyed, script)
    argv, remark = _arguments(migration, script, given, static, *told)
    known = project_index(migration.surveyed)
    directory = documented_folder(migration.surveyed, script)
    directory = directory or working_folder(known.repository.modules[script.path], known.repository)
    recipe = Recipe(
        root=str(migration.tree),
        script=script.path,
        directory=directory,
        argv=tuple(argv),
        checkpoint=migration.options.checkpoint,
    )
    progress = migration.stages.start(f"Running {script.path} to see its model")
    sandbox = _bounded(migration.sandbox)
    if migration.runs is not None and migration.runs.answers_for(sandbox):
        sandbox = migration.runs.sandbox
    read = static.recipe.in_copy(migration.tree) if static is not None and static.script == script else None
    asked = Rehearse(recipe=recipe, read=read, patience=patience(), quick=migration.options.preview)
    answer = ask(asked, sandbox, progress)
    if isinstance(answer, Failed):
        ours = TIME_LIMIT in answer.error and sandbox.limits.timeout < migration.sandbox.limits.timeout
        why = _UNENDED.format(sandbox.limits.timeout) if ours else answer.error
        answer = Rehearsed(models=(), why=why, where=answer.where, weights_from=())
    assert isinstance(answer, Rehearsed)
    migration.stood_in[script.path] = frozenset(answer.edges)
    if any(item.startswith("servers: POST ") for item in answer.standins):
        migration.asked.add(script.path)
    return Run(script, recipe, answer, best_of(answer.models, model), remark, as_read=True)


def _bounded(sandbox: Sandbox) -> Sandbox:
    return replace(sandbox, limits=replace(sandbox.limits, timeout=min(patience() * _SECONDS, sandbox.limits.timeout)))


def _told_otherwise(migration: Migration, first: Run, static: Resolved | None, model: str | None, end: float) -> Run:
    """The run of a script that stopped or whose model nothing judges, or the first one with other arguments that shows one."""
    run, alike, surveyed = first, 0, migration.surveyed
    documented = ((*item, static) for item in (_otherwise(surveyed, first) if _lacks(first) else ()))
    chosen = ((*item, None) for item in other_configurations(surveyed, first.script))  # the sources were read with the first
    for told, where, verbatim, read in itertools.islice(itertools.chain(documented, chosen), _MOST_TOLD):
        again = _run(migration, first.script, [], read, model, (told, where))
        better = _is_better(again, run) and (run.best is None or again.best is None or worth(again.best) > worth(run.best))
        if again.seen.why is None or better:
            migration.told[first.script.path] = told
        if better:
            run = replace(again, as_read=False, remark=_and_why(again.remark, first))
        same = again.seen.why is not None and (again.seen.why, again.seen.where) == (first.seen.why, first.seen.where)
        alike = alike + verbatim if same else 0  # once by the choice that is the default's, twice whatever is chosen
        # What else a line names that is not here may lead to a model that is only trained, as one that takes no labels.
        done = run.judged and not _lacks(run) and (verbatim or run.evaluated)
        if first.fits is False or done or alike > 1 or time.monotonic() > end:
            break
    return run


def _otherwise(surveyed: Survey, run: Run) -> Iterator[tuple[list[str], str | None, bool]]:
    """Other arguments for a script that stopped: documented ones in place of guessed ones, and none where nobody knows whether
    it takes those that are documented."""
    tried = [run.recipe.argv]
    if run.remark is not None and not run.script.options:
        yield [], None, True
        tried.append(())
    elif "No module named" in (run.seen.why or ""):
        return
    first = (*documented_arguments(surveyed, run.script, always=True), True)
    for told, where, verbatim in (first, *other_arguments(surveyed, run.script)):
        if told and tuple(told) not in tried:
            tried.append(tuple(told))
            yield told, where, verbatim


def _and_why(remark: str | None, first: Run) -> str | None:
    """A remark on what a script was told, and on how it ended without."""
    if remark is None or first.seen.why is None:
        return remark
    told = f"told {' '.join(first.recipe.argv) or 'nothing'}{', and what was guessed,' if first.guessed else ''}"
    why = first.seen.why.partition(";")[0]
    ended = why if why.startswith("it ") else f"it ends with {why}"  # it came to its end, or was still running
    return f"{remark}; {told} {ended}{f' ({first.seen.where})' if first.seen.where else ''}"


def _choices(surveyed: Survey, script: Script) -> list[list[str]]:
    """What a script may be told to choose one of its models: as it is documented, then each that its options offer."""
    named = [option for option in script.options if names_model(option) and option.choices and not option.positional]
    offered = [[option.flags[-1], str(choice)] for option in named for choice in option.choices or ()]
    return [*documented_models(surveyed, script), *offered][:_MOST_IN_VAIN]


def _arguments(
    migration: Migration, script: Script, given: list[str], static: Resolved | None, told: list[str], where: str | None
) -> tuple[list[str], str | None]:
    """What a script is told, and a remark on where that is documented; the rehearsal guesses what else it requires."""
    same = static is not None and static.script is not None and static.script.path == script.path
    known = static.told if static is not None and same else given
    if given:
        return list(known), None
    found = arguments(script, migration.tree, known, told=told, data=migration.options.data)
    argv = found if isinstance(found, list) else carried(script, known, told=told, data=migration.options.data)[0]
    return argv, told_as(script, told, where) if where is not None else None
