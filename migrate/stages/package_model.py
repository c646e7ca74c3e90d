"""One model: built as its script builds it, captured, proved and packaged, with what the trial runs recorded as evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import AmbiguousError, SandboxError
from ...specs import Preprocessing
from ..proving.instrument import site_of
from ..proving.measurements import speeds
from ..proving.trace_transform import Traced, row_shape, trace
from ..proving.verify import Recorded
from ..reporting.checkpoint_report import report_checkpoints
from ..reporting.report import ModelReport, Parity, PreprocessingReport, Speedup
from ..resolving.mismatch import trained_otherwise
from ..resolving.resolved import Resolved
from ..survey.survey import project_index
from .migration import Migration
from .repair_parity import computes_as_unrepaired
from .script_runs import Originals
from .worker_client import class_names, inspect, model_name, package, smoke_tests

Row = tuple[int, int, int]
_UNSEEN = re.compile(r"safetensors|safe_open")  # reads files without Python's knowledge
"""In the source of a construction: its weights may be more than initial ones."""
_SIZES = ("3,224,224", "3,32,32", "1,28,28")


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    """What is known about the model's input before it is built. `own` says that `recorded` came out of this very model."""

    traced: Traced
    recorded: Recorded | None
    own: bool

    def rows(self, migration: Migration, resolved: Resolved) -> list[Row]:
        """Inputs (channels, height, width) to try, of the strongest evidence only: asked for, fed, transformed to, stated."""
        if migration.options.input_size is not None:
            return [migration.options.input_size]
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
    """A recipe that builds the model, the input it takes, and the worker's description. `fresh`: without its checkpoint."""

    recipe: Mapping[str, Any]
    fresh: bool
    row: Row
    answer: Mapping[str, Any]


def package_model(
    migration: Migration, resolved: Resolved, originals: Originals, models_folder: str, *, entry: ModelReport | None = None
) -> bool:
    """Package the resolved model as `scratch/models/<name>`; false when that failed. `entry` is one of the report's models, by
    default the first.

    What went wrong is in the report. Raises AmbiguousError when several input sizes work and nothing says which is meant.
    """
    several = entry is not None
    entry = entry or migration.report.models[0]
    recorded, own = _recorded(migration, resolved, originals)
    evidence = _Evidence(traced=_trace(migration, resolved), recorded=recorded, own=own)
    migration.stages.start("Building the model")
    built = _build(migration, resolved, evidence, entry)
    if entry is migration.report.models[0]:
        report_checkpoints(migration.report, migration.surveyed, resolved, loaded=built is not None and _has_weights(built))
    if built is None:
        return False
    entry.name = model_name(resolved.name or built.answer["class"])
    entry.built, entry.input, entry.classes = True, list(built.row), built.answer["classes"]
    entry.factory = entry.factory or built.answer.get("factory")
    if not computes_as_unrepaired(migration, entry, built.recipe, built.row, fresh=built.fresh):
        return False
    made = package(
        built.recipe,
        name=entry.name,
        row=built.row,
        recorded=recorded if recorded is not None and recorded.inputs.shape[1:] == built.row else None,
        own_outputs=own,
        labels=_labels(migration, resolved, recorded, built.answer["classes"]),
        preprocessing=_preprocessing(migration, resolved, evidence.traced, built.row, entry),
        precision=migration.options.precision,
        device=migration.options.device,
        tuning_seconds=migration.options.tuning_seconds,
        fresh=not _has_weights(built),
        provenance=_provenance(migration, resolved),
        sandbox=migration.sandbox,
        progress=migration.stages.start("Capturing, proving and measuring the model"),
    )
    if not made["ok"]:
        _refused(migration, entry, made)
        return False
    parity = made["parity"]
    entry.captured, entry.artifact = True, f"{models_folder}/{entry.name}"
    entry.parity = Parity(**{key: parity[key] for key in ("status", "max_abs", "top1_agreement", "batches", "why")})
    won, compared = faster(made.get("plan") or {})
    migration.report.faster = (migration.report.faster[0] + won, migration.report.faster[1] + compared)
    migration.report.speeds += speeds(entry.name, made.get("plan") or {})
    entry.speed = speed(made.get("plan") or {})
    if not several:
        serve(migration, [entry])
    return True


def serve(migration: Migration, entries: Sequence[ModelReport]) -> None:
    """Load the packages in a fresh process that has nothing of the repository, and note which of them answer."""
    migration.stages.start(
        "Loading the package in a fresh process" if len(entries) == 1 else "Loading the packages in a fresh process"
    )
    places = {entry.name: (migration.scratch / "models" / entry.name, _row(entry)) for entry in entries}
    failures = smoke_tests(places, migration.sandbox)
    for entry in entries:
        failure = failures[entry.name]
        entry.served = failure is None
        if failure is not None:
            migration.remark("PS508", f"the package of {entry.name} does not work without the repository: {failure}", "error")


def _row(entry: ModelReport) -> Row:
    assert entry.input is not None
    channels, height, width = entry.input
    return channels, height, width


def _trace(migration: Migration, resolved: Resolved) -> Traced:
    if resolved.transform_recipe is None:
        return Traced(why="no evaluation transform was found in the scripts")
    recipe = {**resolved.transform_recipe, "root": str(migration.tree)}
    key = "preprocessing " + json.dumps(recipe, sort_keys=True)
    if key not in migration.kept:
        migration.stages.start("Recovering the preprocessing")
        migration.kept[key] = trace(recipe, migration.sandbox)
    traced: Traced = migration.kept[key]
    return traced


def _recorded(migration: Migration, resolved: Resolved, originals: Originals) -> tuple[Recorded | None, bool]:
    """Images that the scripts fed a model, and whether it was this one: its own call if it saw several, else an evaluation."""
    own = site_of(resolved.loop) if resolved.loop is not None else ""
    sites = {site: recorded for _, run in originals.values() for site, recorded in run.sites.items()}
    evaluations = sorted({site_of(loop) for loop in migration.surveyed.loops if loop.kind == "evaluate"} & sites.keys())
    if own in sites and (len(sites[own].inputs) > 1 or not evaluations):
        return sites[own], True
    return (sites[evaluations[0]], False) if evaluations else (None, False)


def _build(migration: Migration, resolved: Resolved, evidence: _Evidence, entry: ModelReport) -> _Built | None:
    """Build with the checkpoint, else without it, which is reported; None when neither works."""
    first: Mapping[str, Any] | None = None
    last: Mapping[str, Any] | None = None
    for recipe, fresh in ((resolved.recipe, False), (resolved.fallback_recipe, True)):
        if recipe is None:
            continue
        local = {**recipe, "root": str(migration.tree)}
        answer, row = _inspect(migration, resolved, local, evidence)
        if not answer["ok"]:
            first, last = first or answer, answer
            continue
        if row is None:
            candidates = [",".join(str(side) for side in size) for size in answer.get("candidates", [])]
            message = f"{resolved.name} runs on inputs of several sizes, and the repository does not say which is meant"
            raise AmbiguousError(message, candidates=candidates or _SIZES, flag="--input-size")
        if first is not None:
            message = f"packaged with freshly built weights, because the model does not build with its own: {first['error']}"
            migration.remark("PS503", message, "warning", first.get("where") or resolved.recipe["script"])
        for note in answer.get("notes", ()):
            migration.remark("PS514", note, "note", resolved.recipe["script"])
        return _Built(recipe=local, fresh=fresh, row=row, answer=answer)
    assert first is not None
    assert last is not None
    message = f"the model could not be built: {first['error']}"
    if last["error"] != first["error"]:
        message += f"; nor without its weights: {last['error']}"
    entry.parity = Parity(why=migration.plain(message))
    migration.remark("PS501", f"{resolved.name}: {message}", "error", first.get("where") or resolved.recipe["script"])
    return None


def _has_weights(built: _Built) -> bool:
    """Whether the model was built with stored weights, and not only by code that would have loaded some."""
    return not built.fresh and bool(built.answer.get("weights_from") or _UNSEEN.search(str(built.recipe["source"])))


def _inspect(
    migration: Migration, resolved: Resolved, recipe: Mapping[str, Any], evidence: _Evidence
) -> tuple[Mapping[str, Any], Row | None]:
    """The worker's answer for the first input that works; without evidence the worker may find the only one that does."""
    refusals = []
    for row in evidence.rows(migration, resolved):
        answer = inspect(recipe, row, migration.sandbox)
        if answer["ok"]:
            return answer, row
        refusals.append(answer)
    if refusals:
        return refusals[0], None
    answer = inspect(recipe, None, migration.sandbox)
    found = answer.get("input")
    return answer, (found[0], found[1], found[2]) if found else None


def _preprocessing(
    migration: Migration, resolved: Resolved, traced: Traced, row: Row, entry: ModelReport
) -> Preprocessing | None:
    """The recovered preprocessing that ends in the model's input, noted in the report; None, with a finding, when none does."""
    for candidate in traced.candidates:
        fits = row_shape(candidate)
        if fits == row or (fits is None and len(candidate.mean) == row[0]):
            steps = candidate.to_json()["steps"]
            same = [item for item in migration.report.preprocessing if (item.source, item.steps) == (candidate.source, steps)]
            if same:
                same[0].for_models.append(entry.name)
            else:
                made = PreprocessingReport(source=candidate.source, for_models=[entry.name], steps=steps)
                migration.report.preprocessing.append(made)
            for note in traced.notes:
                migration.remark("PS509", note, "note", candidate.source)
            _compare_with_training(migration, resolved, candidate)
            return candidate
    sizes = ", ".join("x".join(map(str, row_shape(candidate) or ())) or "any size" for candidate in traced.candidates)
    why = traced.why or f"the transform gives {sizes}, the model takes {'x'.join(map(str, row))}"
    source = (resolved.transform_recipe or {}).get("source_at") or ""
    migration.remark(
        "PS504", f"packaged without preprocessing, so the model takes tensors, not images: {why}", "warning", source
    )
    return None


def _compare_with_training(migration: Migration, resolved: Resolved, made: Preprocessing) -> None:
    """Remark when the training transform of the same file or script states another mean or standard deviation."""
    modules = project_index(migration.surveyed).repository.modules
    paths = [made.source.rpartition(":")[0], resolved.script.path if resolved.script is not None else ""]
    near = [modules[path] for path in dict.fromkeys(paths) if path in modules]
    per_pixel = made.scale * 255  # transforms state their numbers for pixels between 0 and 1
    numbers = tuple(value / per_pixel for value in made.mean), tuple(value / per_pixel for value in made.std)
    found = trained_otherwise(numbers, near)
    if found is not None:
        path, line, (mean, std) = found
        message = (
            f"training normalises with mean {mean} and std {std}, evaluation ({made.source}) with other numbers; "
            "the package does what evaluation does"
        )
        migration.remark("PS530", message, "warning", f"{path}:{line}")


def _labels(migration: Migration, resolved: Resolved, recorded: Recorded | None, classes: int) -> list[str] | None:
    """Class names where the repository states as many as the model has outputs; nothing is invented."""
    found: dict[str, Sequence[str]] = {}
    if recorded is not None and recorded.classes is not None:
        found["the dataset"] = recorded.classes
    if resolved.class_names is not None:
        found["the source"] = resolved.class_names
    elif resolved.class_names_recipe is not None:
        try:
            found["the source"] = class_names({**resolved.class_names_recipe, "root": str(migration.tree)}, migration.sandbox)
        except SandboxError as error:
            migration.remark("PS505", str(error), "note", resolved.recipe["script"])
    for names in found.values():
        if len(names) == classes and all(name and "\n" not in name and "\r" not in name for name in names):
            return list(names)
    counts = " and ".join(f"{len(names)} in {where}" for where, names in found.items()) or "none"
    migration.remark("PS505", f"packaged without labels: the model has {classes} outputs; class names found: {counts}", "note")
    return None


def _provenance(migration: Migration, resolved: Resolved) -> dict[str, Any]:
    chain = [f"{step.kind} {step.path}:{step.line} {step.text}" for step in resolved.chain]
    return {"repository": migration.surveyed.root.name, "script": resolved.recipe["script"], "chain": chain}


def _refused(migration: Migration, entry: ModelReport, made: Mapping[str, Any]) -> None:
    stage = made.get("stage", "package")
    entry.captured = stage in ("parity", "package")
    entry.parity = Parity(status="failed" if stage == "parity" else "not-run", why=migration.plain(made["error"]))
    summary = str(made["error"]).splitlines()[0]
    migration.remark("PS502", f"{entry.name} could not be packaged, it failed at {stage}: {summary}", "error")
    for obstacle in made.get("obstacles") or []:
        where = f"{obstacle['path']}:{obstacle['line']}" if obstacle.get("path") else ""
        migration.remark(obstacle["code"], obstacle["message"], "error", where)


def faster(plan: Mapping[str, Any]) -> tuple[int, int]:
    """(1, 1) when the winner beat eager fp32 by more than both scatter, at some batch size; (0, 1) when nowhere; (0, 0) when
    they were not measured side by side."""
    compared = speed(plan)
    return int(any(one.ratio_low > 1 for one in compared)), int(bool(compared))


def speed(plan: Mapping[str, Any]) -> list[Speedup]:
    """Eager fp32 beside what was chosen, per batch size at which both were measured, in turns on the same inputs."""
    found: dict[int, dict[str, Mapping[str, Any]]] = {}
    for measured in plan.get("measurements", []):
        if measured.get("median_ms"):
            if (measured["backend"], measured["precision"]) == ("eager", "fp32"):
                found.setdefault(measured["bucket"], {})["eager"] = measured
            if measured["status"] == "won":
                found.setdefault(measured["bucket"], {})["won"] = measured
    return [
        Speedup.of(batch, pair["eager"], pair["won"])
        for batch, pair in sorted(found.items())
        if {"eager", "won"} <= pair.keys()
    ]
