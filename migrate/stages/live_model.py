"""The model that a run of a script showed: which of those that it called, and what is known of it then."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ..proving.rehearsal_protocol import GUESSED
from ..proving.worker_protocol import Rehearsed, SeenModel
from ..reading.facts import CheckpointSite, Script, Survey
from ..reading.finding import Finding
from ..reading.recipe import Recipe, TransformRecipe
from ..resolving.labels import all_class_names, looked_up_names, stored_names
from ..resolving.ranking import listed, taken_of
from ..resolving.resolve import tidy
from ..resolving.resolved import ChainStep, Resolved
from ..resolving.task import (
    EMBEDDING,
    MULTI_LABEL,
    RAW,
    SINGLE_LABEL,
    kind_of,
    modules_near,
    stated_task,
    states_width,
    with_threshold,
)
from ..slicing.recipes import names_model
from ..survey.survey import project_index
from .migration import Migration

_IMAGE = re.compile(r"^data: (.*[/\\])?image_\d{4}(\.\w{3,4})+$")
_FETCHED = " was made, not downloaded"
_MADE_PROCESSOR = re.compile(r"(preprocessor_config\.json) of (\S+) was made")
_OF_HUB = re.compile(r"[/\\]hub[/\\](checkpoints[/\\]|models--)")
"""In the caches of torch and of Hugging Face, where a library finds what it would download."""
_NAME = re.compile(r"(?<=: ).*?(?=\.\w+$|$)")
"""A file's name without its ending, in what stood in."""
_CHOICES = frozenset(["PS011", "PS015"])
"""Remarks that say what was taken where several things fit."""
_SHOWN = frozenset(["PS013", "PS014"])
"""The remarks that reading led to no transform, which a run shows or PS504 says is not, and that a neutral value was put for an
argument, for which a run has another, which it tells."""
_ANY_MODEL = re.compile(
    r"_?(build|load|create|make|get|init|new|set_?up|prepare|define)(_?(the_?)?(my_?)?(model|net|network|classifier))?", re.I
)
"""What a function that makes a model is called whatever it makes."""
_MOST_NAMED = 3
"""So many of the models that give no answers are named."""


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

    def predicts(self, among: Collection[Run] = ()) -> bool:
        """Whether a script that trains nothing had a classifier with the user's weights answer, be it in training mode."""
        answers = self.judged and not self.compares(among) and not self.scores_nothing
        return answers and bool(self.seen.weights_from) and "train" not in self.script.roles and self.fits is not False

    def compares(self, others: Collection[Run] = ()) -> bool:
        """Whether its model gives features that are compared, as this run tells or one of the others in which it is the same:
        where a repository has a classifier as well, that is meant."""
        best = self.best
        if best is None:
            return False
        same = [run.best for run in others if run.best is not None and _is_same(run.best, best)]
        kinds = {kind_of(task) for model in (best, *same) for task in model.tasks if task}
        return kinds == {EMBEDDING}

    @property
    def scores_nothing(self) -> bool:
        """Whether its model gives numbers of which nothing tells that they are scores of labels: an energy, an age, or, with
        nobody's weights or a hub's, features for something else. Where a repository has a classifier as well, that is meant."""
        if self.best is None or _judgement(self.best) > 0:
            return False
        return self.best.classes == 1 or all(map(_OF_HUB.search, self.seen.weights_from))

    def answers(self, among: Collection[Run] = ()) -> bool:
        """Whether it evaluated what a classifier is asked for."""
        return self.evaluated and not self.compares(among) and not self.scores_nothing

    @property
    def fits(self) -> bool | None:
        """Whether the checkpoint that the user gave is one of its model."""
        return self.best.fits if self.best is not None else None

    @property
    def evaluated(self) -> bool:
        """Whether it evaluated a model."""
        return self.best is not None and worth(self.best)[1]

    @property
    def judged(self) -> bool:
        """Whether a loss, the largest score or a comparison judges what its model gives, or the model is evaluated."""
        return self.best is not None and (self.evaluated or _judgement(self.best) > 0)


def _is_same(one: SeenModel, other: SeenModel) -> bool:
    return (one.live.class_name, one.factory, one.widths) == (other.live.class_name, other.factory, other.widths)


def why_none(run: Run) -> Iterator[tuple[str, str | None]]:
    """Why a run showed no model that classifies, and where."""
    if run.best is not None:
        return
    if run.seen.why is not None:
        told = run.seen.why.removeprefix("it ")  # it came to its end, or was still running
        yield told if told != run.seen.why else f"stopped before it called one: {told}", run.seen.where
    elif run.seen.models:
        called = [f"{item.live.class_name} ({item.site}{_unlike(item)})" for item in run.seen.models[:_MOST_NAMED]]
        what = "nothing that it called with images gives a row of scores, or a map of classes, for each of them"
        yield f"{what}: {', '.join(called)}; --entry takes another script", None


def _unlike(model: SeenModel) -> str:
    """What a model does that one which classifies does not."""
    if model.together > 1:
        return f", which takes {model.together} batches of images at once, to compare them or to make one of them"
    return f", whose outputs go on into {listed(model.feeds)}" if model.feeds else ""


def best_of(models: Sequence[SeenModel], wanted: str | None) -> SeenModel | None:
    """The model that the script evaluates. One that is of another structure than that to which reading the sources leads, and
    that is not trained while that one is, only teaches it."""
    fitting = [model for model in models if gives_answers(model) and not model.feeds]
    if any(model.as_read is True and model.trained for model in fitting):
        fitting = [model for model in fitting if model.as_read is True or model.trained or model.fits is True]
    if wanted is not None:
        named = [model for model in fitting if is_called(model, wanted, fitting)]
        fitting = named or fitting
    if not fitting:
        return None
    return max(fitting, key=worth)


def gives_answers(model: SeenModel) -> bool:
    """Whether it gives rows of numbers, or a map that its script reads as one of classes, for each image alone."""
    return model.together == 1 and (model.classes is not None or any(model.tasks))


def is_called(model: SeenModel, wanted: str, among: Sequence[SeenModel]) -> bool:
    return wanted in (model.live.class_name, model.site, label(model, among))


def worth(model: SeenModel) -> tuple[bool, bool, bool, int, bool, int, int]:
    """One that the user's checkpoint fits before others; evaluated, and said to be so, before only trained; judged (by a loss
    or the largest score) before compared, and that before neither; trained before lent by another; then the one that is called
    most, and of equals the last: what came before led to it."""
    evaluates = model.evaluates and model.live.evaluating
    return model.fits is True, evaluates, model.evaluates, _judgement(model), model.trained, model.calls, model.live.ordinal


def _judgement(model: SeenModel) -> int:
    """2 where what it gives is judged (by a loss or the largest score), 1 where it is compared, 0 where it is neither."""
    kinds = set(map(kind_of, model.tasks))
    return 2 if kinds & {SINGLE_LABEL, MULTI_LABEL} else int(bool(kinds - {"", RAW}))


def label(model: SeenModel, among: Sequence[SeenModel]) -> str:
    """The name by which --model takes one of several live models: its class, and its number where others are of that class."""
    same = [other for other in among if other.live.class_name == model.live.class_name]
    return model.live.class_name if len(same) == 1 else f"{model.live.class_name}#{same.index(model) + 1}"


def shortened(standins: Sequence[str]) -> list[str]:
    """What stood in, with one of the images that a made table or list names, and one of each kind of file that would have been
    downloaded, and how many there were."""
    alike: dict[str, list[str]] = {}
    for item in standins:
        fetched = item.endswith(_FETCHED)
        kind = "images" if _IMAGE.search(item) else _NAME.sub("", item.removesuffix(_FETCHED)) if fetched else item
        alike.setdefault(f"{kind}{_FETCHED if fetched else ''}", []).append(item)
    return [_of_several(*items) for items in alike.values()]


def _of_several(first: str, *others: str) -> str:
    if not others:
        return first
    if first.endswith(_FETCHED):
        return f"{first.removesuffix(_FETCHED)} and {len(others)} more{_FETCHED}"
    return f"{first} and {len(others)} more that a table or a list names"


def resolved(migration: Migration, run: Run, static: Resolved | None, others: list[str]) -> Resolved:
    best = run.best
    assert best is not None
    options = migration.options
    random = options.random_weights and not run.seen.weights_from
    live = replace(best.live, random=random)
    path, _, line = best.site.rpartition(":")
    same = (
        static
        if static is not None and run.as_read and agree(static, run.script, best, run.seen.models, _classes(migration))
        else None
    )
    labels = _names(migration, best, static)
    mode = "evaluating" if best.evaluates else "training"
    text = f"{live.class_name} called with {best.dtype} [n, {', '.join(map(str, live.row))}], {mode}: {best.output}"
    loops = [loop for loop in migration.surveyed.loops if f"{loop.path}:{loop.call_line}" == best.site]
    for remark in (run.remark, taken_of(others) if others else None):
        if remark is not None:
            migration.remark("PS011", remark, "note", run.script.path)
    if run.seen.standins:
        message = f"run to see its model, with stand-ins: {'; '.join(shortened(run.seen.standins))}"
        migration.remark("PS517", message, "note", run.script.path)
    for width in filter(None, best.widths):
        if any(item.endswith(f" {width} {GUESSED}") for item in run.seen.standins) and not _states(migration, width):
            message = (
                f"nothing states how many classes there are: {live.class_name} has {width} outputs because the data that stood "
                "in had as many classes; --data DIR gives the folder of yours"
            )
            migration.remark("PS532", message, "warning", best.site)
    if run.scores_nothing and best.classes != 1 and others:
        message = (
            f"{live.class_name} is taken for the model, though nothing here tells that what it gives are scores of classes: "
            "they may be features for something else; --entry takes another script"
        )
        migration.remark("PS011", message, "warning", best.site)
    for file, of in dict.fromkeys(found.groups() for item in run.seen.standins if (found := _MADE_PROCESSOR.search(item))):
        message = (
            f"how images are prepared is nobody's: {file} of {of} is not here, and what transformers does by itself stands in; "
            "before weights of yours are served, put the file where the script looks for it"
        )
        migration.remark("PS509", message, "warning", best.site)
    if best.in_training and best.evaluates:
        message = (
            f"{live.class_name} is used here in training mode, where {' and '.join(best.in_training)} compute something else; "
            "the package computes what they do in evaluation mode: call .eval() before"
        )
        migration.remark("PS531", message, "warning", best.site)
    if live.drawing:
        message = (
            f"{live.class_name} is evaluated here with dropout that draws, as for estimates of uncertainty; the package "
            "computes without, which cannot be held against the script's outputs; its calls in the script go on to draw"
        )
        migration.remark("PS531", message, "warning", best.site)
    if best.beside:
        message = (
            f"{live.class_name} is called with {', '.join(best.beside)} beside its images, once; the package has that for all "
            "images: where it is made of the image, do so in its forward()"
        )
        migration.remark("PS533", message, "note", best.site)
    for where, what in best.otherwise:
        message = (
            f"{what}; the package answers by what {live.class_name} alone gives: do this in its forward(), or where the "
            "answers are used"
        )
        migration.remark("PS533", message, "warning", where)
    if best.as_read is False and static is not None:
        message = f"reading the sources leads to {static.name}, and {live.class_name} here is not of its structure; it is taken"
        migration.remark("PS518", message, "note", best.site)
    left = [model for model in run.seen.models if model is not best and gives_answers(model)]
    if left:
        names = listed([f"{label(model, run.seen.models)} ({model.site}, {model.calls} calls)" for model in left])
        migration.remark(
            "PS011", f"taken for the model; the script also calls {names} (--model takes another)", "note", best.site
        )
    read = static.transform_recipe if static is not None and (same or static.script == run.script) else None
    return Resolved(
        name=(_guessed_name(run) if same is not None else None) or _name(migration, live.class_name, same),
        recipe=replace(run.recipe, root=str(migration.surveyed.root), live=live),
        factory=(same.factory if same is not None else None) or best.factory,
        factory_name=live.class_name,
        chain=(*(same.chain if same is not None else ()), ChainStep("call", path, int(line or 1), text)),
        script=run.script,
        told=run.recipe.argv,
        loop=loops[0] if loops else None,
        checkpoints=_checkpoints(migration.surveyed, same, run.seen.weights_from),
        transform_recipe=_transform(replace(run.recipe, root=str(migration.surveyed.root), live=live), read, best.site),
        stated_transform=read,
        class_names=labels[0] if len(labels) == 1 else None,
        labels=labels if len(labels) > 1 else (),
        class_names_recipe=static.class_names_recipe if static is not None and not any(best.labels) else None,
        task=_task(migration, best, run.script),
        widths=best.widths,
        input_size=live.row,
        findings=_still_true(static, run.script, same is not None),
        weights_from=run.seen.weights_from,
    )


def _checkpoints(surveyed: Survey, same: Resolved | None, taken: Sequence[str] = ()) -> tuple[CheckpointSite, ...]:
    """Where its weights are loaded, as reading followed that from its script; every such place where it followed none, or to no
    such place though the run has `taken` files."""
    if same is not None and same.script is not None and (same.checkpoints or not taken):
        return same.checkpoints
    return tuple(site for site in surveyed.checkpoints if site.weights)


def _name(migration: Migration, class_name: str, same: Resolved | None) -> str:
    """What to call a model: as reading did, which led to the same one and to a name, else as its class is called; a container,
    and a function that makes any model (`load`), could be of any."""
    root = migration.surveyed.root.name
    read = same.name if same is not None and same.name != tidy(root) and not _ANY_MODEL.fullmatch(same.name) else None
    return read or (root if class_name == "Sequential" else class_name)


def _classes(migration: Migration) -> list[str]:
    """The names of the repository's classes, each as often as there are such."""
    modules = project_index(migration.surveyed).repository.modules.values()
    return [name for module in modules for name, found in module.definitions.items() if isinstance(found, ast.ClassDef)]


def _guessed_name(run: Run) -> str | None:
    """The model that was guessed for an option by which people choose one; reading the sources took the option's default."""
    chosen_by = {flag for option in run.script.options if names_model(option) for flag in (*option.flags, option.dest)}
    guesses = (re.fullmatch(r"arguments: (\S+) ([A-Za-z][\w.-]*) was guessed", item) for item in run.seen.standins)
    return next((found[2] for found in guesses if found is not None and found[1] in chosen_by), None)


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
    the sources does, or only one in which a prediction is looked up."""
    near = static.class_names if static is not None else None
    modules = project_index(migration.surveyed).repository.modules.values()
    stated = {*all_class_names(modules)}
    found = []
    for names, task, width in zip(best.labels, best.tasks, best.widths, strict=True):
        if names is None and best.widths.count(width) == 1 and kind_of(task) in ("", SINGLE_LABEL, MULTI_LABEL):
            fitting = [item for item in ([near] if near is not None else []) if len(item) == width]
            fitting = fitting or [item for item in stated if len(item) == width]
            fitting = fitting or [item for item in {*looked_up_names(modules)} if len(item) == width]
            fitting = fitting or list({*stored_names(migration.surveyed.root, modules, width)} if width else ())
            found.append(fitting[0] if len(fitting) == 1 else None)
        else:
            found.append(names)
    return tuple(found)


def _still_true(static: Resolved | None, script: Script, same: bool) -> tuple[Finding, ...]:
    """What reading remarked, without what the run shows and what it chose where the run chose otherwise."""
    findings = static.findings if static is not None else ()
    own = same and script.server is None  # a server makes the model otherwise than the sources were read
    # Nor is a model that ran one that was built with its own defaults, for want of a script.
    left = (item for item in findings if item.code not in _SHOWN and (item.code, item.path) != ("PS015", ""))
    return tuple(item for item in left if item.code not in _CHOICES or (own and item.path in ("", script.path)))


def _transform(recipe: Recipe, stated: TransformRecipe | None, site: str) -> TransformRecipe:
    """What the script does to the images of that call; its place is that call where the sources of no such script state it."""
    return TransformRecipe(**vars(recipe), takes="image", source_at=stated.source_at if stated is not None else site)


def agree(static: Resolved, script: Script, best: SeenModel, among: Sequence[SeenModel], classes: Collection[str] = ()) -> bool:
    """Whether reading led to the model that ran: by their structure, and as far as their places tell where it builds none.

    Where reading led to another script's model, that both have no place is no sign that they are one; of a script with models
    of several classes only one that is called like what was read; nor is it one of another of the repository's `classes`.
    """
    if best.as_read is not None:
        return best.as_read
    if static.factory is None or best.factory is None:
        several = len({model.live.class_name for model in among}) > 1
        alike = best.live.class_name.lower() in static.name.lower().replace("_", "")
        other = static.factory_name in classes and static.factory_name != best.live.class_name
        return (static.script is None or static.script.path == script.path) and (alike or not (several or other))
    if static.factory.rpartition(":")[0] == best.factory.rpartition(":")[0]:
        return True
    # Several files may each have a `Net` of their own.
    return static.factory_name == best.live.class_name and list(classes).count(best.live.class_name) < 2
