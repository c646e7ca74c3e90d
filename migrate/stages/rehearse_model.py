"""The model taken live: the repository's scripts run as they stand, and the model that they evaluate is the one."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import AmbiguousError, MigrateError
from ..proving.confined_run import patience
from ..proving.rehearsal_protocol import GUESSED, kept_in, saved_by_training
from ..proving.sandbox import Sandbox
from ..proving.worker_pool import RUNNING, WorkerPool
from ..proving.worker_protocol import Failed, Rehearse, Rehearsed, SeenModel
from ..reading.facts import Script, Survey
from ..reading.finding import Finding
from ..reading.recipe import Recipe, TransformRecipe
from ..reading.source import STORED, walk
from ..resolving.labels import all_class_names
from ..resolving.ranking import (
    candidates,
    documented_arguments,
    documented_folder,
    documented_models,
    listed,
    other_arguments,
    taken_of,
    told_as,
)
from ..resolving.resolved import ChainStep, Resolved
from ..resolving.task import MULTI_LABEL, RAW, SINGLE_LABEL, kind_of, modules_near, stated_task, states_width, with_threshold
from ..slicing.recipes import names_model, working_folder
from ..survey.survey import project_index, runnable
from .migration import Migration, Options
from .scripts.arguments import arguments, carried
from .worker_client import ask

_CHOICES = frozenset(["PS011", "PS015"])
"""Remarks that say what was taken where several things fit."""
_MOST_SCRIPTS = 3
_MOST_FOR_A_CHECKPOINT = 8
"""So many are run to find the model that the user's checkpoint fits."""
_MOST_TOLD = 8
"""So many other command lines are tried with a script that stopped."""
_MOST_SAVED = 3
"""So many files in which a script saves its model are tried for the weights."""
_ALL_SECONDS = 300.0
"""After so long, times `patience`, no further script, nor the same one with other arguments, is run to see a model."""
_SECONDS = 150.0
"""What one run may take at most, times `patience`; the worker ends it by itself long before."""


@dataclass(frozen=True)
class Run:
    """One script that was run, and the best of the models that it called; None where it called none that classifies."""

    script: Script
    recipe: Recipe
    seen: Rehearsed
    best: SeenModel | None
    remark: str | None
    """Where its arguments are taken from, if not from the user."""
    as_read: bool
    """Whether these are the ones that the sources were read with."""

    @property
    def guessed(self) -> bool:
        """Whether arguments were guessed that the documentation may tell."""
        return "arguments" in self.seen.edges

    @property
    def is_certain(self) -> bool:
        """Whether it evaluated a model with weights that are the user's: no other script can tell more."""
        return self.evaluated and bool(self.seen.weights_from) and self.fits is not False

    @property
    def fits(self) -> bool | None:
        """Whether the checkpoint that the user gave is one of its model."""
        return self.best.fits if self.best is not None else None

    @property
    def evaluated(self) -> bool:
        """Whether it evaluated a model."""
        return self.best is not None and _worth(self.best)[1]


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
    if static is not None and static.script is None and model is not None:
        return []  # a model that is built as no script does it
    scripts = _scripts(migration, entry, static, model)
    surveyed = migration.surveyed
    stored = any(walk(surveyed.root, STORED))
    runs: list[Run] = []
    seconds = patience() * _ALL_SECONDS
    end = time.monotonic() + seconds
    for number, (script, given) in enumerate(scripts):
        if runs and time.monotonic() > end:
            left = listed([script.path for script, _ in scripts[number:]])
            message = f"scripts were run for {seconds:.0f} s to see their models; --entry takes one that was not: {left}"
            migration.remark("PS011", message, "note")
            break
        if len(runs) >= (_MOST_FOR_A_CHECKPOINT if any(run.fits is False for run in runs) else _MOST_SCRIPTS):
            break
        run = _run(migration, script, given, static, model)
        if _lacks(run) and not given:
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
        runs.append(run)
        if run.is_certain or (run.evaluated and not stored and run.fits is not False):
            break
    at = next((at for at, run in enumerate(runs) if run.best is None), None)
    if at is not None and not any(run.evaluated for run in runs) and _saved(migration, runs[at]):
        again = _run(migration, *scripts[at], static, model)
        runs[at] = again if again.best is not None else runs[at]
    migration.stopped.update({run.script.path: run.seen.why for run in runs if run.best is None and run.seen.why is not None})
    stopped = [
        migration.remark("PS516", f"{run.script.path} was run to see its model, and {why}", "note", where or run.script.path)
        for run in runs
        for why, where in _why_none(run)
    ]
    taken = [run for run in runs if run.best is not None]
    if (
        isinstance(found, AmbiguousError) and model is not None
    ):  # nothing in the sources has the name: it is a live model's, or wrong
        taken = [run for run in taken if run.best is not None and _is_called(run.best, model, run.seen.models)]
    if not taken:
        return stopped
    chosen = max(taken, key=lambda run: (run.fits is True, run.is_certain, run.best is not None and _worth(run.best)[1:3]))
    chosen = _with_trained_weights(migration, chosen, model)
    return _resolved(migration, chosen, static, [script.path for script, _ in scripts if script is not chosen.script])


def _why_none(run: Run) -> Iterator[tuple[str, str | None]]:
    """Why a run showed no model that classifies, and where."""
    if run.best is not None:
        return
    if run.seen.why is not None:
        told = run.seen.why.removeprefix("it ")  # it came to its end, or was still running
        yield told if told != run.seen.why else f"stopped before it called one: {told}", run.seen.where
    elif run.seen.models:
        called = [
            f"{item.live.class_name} ({item.site}{f', whose outputs go on into {listed(item.feeds)}' if item.feeds else ''})"
            for item in run.seen.models[:_MOST_SCRIPTS]
        ]
        what = "nothing that it called with images gives a row of scores, or a map of classes, for each of them"
        yield f"{what}: {', '.join(called)}; --entry takes another script", None


def _lacks(run: Run) -> bool:
    return run.best is None or run.fits is False


def _is_better(one: Run, other: Run) -> bool:
    return one.best is not None and (other.best is None or one.fits is not False)


def _with_trained_weights(migration: Migration, run: Run, model: str | None) -> Run:
    """The run with the weights of the one file, here before, in which its script saves the model that it trains; as it is
    where it had weights of the user's, or where no such file or several fit."""
    if migration.options.checkpoint is not None or migration.options.random_weights or run.seen.weights_from:
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
        answer = Rehearsed(models=(), why=answer.error, where=answer.where, weights_from=())
    assert isinstance(answer, Rehearsed)
    migration.stood_in[script.path] = frozenset(answer.edges)
    if any(item.startswith("servers: POST ") for item in answer.standins):
        migration.asked.add(script.path)
    return Run(script, recipe, answer, _best(answer.models, model), remark, as_read=True)


def _bounded(sandbox: Sandbox) -> Sandbox:
    return replace(sandbox, limits=replace(sandbox.limits, timeout=min(patience() * _SECONDS, sandbox.limits.timeout)))


def _told_otherwise(migration: Migration, first: Run, static: Resolved | None, model: str | None, end: float) -> Run:
    """The run of a script that stopped, or the first one with other arguments that shows a model."""
    run, alike = first, 0
    for told, where, verbatim in itertools.islice(_otherwise(migration.surveyed, first), _MOST_TOLD):
        again = _run(migration, first.script, [], static, model, (told, where))
        better = _is_better(again, run) and (run.best is None or again.best is None or _worth(again.best) > _worth(run.best))
        if again.seen.why is None or better:
            migration.told[first.script.path] = told
        if better:
            run = replace(again, as_read=False, remark=_and_why(again.remark, first))
        same = again.seen.why is not None and (again.seen.why, again.seen.where) == (first.seen.why, first.seen.where)
        alike += same and verbatim  # once by the choice that is the default's, twice whatever is chosen
        # What else a line names that is not here may lead to a model that is only trained, as one that takes no labels.
        if first.best is not None or (not _lacks(run) and (verbatim or run.evaluated)) or alike > 1 or time.monotonic() > end:
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
    return [*documented_models(surveyed, script), *offered][:_MOST_FOR_A_CHECKPOINT]


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


# -- which model


def _best(models: Sequence[SeenModel], wanted: str | None) -> SeenModel | None:
    """The model that the script evaluates."""
    fitting = [model for model in models if _gives_answers(model) and not model.feeds]
    if wanted is not None:
        named = [model for model in fitting if _is_called(model, wanted, fitting)]
        fitting = named or fitting
    if not fitting:
        return None
    return max(fitting, key=_worth)


def _gives_answers(model: SeenModel) -> bool:
    """Whether it gives rows of numbers, or a map that its script reads as one of classes."""
    return model.classes is not None or any(model.tasks)


def _is_called(model: SeenModel, wanted: str, among: Sequence[SeenModel]) -> bool:
    return wanted in (model.live.class_name, model.site, label(model, among))


def _worth(model: SeenModel) -> tuple[bool, bool, bool, int, bool, int, int]:
    """One that the user's checkpoint fits before others; evaluated, and said to be so, before only trained; judged (by a loss
    or the largest score) before compared, and that before neither; trained before lent by another; then the one that is called
    most, and of equals the last: what came before led to it."""
    evaluates = model.evaluates and model.live.evaluating
    kinds = set(map(kind_of, model.tasks))
    judged = 2 if kinds & {SINGLE_LABEL, MULTI_LABEL} else int(bool(kinds - {"", RAW}))
    return model.fits is True, evaluates, model.evaluates, judged, model.trained, model.calls, model.live.ordinal


def label(model: SeenModel, among: Sequence[SeenModel]) -> str:
    """The name by which --model takes one of several live models: its class, and its number where others are of that class."""
    same = [other for other in among if other.live.class_name == model.live.class_name]
    return model.live.class_name if len(same) == 1 else f"{model.live.class_name}#{same.index(model) + 1}"


def _resolved(migration: Migration, run: Run, static: Resolved | None, others: list[str]) -> Resolved:
    best = run.best
    assert best is not None
    options = migration.options
    random = options.random_weights and not run.seen.weights_from
    live = replace(best.live, random=random)
    path, _, line = best.site.rpartition(":")
    same = static if static is not None and run.as_read and _agree(static, run.script, best, run.seen.models) else None
    labels = _names(migration, best, static)
    mode = "evaluating" if best.evaluates else "training"
    text = f"{live.class_name} called with {best.dtype} [n, {', '.join(map(str, live.row))}], {mode}: {best.output}"
    loops = [loop for loop in migration.surveyed.loops if f"{loop.path}:{loop.call_line}" == best.site]
    for remark in (run.remark, taken_of(others) if others else None):
        if remark is not None:
            migration.remark("PS011", remark, "note", run.script.path)
    if run.seen.standins:
        message = f"run to see its model, with stand-ins: {'; '.join(run.seen.standins)}"
        migration.remark("PS517", message, "note", run.script.path)
    for width in filter(None, best.widths):
        if any(item.endswith(f" {width} {GUESSED}") for item in run.seen.standins) and not _states(migration, width):
            message = (
                f"nothing states how many classes there are: {live.class_name} has {width} outputs because the data that stood "
                "in had as many classes; --data DIR gives the folder of yours"
            )
            migration.remark("PS532", message, "warning", best.site)
    if best.in_training and best.evaluates:
        message = (
            f"{live.class_name} is used here in training mode, where {' and '.join(best.in_training)} compute something else; "
            "the package computes what they do in evaluation mode: call .eval() before"
        )
        migration.remark("PS531", message, "warning", best.site)
    if best.as_read is False and static is not None:
        message = f"reading the sources leads to {static.name}, and {live.class_name} here is not of its structure; it is taken"
        migration.remark("PS518", message, "note", best.site)
    left = [model for model in run.seen.models if model is not best and _gives_answers(model)]
    if left:
        names = listed([f"{label(model, run.seen.models)} ({model.site}, {model.calls} calls)" for model in left])
        migration.remark(
            "PS011", f"taken for the model; the script also calls {names} (--model takes another)", "note", best.site
        )
    return Resolved(
        name=same.name if same is not None else live.class_name,
        recipe=replace(run.recipe, root=str(migration.surveyed.root), live=live),
        factory=(same.factory if same is not None else None) or best.factory,
        factory_name=live.class_name,
        chain=(*(same.chain if same is not None else ()), ChainStep("call", path, int(line or 1), text)),
        script=run.script,
        told=run.recipe.argv,
        loop=loops[0] if loops else None,
        checkpoints=same.checkpoints if same is not None else tuple(s for s in migration.surveyed.checkpoints if s.weights),
        transform_recipe=_transform(replace(run.recipe, root=str(migration.surveyed.root), live=live), static, best.site),
        stated_transform=static.transform_recipe if static is not None and (same or static.script == run.script) else None,
        class_names=labels[0] if len(labels) == 1 else None,
        labels=labels if len(labels) > 1 else (),
        class_names_recipe=static.class_names_recipe if static is not None and not any(best.labels) else None,
        task=_task(migration, best, run.script),
        widths=best.widths,
        input_size=live.row,
        findings=_still_true(static, run.script, same is not None),
        weights_from=run.seen.weights_from,
    )


def _states(migration: Migration, width: int) -> bool:
    return states_width(project_index(migration.surveyed).repository.modules.values(), width)


def _task(migration: Migration, best: SeenModel, script: Script) -> str:
    """What its outputs are; what a run did not show of one output is taken from the sources, where they tell."""
    near = modules_near(migration.surveyed, script)
    if len(best.tasks) != 1:
        return ",".join(with_threshold(task or RAW, near) for task in best.tasks)
    (task,) = best.tasks
    if not task and best.classes is not None:
        task = stated_task(near, best.classes)
    return with_threshold(task, near)


def _names(migration: Migration, best: SeenModel, static: Resolved | None) -> tuple[tuple[str, ...] | None, ...]:
    """The names of each output's entries: those that the run showed, else as many as its script states, or only one list in all
    the sources does."""
    near = static.class_names if static is not None else None
    stated = {*all_class_names(project_index(migration.surveyed).repository.modules.values())}
    found = []
    for names, task, width in zip(best.labels, best.tasks, best.widths, strict=True):
        if names is None and best.widths.count(width) == 1 and kind_of(task) in ("", SINGLE_LABEL, MULTI_LABEL):
            fitting = [item for item in ([near] if near is not None else []) if len(item) == width]
            fitting = fitting or [item for item in stated if len(item) == width]
            found.append(fitting[0] if len(fitting) == 1 else None)
        else:
            found.append(names)
    return tuple(found)


def _still_true(static: Resolved | None, script: Script, same: bool) -> tuple[Finding, ...]:
    """What reading remarked, without what it chose where the run chose otherwise."""
    findings = static.findings if static is not None else ()
    own = same and script.server is None  # a server makes the model otherwise than the sources were read
    return tuple(item for item in findings if item.code not in _CHOICES or (own and item.path in ("", script.path)))


def _transform(recipe: Recipe, static: Resolved | None, site: str) -> TransformRecipe:
    """What the script does to the images of that call."""
    stated = static.transform_recipe if static is not None else None
    return TransformRecipe(**vars(recipe), takes="image", source_at=stated.source_at if stated is not None else site)


def _agree(static: Resolved, script: Script, best: SeenModel, among: Sequence[SeenModel]) -> bool:
    """Whether reading led to the model that ran: by their structure, and as far as their places tell where it builds none.

    Where reading led to another script's model, that both have no place is no sign that they are one; and of a script with
    models of several classes only one that is called like what was read.
    """
    if best.as_read is not None:
        return best.as_read
    if static.factory is None or best.factory is None:
        several = len({model.live.class_name for model in among}) > 1
        alike = best.live.class_name.lower() in static.name.lower().replace("_", "")
        return (static.script is None or static.script.path == script.path) and (alike or not several)
    return static.factory.rpartition(":")[0] == best.factory.rpartition(":")[0] or static.factory_name == best.live.class_name
