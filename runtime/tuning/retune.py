"""Measure a model that is on disk on this machine: `headrace tune`. The portable graph is all it starts from."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import __version__
from ...errors import ArtifactError, BackendError
from ...scratch import ScratchFolder
from ...specs import Signature
from .. import backends
from ..artifact.agreement import Array
from ..artifact.artifact import Artifact, load_artifact, measured_otherwise
from ..artifact.known_answers import Span, differs, known_rows, recorded_span, span_of
from ..artifact.manifest import digest, read_manifest, write_manifest
from ..artifact.parity import ParityRecord, largest_changes
from ..artifact.plan import Plan
from ..backends import Backend
from ..base.atomic import old_model_stays, replacing
from ..base.calibration import Calibration
from ..base.config import GraphConfig
from ..base.passes import PassRecord
from ..base.session import Session, Target
from ..base.task import SINGLE_LABEL, Task
from ..images.image_folder import read_images
from ..lowering.portable import ONNX_FILE, PortableGraph
from .autotuner import Progress
from .judging_data import JudgingData
from .prediction import Work, work_of_portable
from .random_rows import random_rows
from .rare_rows import run_rare
from .reference import CHUNK, NOISE_ROWS, RARE_SHARE, Reference, known_of, one_by_one, run_judged, some_rows
from .source import Lowered, Source
from .tune import tune


@dataclass(frozen=True)
class PortableSource(Source):
    """The reference is model.onnx in fp32, by the first backend here that runs it; parity with the original module was proved
    when the model was packaged."""

    signature: Signature
    directory: Path
    task: Task
    disabled: tuple[str, ...] = ()
    span: Span | None = None
    passes: tuple[PassRecord, ...] = ()
    lowered: Lowered = field(default_factory=dict, repr=False)

    def reference(self, target: Target, *, rows: int, judging: JudgingData, seconds: float) -> Reference:
        session = self.open(target)
        try:
            return reference_of(session, self.signature, self.task, rows=rows, judging=judging, seconds=seconds, span=self.span)
        finally:
            session.close()

    def work(self) -> Work:
        return work_of_portable(self.directory / ONNX_FILE)

    def graph_for(self, backend: Backend, calibration: Calibration | None) -> PortableGraph | None:
        return PortableGraph(self.signature, calibration) if backend.format == "onnx" else None

    def open(self, target: Target) -> Session:
        """The graph in fp32 by the first backend here that runs it. Raises BackendError where none does."""
        rejections = []
        for backend in backends.discover().values():
            if backend.format == "onnx":
                why = backend.supports(target)
                if why is None:
                    files = backend.prepare(PortableGraph(self.signature), target, self.directory)
                    return backend.open(self.directory, target, files)
                rejections.append(why)
        raise BackendError(f"nothing here runs the portable graph: {'; '.join(rejections)}")


def reference_of(
    session: Session,
    signature: Signature,
    task: Task,
    *,
    rows: int,
    judging: JudgingData,
    seconds: float,
    span: Span | None = None,
) -> Reference:
    """What a session of a packaged model's lossless form answers, and how much that alone varies. `span` is that of the rows
    by which a server knows the model."""
    inputs = some_rows(judging, rows) or random_rows(signature, rows)
    outputs = session.run(inputs)
    noise = _noise(session, [value[:NOISE_ROWS] for value in inputs], [value[:NOISE_ROWS] for value in outputs])
    varies = partial(_noise, session)
    rare = run_rare(session, inputs, varies, seconds=RARE_SHARE * seconds)
    known = known_of(session, signature, task, noise, span)
    images = None
    if judging.images:
        images = replace(judging, scores=run_judged(session, judging.batches(CHUNK), task))
    return Reference(inputs, outputs, noise, task, images, rare=rare, varies=varies, known=known)


@old_model_stays
def retune(
    folder: Path, config: GraphConfig, *, images: Path | None = None, progress: Progress | None = None
) -> tuple[Artifact, Plan]:
    """Plan the model in `folder` for this machine and write the plan into it; plans for other machines stay.

    `images` is a folder of real images, which lossy precisions are judged by and int8 takes its ranges from. The version's
    folder is replaced in one step at the end. Raises ArtifactError, InputError, BackendError or ParityError; then it is as it
    was.
    """
    artifact = load_artifact(folder)
    if artifact.mesh is not None:
        raise ArtifactError(f"{folder} is {artifact.mesh.described}, whose parts have no plans; tune the whole model's")
    if ONNX_FILE not in artifact.files:
        raise ArtifactError(f"{folder} holds no {ONNX_FILE}, so only what compiled it could plan it; compile it again here")
    report = progress or (lambda fraction, text: None)
    judging = JudgingData()
    if images is not None:
        if artifact.preprocessing is None:
            raise ArtifactError(f"{artifact.imageless}, so {images} cannot be read for it")
        found, labels = read_images(
            images,
            artifact.preprocessing,
            artifact.labels,
            pixels=artifact.signature.takes_pixels,
            report=lambda part, text: report(0.1 * part, text),
        )
        # Folders name one class for each image.
        single = artifact.task.heads[artifact.task.primary].kind == SINGLE_LABEL
        judging = JudgingData((found,), labels if single else None)
    device = "cpu" if config.device == "auto" else config.device
    buckets = config.buckets or tuple(bucket for bucket in config.planned(device) if bucket <= artifact.max_batch_size)
    with ScratchFolder() as directory:
        for name in (name for name in artifact.files if name.startswith(ONNX_FILE)):
            shutil.copyfile(artifact.path / name, directory / name)
        answers, span = artifact.answers, recorded_span(artifact.answers)
        if answers is not None and (of_images := span_of(judging.images)) is not None:
            span = _within_both(of_images, span)
        source = PortableSource(artifact.signature, directory, artifact.task, config.disable_passes, span)
        plan = tune(
            source,
            replace(config, buckets=buckets),
            directory=directory,
            device=device,
            judging=judging,
            progress=lambda part, text: report(0.1 + 0.85 * part, text),
        )
        report(0.95, "writing the plan")
        if answers is not None and span != recorded_span(answers):
            answers = _answers_within(source, Target(device=device, threads=config.threads), span, answers)
        plan = _write(folder, artifact.version, plan, directory, source.records(plan), answers)
    report(1.0, "tuned")
    return load_artifact(folder, version=artifact.version), plan


def _within_both(images: Span, before: Span | None) -> Span:
    """Where the images lie, and those by which other machines' plans of the model were judged."""
    low, high = max(images[0], (before or images)[0]), min(images[1], (before or images)[1])
    return (low, high) if low < high else images


def _answers_within(
    source: PortableSource, target: Target, span: Span | None, recorded: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What a server is to know the model by: its answers to rows within the span, if it answers those of before as recorded."""
    session, exact = source.open(target), [0.0] * len(source.signature.outputs)
    try:
        before = known_rows(source.signature, recorded_span(recorded)) or []
        if differs(recorded, session.run(before)[int(recorded["output"])]) is not None:
            return recorded
        known = known_of(session, source.signature, source.task, exact, span)
    finally:
        session.close()
    return recorded if known is None else known[1]


def _write(
    folder: Path,
    version: int,
    plan: Plan,
    directory: Path,
    records: Sequence[PassRecord],
    answers: Mapping[str, Any] | None,
) -> Plan:
    with replacing(folder, [str(version)]) as (fresh,):
        artifact = load_artifact(folder, version=version)  # as it is now: another process may have tuned it meanwhile
        others = [
            other for other in artifact.plans if other.device != plan.device or measured_otherwise(other, plan.fingerprint)
        ]
        kept = {name for other in others for name in other.files}
        kept |= {name for name in artifact.files if name.startswith(ONNX_FILE)}
        renamed = {
            name: _free_name(name, directory, artifact.path, kept)
            for name in plan.files
            if name not in kept or not name.startswith(ONNX_FILE)
        }
        choices = {
            bucket: replace(choice, files=tuple(renamed.get(name, name) for name in choice.files))
            for bucket, choice in plan.choices.items()
        }
        plan = replace(plan, choices=choices)
        content, _ = read_manifest(artifact.path)
        if content["digests"].get(ONNX_FILE) != digest(directory / ONNX_FILE, inside=directory):
            raise ArtifactError(f"{folder} was packaged again while it was tuned; tune it again")
        for name in sorted(kept):
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.path / name, fresh / name)
        for name, new in renamed.items():
            if not (fresh / new).exists():
                shutil.copyfile(directory / name, fresh / new)
        files = sorted(
            (Path(place) / file).relative_to(fresh).as_posix() for place, _, names in os.walk(fresh) for file in names
        )
        digests = {name: digest(fresh / name, inside=fresh) for name in files}
        digests |= {name: written for name, written in content["digests"].items() if name.startswith("../")}
        plans = [plan.to_json(), *(other.to_json() for other in others)]
        # What the passes did for the plans of other machines stays.
        passes = [*content["provenance"].get("passes", ())]
        passes += [record.to_json() for record in records if record.to_json() not in passes]
        provenance = {**content["provenance"], **({"passes": passes} if passes else {})}
        # Against what it was packaged from, and against the portable graph: the last plan's, whatever was tuned before it.
        packaged = provenance.setdefault("parity_at_packaging", content["parity"])
        parity = plan.worst_parity()
        if packaged:
            parity = parity.joined(ParityRecord.from_json(packaged))
        changes = {
            "parity": parity.to_json(),
            "headrace": __version__,
            "digests": digests,
            "plans": plans,
            "provenance": provenance,
            "answers": None if answers is None else dict(answers),
        }
        write_manifest(fresh, {**content, **changes})
    return plan


def _free_name(name: str, directory: Path, path: Path, kept: set[str]) -> str:
    """The file's own name, unless another machine's plan has a different file of that name."""
    content = (directory / name).read_bytes()
    if name not in kept or (path / name).read_bytes() == content:
        return name
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}{dot}{suffix}"


def _noise(session: Session, inputs: list[Array], outputs: list[Array]) -> tuple[float, ...]:
    """Largest change of each output when rows go one by one, and when inputs are off by one rounding step."""
    random = np.random.default_rng(1)
    shaken = [
        value * (1 + random.integers(-1, 2, value.shape).astype(value.dtype) * np.finfo(value.dtype).eps)
        if value.dtype.kind == "f"
        else value
        for value in inputs
    ]
    return largest_changes(outputs, [one_by_one(session, inputs), session.run(shaken)])
