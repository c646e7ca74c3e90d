"""The model taken live: the repository's scripts run as they stand, and the model that they evaluate is the one."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import AmbiguousError, MigrateError
from ..proving.script_arguments import arguments
from ..proving.worker_protocol import Failed, Rehearse, Rehearsed, SeenModel
from ..reading.facts import Script
from ..reading.finding import Finding
from ..reading.recipe import Recipe, TransformRecipe
from ..reading.source import NOTEBOOK, readme_text
from ..resolving.labels import all_class_names
from ..resolving.resolved import ChainStep, Resolved
from ..slicing.recipes import working_folder
from ..survey.survey import project_index, runnable
from .migration import Migration
from .worker_client import ask

_MOST_SCRIPTS = 3
_SECONDS = 150.0
"""What one run may take at most; the worker ends it by itself long before."""


@dataclass(frozen=True)
class Run:
    """One script that was run, and the best of the models that it called; None where it called none that classifies."""

    script: Script
    recipe: Recipe
    seen: Rehearsed
    best: SeenModel | None

    @property
    def is_certain(self) -> bool:
        """Whether it evaluated a model with weights that are the user's: no other script can tell more."""
        best = self.best
        return best is not None and best.live.evaluating and best.evaluates and bool(self.seen.weights_from)


def rehearse_model(
    migration: Migration, found: Resolved | MigrateError, *, entry: str | None, model: str | None
) -> Resolved | list[Finding]:
    """The model of the script that says most about it, taken from a run; where none comes to call a model, what stopped each.

    `found` is what reading the sources led to: its arguments are tried first, and what a run cannot tell is taken from it.
    Raises AmbiguousError where a script evaluates several models alike and `model` names none of them.
    """
    static = found if isinstance(found, Resolved) else None
    if static is not None and static.script is None and model is not None:
        return []  # a model that is built as no script does it
    if isinstance(found, AmbiguousError) and entry is None and _are_equal(migration, found):
        return []
    runs: list[Run] = []
    for script, given in _candidates(migration, entry, static)[:_MOST_SCRIPTS]:
        run = _run(migration, script, given, static, model)
        runs.append(run)
        if run.is_certain:
            break
    taken = [run for run in runs if run.best is not None]
    if not taken:
        message = "the script was run to see its model, and stopped before it called one: "
        stopped = [run for run in runs if run.seen.why is not None]
        return [
            migration.remark("PS516", f"{message}{run.seen.why}", "note", run.seen.where or run.script.path) for run in stopped
        ]
    chosen = max(taken, key=lambda run: (run.is_certain, run.best is not None and _worth(run.best)[:2]))
    return _resolved(migration, chosen, static, [run.script.path for run in runs if run is not chosen])


# -- which script


def _candidates(migration: Migration, entry: str | None, static: Resolved | None) -> list[tuple[Script, list[str]]]:
    """The scripts to run, best first, each with the arguments that the user gave for it."""
    surveyed = migration.surveyed
    if entry is not None:
        path, *given = [entry] if Path(entry).is_file() else shlex.split(entry)
        known = [script for script in surveyed.scripts if _is_named(script.path, path, migration)]
        known = known or [script for script in runnable(surveyed) if _is_named(script.path, path, migration)]
        return [(known[0], given)] if len(known) == 1 else []
    scripts = list(surveyed.scripts) or runnable(surveyed)
    readme = readme_text(surveyed.root)
    read = static.script if static is not None else None  # reading the sources found the others to be no better
    scripts.sort(key=lambda script: (read is not None and script.path != read.path, _rank(script, readme)))
    return [(script, []) for script in scripts if not _is_test(script.path)] or [(script, []) for script in scripts]


def _are_equal(migration: Migration, choice: AmbiguousError) -> bool:
    """Whether a choice is one between equals, which only the user can make: of scripts, or of what a script must be told."""
    if choice.argument or choice.flag != "--entry":
        return choice.argument
    readme = readme_text(migration.surveyed.root)
    known = {script.path: script for script in migration.surveyed.scripts}
    ranks = sorted(_rank(known[path], readme)[:4] if path in known else () for path in choice.candidates)
    return not all(ranks) or ranks[:1] == ranks[1:2]


def _rank(script: Script, readme: str) -> tuple[object, ...]:
    """A script that only evaluates says best how the model is used; then prediction, then training that evaluates. What the
    README names beats others of its kind, and notebooks come last."""
    roles = set(script.roles)
    order = 1 if "train" not in roles and "evaluate" in roles else 2 if "train" not in roles and "predict" in roles else 3
    named = posixpath.basename(script.path) in readme
    return script.path.endswith(NOTEBOOK), order, not named, script.path.count("/"), len(script.path), script.path


def _is_named(path: str, wanted: str, migration: Migration) -> bool:
    wanted = wanted.replace("\\", "/").removeprefix("./")
    absolute = Path(wanted).absolute()
    root = migration.surveyed.root.absolute()
    if absolute.is_relative_to(root) and absolute.is_file():
        wanted = absolute.relative_to(root).as_posix()
    return path == wanted or path.endswith(f"/{wanted}")


def _is_test(path: str) -> bool:
    return posixpath.basename(path).startswith("test_") or "/tests/" in f"/{path}"


# -- one run


def _run(migration: Migration, script: Script, given: list[str], static: Resolved | None, model: str | None) -> Run:
    migration.fresh_tree()
    argv = _arguments(migration, script, given, static)
    known = project_index(migration.surveyed)
    directory = working_folder(known.repository.modules[script.path], known.repository)
    recipe = Recipe(root=str(migration.tree), script=script.path, directory=directory, argv=tuple(argv))
    progress = migration.stages.start(f"Running {script.path} to see its model")
    limits = migration.options.limits
    sandbox = replace(migration.sandbox, limits=replace(limits, timeout=min(_SECONDS, limits.timeout)))
    read = static.recipe.in_copy(migration.tree) if static is not None and static.script == script else None
    answer = ask(Rehearse(recipe=recipe, read=read), sandbox, progress)
    if isinstance(answer, Failed):
        answer = Rehearsed(models=(), why=answer.error, where=answer.where, weights_from=())
    assert isinstance(answer, Rehearsed)
    migration.stood_in[script.path] = frozenset(answer.edges)
    return Run(script, recipe, answer, _best(script, answer.models, model))


def _arguments(migration: Migration, script: Script, given: list[str], static: Resolved | None) -> list[str]:
    if static is not None and static.script is not None and static.script.path == script.path:
        return list(static.recipe.argv)
    if given:
        return given
    known = static.recipe.argv if static is not None else ()
    found = arguments(script, migration.tree, known, data=migration.options.data)
    return found if isinstance(found, list) else []  # the rehearsal guesses what a script requires


# -- which model


def _best(script: Script, models: Sequence[SeenModel], wanted: str | None) -> SeenModel | None:
    """The model that the script evaluates. Raises AmbiguousError where it evaluates several alike."""
    fitting = [model for model in models if model.classes is not None and not model.feeds]
    if wanted is not None:
        named = [model for model in fitting if wanted in (model.live.class_name, model.site, label(model, fitting))]
        fitting = named or fitting
    if not fitting:
        return None
    ranked = sorted(fitting, key=_worth, reverse=True)
    best = ranked[0]
    alike = [model for model in ranked if _worth(model) == _worth(best)]
    if len(alike) > 1:
        names = [label(model, fitting) for model in alike]
        made = ", ".join(f"{name} at {model.site}" for name, model in zip(names, alike, strict=True))
        message = f"{script.path} evaluates {len(alike)} models alike: {made}"
        raise AmbiguousError(message, candidates=names, flag="--model")
    return best


def _worth(model: SeenModel) -> tuple[bool, bool, bool, int]:
    """Evaluated, and said to be so, before only trained; judged (by a loss or the largest score) before not; then the one that
    is called most."""
    evaluates = model.evaluates and model.live.evaluating
    return evaluates, model.evaluates, model.task in ("labels", "multi-label"), model.calls


def label(model: SeenModel, among: Sequence[SeenModel]) -> str:
    """The name by which --model takes one of several live models: its class, and its number where others are of that class."""
    same = [other for other in among if other.live.class_name == model.live.class_name]
    return model.live.class_name if len(same) == 1 else f"{model.live.class_name}#{same.index(model) + 1}"


def _resolved(migration: Migration, run: Run, static: Resolved | None, others: list[str]) -> Resolved:
    best = run.best
    assert best is not None
    options = migration.options
    random = options.random_weights and not run.seen.weights_from
    live = replace(best.live, checkpoint=options.checkpoint, random=random)
    path, _, line = best.site.rpartition(":")
    same = static if static is not None and _agree(static, best) else None
    mode = "evaluating" if best.evaluates else "training"
    text = f"{live.class_name} called with {best.dtype} [n, {', '.join(map(str, live.row))}], {mode}: {best.output}"
    loops = [loop for loop in migration.surveyed.loops if f"{loop.path}:{loop.call_line}" == best.site]
    if others:
        message = f"the model is that of this script; --entry takes another ({', '.join(others)})"
        migration.remark("PS011", message, "note", run.script.path)
    if run.seen.standins:
        message = f"run to see its model, with stand-ins: {'; '.join(run.seen.standins)}"
        migration.remark("PS517", message, "note", run.script.path)
    if best.in_training and best.evaluates:
        message = (
            f"{live.class_name} is used here in training mode, where {' and '.join(best.in_training)} compute something else; "
            "the package computes what they do in evaluation mode: call .eval() before"
        )
        migration.remark("PS531", message, "warning", best.site)
    if best.as_read is False and static is not None:
        message = f"reading the sources leads to {static.name}, and {live.class_name} here is not of its structure; it is taken"
        migration.remark("PS518", message, "note", best.site)
    left = [model for model in run.seen.models if model is not best and model.classes is not None]
    if left:
        names = ", ".join(f"{label(model, run.seen.models)} ({model.site}, {model.calls} calls)" for model in left)
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
        loop=loops[0] if loops else None,
        checkpoints=same.checkpoints if same is not None else tuple(s for s in migration.surveyed.checkpoints if s.weights),
        transform_recipe=_transform(replace(run.recipe, root=str(migration.surveyed.root), live=live), static, best.site),
        stated_transform=static.transform_recipe if static is not None else None,
        class_names=best.labels or _stated_names(migration, best, static),
        class_names_recipe=static.class_names_recipe if static is not None and best.labels is None else None,
        input_size=live.row,
        findings=static.findings if static is not None else (),
        classes=best.classes,
        weights_from=run.seen.weights_from,
    )


def _stated_names(migration: Migration, best: SeenModel, static: Resolved | None) -> tuple[str, ...] | None:
    """As many class names as the model has outputs, where its script states them, or only one list in all the sources does."""
    near = static.class_names if static is not None else None
    if near is not None and len(near) == best.classes:
        return near
    modules = project_index(migration.surveyed).repository.modules.values()
    stated = {names for names in all_class_names(modules) if len(names) == best.classes}
    return next(iter(stated)) if len(stated) == 1 else None


def _transform(recipe: Recipe, static: Resolved | None, site: str) -> TransformRecipe:
    """What the script does to the images of that call."""
    stated = static.transform_recipe if static is not None else None
    return TransformRecipe(**vars(recipe), takes="image", source_at=stated.source_at if stated is not None else site)


def _agree(static: Resolved, best: SeenModel) -> bool:
    """Whether reading led to the model that ran: by their structure, and as far as their places tell where it builds none."""
    if best.as_read is not None:
        return best.as_read
    if static.factory is None or best.factory is None:
        return True
    return static.factory.rpartition(":")[0] == best.factory.rpartition(":")[0] or static.factory_name == best.live.class_name
