"""One model: built as its script builds it, captured, proved and packaged, with what the script runs recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import AmbiguousError, SandboxError
from ...specs import Preprocessing
from ..proving.instrument import site_of
from ..proving.routes.keep import keep_routes
from ..proving.trace_transform import Traced, row_shape
from ..proving.verify import Recorded
from ..proving.visible_files import remedy
from ..proving.worker_protocol import Failed, Inspected, Package, Row
from ..reading.facts import CheckpointSite
from ..reading.recipe import Recipe
from ..reporting.report import ModelReport, Parity, Speedup
from ..resolving.model_metadata import imported
from ..resolving.ranking import listed
from ..resolving.resolved import Resolved
from ..survey.survey import project_index
from .migration import Migration
from .model.outputs import labels_of, remark_printed, remark_taken_for, task_of
from .model.own_images import remark_own_images
from .model.preprocessing import preprocessing_of, traced
from .repair_parity import compare_with_unrepaired
from .scripts.originals import OriginalRun, Originals
from .worker_client import inspect, model_name, package, smoke_tests

_UNSEEN = re.compile(r"safetensors|safe_open")  # reads files without Python's knowledge
"""In the source of a construction: its weights may be more than initial ones."""
_INSTEAD = "its clients can send the image to /v1/classify/MODEL"
_SIZES = ("3,224,224", "3,32,32", "1,28,28")


@dataclass(frozen=True, kw_only=True)
class ModelOutcome:
    """How far one model came. `packaged`: it lies in `scratch/models/<name>`."""

    model: ModelReport
    packaged: bool = False
    weights_loaded: bool | None = None
    """Whether it was built with its stored weights; None where that was not tried."""
    preprocessing: Preprocessing | None = None


@dataclass(frozen=True, kw_only=True)
class _KnownInput:
    """What is known about the model's input before it is built. `own` says that `recorded` came out of this very model."""

    traced: Traced
    recorded: Recorded | None
    own: bool

    def rows(self, migration: Migration, resolved: Resolved) -> list[Row]:
        """Inputs (channels, height, width) to try, of the best source only: asked for, fed, transformed to, stated."""
        if migration.options.input_size is not None:
            return [migration.options.input_size]
        if resolved.recipe.live is not None:
            return [resolved.recipe.live.row]
        fed: list[Row] = []
        if self.recorded is not None and self.recorded.inputs.ndim == 4:
            _, channels, height, width = self.recorded.inputs.shape
            fed = [(channels, height, width)]
            if self.own:
                return fed
        rows = [row_shape(candidate) for candidate in self.traced.candidates]
        if not any(rows) and resolved.image_size is not None:  # a resize of the shorter side, of images that are all alike
            rows = [row_shape(candidate, resolved.image_size[1:]) for candidate in self.traced.candidates]
        known = [*fed, *rows, resolved.input_size]
        return list(dict.fromkeys(row for row in known if row is not None))


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A recipe that builds the model, the input it takes, and what else is known of it. `fresh`: without its checkpoint."""

    recipe: Recipe
    fresh: bool
    row: Row
    classes: int | None
    class_name: str
    factory: str | None
    weights_from: tuple[str, ...]

    @property
    def has_weights(self) -> bool:
        """Whether it was built with stored weights, and not only by code that would have loaded some."""
        return not self.fresh and bool(self.weights_from or _UNSEEN.search(self.recipe.source))


def package_model(migration: Migration, resolved: Resolved, originals: Originals, models_folder: str) -> ModelOutcome:
    """Package the resolved model as `scratch/models/<name>`; what went wrong is remarked.

    Raises AmbiguousError when several input sizes work and nothing says which is meant.
    """
    recorded, own = _recorded(migration, resolved, originals)
    known = _KnownInput(traced=traced(migration, resolved), recorded=recorded, own=own)
    model = ModelReport(name=resolved.name, factory=resolved.factory)
    migration.stages.start("Building the model")
    built = _build(migration, resolved, known)
    if isinstance(built, str):
        return ModelOutcome(model=replace(model, parity=Parity(why=built)), weights_loaded=False)
    row, weights = built.row, built.has_weights
    name = model_name(resolved.name or built.class_name)
    model = replace(
        model, name=name, built=True, input=list(row), classes=built.classes, factory=model.factory or built.factory,
        random_weights=not weights,
    )  # fmt: skip
    if not weights and not migration.options.random_weights:
        return ModelOutcome(model=replace(model, parity=Parity(why=_no_weights(migration, resolved))), weights_loaded=False)
    repaired = compare_with_unrepaired(migration, name, built.recipe, row, fresh=built.fresh)
    if repaired.differs is not None:
        parity = Parity(status="failed", why=repaired.differs)
        return ModelOutcome(model=replace(model, parity=parity), weights_loaded=weights)
    task = task_of(migration, resolved, name, built.classes)
    labels = labels_of(migration, resolved, recorded, built.classes, task)
    if not task and not labels:  # as many names as outputs tell that these are classes
        remark_taken_for(migration, resolved, name, built.classes)
    if own and recorded is not None:
        remark_printed(migration, resolved, originals, recorded, labels, task)
    preprocessing, why_not = preprocessing_of(migration, resolved, known.traced, row)
    if own and recorded is not None and preprocessing is not None and originals.on_own_data(resolved.recipe.script):
        remark_own_images(migration, preprocessing, recorded, preprocessing.source)
    request = Package(
        recipe=built.recipe,
        name=name,
        out="",
        input=row,
        labels=labels,
        task=task,
        preprocessing=preprocessing,
        precision=migration.options.precision,
        budget=migration.options.budget,
        device=migration.options.device,
        max_tuning_seconds=migration.options.tuning_seconds,
        planned=migration.options.planned,
        randomize=not weights and migration.options.planned,  # freshly built layers can agree trivially
        provenance=_provenance(migration, resolved, weights=weights, imageless=why_not),
    )
    fed = recorded if recorded is not None and recorded.inputs.shape[1:] == row else None
    # Of an output of several parts the recorder has the first, which need not be the one that is taken.
    own = own and (resolved.recipe.live is None or resolved.recipe.live.output is None or _is_taken(recorded, built.classes))
    title = "Capturing, proving and measuring the model" if request.planned else "Capturing and proving the model"
    progress = migration.stages.start(title)
    live = built.recipe.live
    own = own and built.recipe.checkpoint is None  # its run may have had other weights than the given ones
    own = own and resolved.recipe.script not in originals.unchanged  # what keeps its calls eager may give them other weights
    own = own and not (live is not None and live.drawing)
    made = package(request, fed, migration.sandbox, progress, own_outputs=own)
    if isinstance(made, Failed) and made.random_weights and migration.options.random_weights and live is not None:
        migration.fresh_tree()
        weights, model = False, replace(model, random_weights=True)
        request = replace(
            request,
            recipe=replace(built.recipe, live=replace(live, random=True)),
            randomize=request.planned,
            provenance=_provenance(migration, resolved, weights=weights, imageless=why_not),
        )
        made = package(request, None, migration.sandbox, progress, own_outputs=False)
    if isinstance(made, Failed):
        model = _rejected(migration, model, made)
        return ModelOutcome(model=model, weights_loaded=weights, preprocessing=preprocessing)
    if made.precision is not None:
        message = f"the script's {name} computes in {made.precision}; the package has its weights and inputs in float32"
        migration.remark("PS535", message, "note", resolved.place)
    if weights and preprocessing is not None:
        _keep_routes(migration, resolved, name, request.recipe)
    parity = Parity(**{**vars(made.parity), "batches": list(made.parity.batches)})
    told = [Speedup.of(duel) for duel in made.duels]
    speed = [one for one in told if isinstance(one, Speedup)]
    unknown = next((one for one in told if isinstance(one, str)), None) if not speed else None
    artifact = f"{models_folder}/{name}"
    model = replace(
        model, captured=True, artifact=artifact, parity=parity, speed=speed, speed_unknown=unknown, outputs=list(made.outputs)
    )  # fmt: skip
    return ModelOutcome(model=model, packaged=True, weights_loaded=weights, preprocessing=preprocessing)


def _keep_routes(migration: Migration, resolved: Resolved, name: str, recipe: Recipe) -> None:
    """Of an application, have the package hold the routes that it can answer in its place; remark those, and why others are
    not."""
    if recipe.live is None or "servers" not in migration.stood_in.get(recipe.script, ()):
        return
    if recipe.script not in migration.asked:
        message = f"its routes cannot be kept: only those of Flask and FastAPI that take POST are asked; {_INSTEAD}"
        migration.remark("PS522", message, "note", resolved.place)
        return
    migration.stages.start("Asking the application's routes")
    migration.fresh_tree()  # the script runs again
    try:
        routes = keep_routes(recipe, migration.sandbox.models / name, migration.sandbox)
    except SandboxError as error:
        message = f"none of its routes can be kept: {error}; {_INSTEAD}"
        migration.remark("PS522", message, "note", resolved.place)
        return
    for route in routes:
        where = route.where or resolved.recipe.script
        if route.why:
            migration.remark("PS522", f"POST {route.path} cannot be kept: {route.why}; {_INSTEAD}", "note", where)
            continue
        message = (
            f"POST {route.path} takes an image as {route.image}, and what it answers was found and proved on {route.proved} "
            "other images: headrace serve --keep-routes answers there in the same JSON"
        )
        migration.remark("PS521", message, "note", where)


def serve(migration: Migration, outcomes: Sequence[ModelOutcome]) -> list[ModelOutcome]:
    """Load the packages in a fresh process that has nothing of the repository, and note which of them answer."""
    places: dict[str, tuple[Path, Row]] = {}
    for item in outcomes:
        if item.packaged and item.model.input is not None:
            channels, height, width = item.model.input
            places[item.model.name] = (migration.sandbox.models / item.model.name, (channels, height, width))
    if not places or not migration.options.planned:  # what is packaged so quickly is loaded at once by who asked for it
        return list(outcomes)
    migration.stages.start(f"Loading the package{'s' if len(places) > 1 else ''} in a fresh process")
    failures = smoke_tests(places, migration.sandbox)
    for name, failure in failures.items():
        if failure is not None:
            migration.remark("PS508", f"the package of {name} does not work without the repository: {failure}", "error")
    return [
        replace(item, model=replace(item.model, served=item.packaged and failures[item.model.name] is None))
        for item in outcomes
    ]


def _recorded(migration: Migration, resolved: Resolved, originals: Originals) -> tuple[Recorded | None, bool]:
    """Images that the scripts fed a model, and whether it was this one: its own call if it saw several, else an evaluation.

    Scripts with models of their own may share a call, as one in `evaluate(model, loader)`: only in a run of the model's own
    script it is its own. The names of a data set that stood in are made ones, and no labels.
    """
    own = site_of(resolved.loop) if resolved.loop is not None else ""
    ran = {**originals.unchanged, **originals.runs}
    runs = {path: original for path, original in ran.items() if not original.run.losses}
    script = resolved.script.path if resolved.script is not None else None
    sites = _recorded_at([runs[script]] if script in runs else [*runs.values()])
    all_sites = _recorded_at([*runs.values()]) | sites
    evaluations = sorted({site_of(loop) for loop in migration.surveyed.loops if loop.kind == "evaluate"} & all_sites.keys())
    if own in sites and (len(sites[own].inputs) > 1 or not evaluations):
        live = resolved.recipe.live
        return sites[own].of_model(live.class_name if live is not None else None), True
    return (all_sites[evaluations[0]], False) if evaluations else (None, False)


def _recorded_at(originals: Sequence[OriginalRun]) -> dict[str, Recorded]:
    return {site: _marked(original, recorded) for original in originals for site, recorded in original.run.sites.items()}


def _marked(original: OriginalRun, recorded: Recorded) -> Recorded:
    return recorded if original.executed_on == "your data" else replace(recorded, classes=None, made=True)


def _build(migration: Migration, resolved: Resolved, known: _KnownInput) -> _Built | str:
    """Build with the checkpoint, else without it, where random weights are asked for; why neither works, where that is so."""
    live = resolved.recipe.live
    if live is not None:
        migration.fresh_tree()  # the script runs again
        given = resolved.recipe.checkpoint
        return _Built(
            recipe=resolved.recipe.in_copy(migration.tree),
            fresh=False,
            row=known.rows(migration, resolved)[0],
            classes=resolved.classes,
            class_name=live.class_name,
            factory=resolved.factory,
            weights_from=(given,) if given is not None else resolved.weights_from,
        )
    failures: list[Failed] = []
    without = migration.options.checkpoint is None  # else the given one is loaded all the same
    bare = replace(resolved.fallback_recipe or resolved.recipe, fetches=False)
    for recipe, fresh in ((resolved.recipe, False), (bare, without)):
        local = recipe.in_copy(migration.tree)
        answer, row = _inspect(migration, resolved, local, known)
        if isinstance(answer, Failed):
            failures.append(answer)
            continue
        if row is None:
            candidates = [",".join(str(side) for side in size) for size in answer.candidates]
            message = f"{resolved.name} runs on inputs of several sizes, and the repository does not say which is meant"
            raise AmbiguousError(message, candidates=candidates or _SIZES, flag="--input-size")
        for first in failures[:1]:
            message = f"the model does not build with its own weights: {first.error}{remedy(first.error)}"
            migration.remark("PS503", message, "warning", first.where or resolved.place)
        for note in answer.notes:
            migration.remark("PS514", note, "note", resolved.place)
        return _Built(
            recipe=local,
            fresh=fresh,
            row=row,
            classes=answer.classes,
            class_name=answer.class_name,
            factory=answer.factory,
            weights_from=answer.weights_from,
        )
    first, last = failures[0], failures[-1]
    message = f"the model could not be built: {first.error}{remedy(first.error)}"
    if last.error != first.error:
        message += f"; nor without its weights: {last.error}"
    message += _what_helps(migration, resolved) if not remedy(first.error) else ""
    migration.remark("PS501", f"{resolved.name}: {message}", "error", first.where or resolved.place)
    return migration.plain(message)


def _what_helps(migration: Migration, resolved: Resolved) -> str:
    """What to do about a model that cannot be built: what its script's own run told, and which others there are."""
    script = resolved.script.path if resolved.script is not None else resolved.recipe.script
    run = migration.stopped.get(script)
    told = f"; {script}, run with stand-ins, stopped too: {run}" if run is not None else ""
    others = [item.name for item in migration.surveyed.factories if item.name != resolved.factory_name]
    others = [name for name in dict.fromkeys(others) if name != resolved.name]
    if others:
        return f"{told}; --model NAME takes another of the recognised models: {listed(others)}"
    return told or "; --entry FILE takes the model of another script, --model NAME another one"


def note_weights(migration: Migration, resolved: Resolved) -> None:
    """Remark of a model that was taken from a run when it would not be packaged for want of weights."""
    live = resolved.recipe.live
    if live is not None and resolved.recipe.checkpoint is None and not resolved.weights_from and not live.random:
        _no_weights(migration, resolved)


def _no_weights(migration: Migration, resolved: Resolved) -> str:
    """Remark that nothing of the user's is in the model's weights, and what to do."""
    near = _loaded_by(migration, resolved.recipe.script, resolved.checkpoints)
    sites = near or resolved.checkpoints
    places = [f"{site.expression} ({site.path}:{site.line})" for site in sites]
    asked = f" (the {'script' if near else 'repository'} loads {', '.join(places[:2])})" if places else ""
    message = (
        f"not packaged, because no file of yours gave {resolved.name} its weights{asked}; give the trained ones with "
        "--checkpoint FILE, or package random ones with --random-weights"
    )
    where = f"{sites[0].path}:{sites[0].line}" if sites else ""
    migration.remark("PS503", message, "error", where or resolved.place)
    return migration.plain(message)


def _loaded_by(migration: Migration, script: str, sites: Sequence[CheckpointSite]) -> list[CheckpointSite]:
    """Those of the loads that stand in a script or in a file that it imports, its own first."""
    modules = project_index(migration.surveyed).repository.modules
    waiting, reached = [script], set[str]()
    while waiting:
        path = waiting.pop()
        if path in modules and path not in reached:
            reached.add(path)
            waiting += [module.path for module in imported(modules[path])]
    return sorted((site for site in sites if site.path in reached), key=lambda site: site.path != script)


def _inspect(
    migration: Migration, resolved: Resolved, recipe: Recipe, known: _KnownInput
) -> tuple[Inspected | Failed, Row | None]:
    """The worker's answer for the first input that works; where none is known the worker may find the only one that does."""
    failures: list[Failed] = []
    for row in known.rows(migration, resolved):
        answer = inspect(recipe, row, migration.sandbox)
        if isinstance(answer, Inspected):
            return answer, row
        failures.append(answer)
    if failures:
        return failures[0], None
    answer = inspect(recipe, None, migration.sandbox)
    return answer, answer.input if isinstance(answer, Inspected) else None


def _is_taken(recorded: Recorded | None, classes: int | None) -> bool:
    return recorded is not None and recorded.outputs.shape[1:] == (classes,)


def _provenance(migration: Migration, resolved: Resolved, *, weights: bool, imageless: str) -> dict[str, Any]:
    chain = [f"{step.kind} {step.path}:{step.line} {step.text}" for step in resolved.chain]
    random = {} if weights else {"random_weights": True}
    without = {"no_preprocessing": imageless} if imageless else {}
    return {"repository": migration.surveyed.root.name, "script": resolved.recipe.script, "chain": chain, **random, **without}


def _rejected(migration: Migration, model: ModelReport, made: Failed) -> ModelReport:
    summary = made.error.splitlines()[0]
    migration.remark("PS502", f"{model.name} could not be packaged, it failed at {made.stage}: {summary}", "error")
    for obstacle in made.obstacles:
        where = f"{obstacle.path}:{obstacle.line}" if obstacle.path else ""
        migration.remark(obstacle.code, obstacle.message, "error", where)
    parity = Parity(status="failed" if made.stage == "parity" else "not-run", why=migration.plain(made.error))
    return replace(model, captured=made.stage in ("parity", "package"), parity=parity)
