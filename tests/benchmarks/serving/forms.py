"""One packaged model in several forms, each one change away from the form before it: what the benchmark's waterfall serves.

    unbatched   the captured module run operator by operator in fp32, one row at a time
    eager       the same for every batch size of the plan
    graph       after the passes, which fold constants and normalizations
    layout      with convolutions in channels last
    compiled    the plan's fastest fp32 kernels
    precision   the plan's fastest among fp32, bf16, fp16 and fp8
    int8        the plan itself
    pixels      the same with the arithmetic of the preprocessing inside the graph

The first four are torch's own kernels, made from the user's model; the others are choices of the plan that was measured, so
that each form runs what Headrace would run if it were allowed no more. A form that cannot be, or would be the one before it,
has a reason instead.

    python -P forms.py REQUEST.json RESPONSE.json

runs the user's code, so it is a process of its own: {"recipe", "artifact", "out", "images"} in, a list of `Variant`s out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.errors import ArtifactError, HeadraceError
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.build import build_model
from headrace.runtime.artifact.agreement import flat_scores, top1_agreement
from headrace.runtime.artifact.artifact import Artifact, load_artifact
from headrace.runtime.artifact.package import copy_files, copy_model_files, write_package
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import on_device
from headrace.runtime.images.preprocessing import ImageError, Preprocessor
from headrace.runtime.lowering.layout import channels_last
from headrace.runtime.lowering.uint8_input import with_preprocessing
from headrace.runtime.tuning.randomize import device_of, noise
from headrace.runtime.tuning.source import CapturedSource
from headrace.specs import BF16, FP8, FP16, FP32, INT8, INT8_BF16, PRECISIONS, Precision, Signature

FORMS = ("unbatched", "eager", "graph", "layout", "compiled", "precision", "int8", "pixels")
_TIERS = {"compiled": (FP32,), "precision": (FP32, BF16, FP16, FP8), "int8": PRECISIONS}
_NEW = {"compiled": (FP32,), "precision": (BF16, FP16, FP8), "int8": (INT8, INT8_BF16)}
_LEAST_AGREEMENT = 0.95  # of the first classes on the images that set ranges, below which something is wrong
_EAGER = Choice(backend="eager", precision=FP32)
_ROWS_PER_RUN = 16
Choices = Mapping[int, Choice]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One form: `models` is the repository that holds it, None where there is none, and `why` says why; `runs` what it runs."""

    form: str
    models: Path | None = None
    runs: str = ""
    why: str = ""


def write_variants(
    model: torch.nn.Module,
    folder: Path,
    out: Path,
    *,
    images: Sequence[Path] = (),
    report: Callable[[float, str], None] = lambda fraction, text: None,
) -> list[Variant]:
    """Write every form of the packaged model in `folder` below `out`, as `out/FORM/NAME`, and return them in order.

    `model` is the module that it was packaged from, in evaluation mode; `images` set the ranges where int8 has to be made
    anew. Raises CaptureError and ArtifactError; what prevents one form alone becomes its `why`.
    """
    artifact = load_artifact(folder, trusted=True)
    if artifact.signature.takes_pixels:
        raise ArtifactError(f"{folder} takes pixels already, so its forms before that cannot be made; migrate the repository")
    report(0.0, "capturing the graph")
    captured = capture(model, noise((2, *artifact.signature.inputs[0].row_shape)).to(device_of(model)))
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
        writer = _Writer(artifact, CapturedSource.of(captured), out, images, Path(scratch))
        variants = []
        for number, form in enumerate(FORMS):
            report(0.1 + 0.9 * number / len(FORMS), f"writing the form {form!r}")
            variants.append(writer.write(form))
    report(1.0, "written")
    return variants


class _Writer:
    """Writes the forms in order; each may be no more than the one before it, which `_choices` remembers."""

    def __init__(self, artifact: Artifact, source: CapturedSource, out: Path, images: Sequence[Path], scratch: Path) -> None:
        self._artifact, self._source = artifact, source
        self._out, self._images, self._scratch = out, images, scratch
        self._plan = artifact.plan_here()
        self._choices: Choices = {}
        self._decoded: dict[bool, np.ndarray[Any, Any]] = {}  # the images as pixels or not

    def write(self, form: str) -> Variant:
        """A form, or why there is none."""
        try:
            if form in _TIERS:
                return self._tier(form)
            if form == "pixels":
                return self._pixels()
            return self._torch(form)
        except (HeadraceError, ImageError, OSError) as error:
            return Variant(form=form, why=" ".join(str(error).split()))

    def _torch(self, form: str) -> Variant:
        graph = self._source.captured if form in ("unbatched", "eager") else self._source.optimized
        if form == "graph" and not graph.passes:
            return Variant(form=form, why="the passes found nothing to fold in this graph")
        if form == "layout":
            changed = channels_last(on_device(graph.program, self._plan.device))
            if changed is graph.program:
                return Variant(form=form, why="the graph has no convolution with stored weights whose layout could change")
            graph = replace(graph, program=changed)
        buckets = (1,) if form == "unbatched" else self._plan.buckets
        choices = dict.fromkeys(buckets, _EAGER)
        return self._package(form, choices, CapturedSource(graph, graph), "torch's kernels one by one in fp32")

    def _tier(self, form: str) -> Variant:
        """The plan held to some precisions."""
        choices = _held_to(self._plan, _TIERS[form])
        if choices is None or choices == self._choices:
            return Variant(form=form, why=_why_not(self._plan, _NEW[form]))
        copy_files(self._artifact.files, self._artifact.path, self._scratch / form)
        made = self._package(form, choices, self._source, _named(choices), signature=self._artifact.signature)
        self._choices = choices
        return made

    def _pixels(self) -> Variant:
        """The form before it on uint8 rows: the same backends, precisions and batch sizes, from a graph of its own."""
        preprocessing = self._artifact.preprocessing
        if preprocessing is None:
            return Variant(form="pixels", why="the model has no recorded preprocessing")
        if not self._choices:
            return Variant(form="pixels", why="the plan has no compiled form to change")
        source = CapturedSource.of(with_preprocessing(self._source.captured, preprocessing))
        choices = {bucket: replace(choice, files=()) for bucket, choice in self._choices.items()}
        what = f"{_named(choices)}, from uint8 pixels"
        made = self._package("pixels", choices, source, what)
        agreement = self._agreement(made)
        if agreement is not None and agreement < _LEAST_AGREEMENT:
            why = f"{what}: top-1 agrees with the packaged model's on {agreement:.1%} of {len(self._images)} images"
            return Variant(form="pixels", why=why)
        return made

    def _agreement(self, made: Variant) -> float | None:
        """The share of the images whose first class is that of the packaged model; None where there are none."""
        if not self._images:
            return None
        assert made.models is not None, "a form that was made"
        scores = []
        for artifact in (self._artifact, load_artifact(made.models / self._artifact.name, trusted=True)):
            session = artifact.open(artifact.max_batch_size)
            try:
                rows = self._rows(artifact.signature)
                parts = [session.run([rows[at : at + _ROWS_PER_RUN]])[0] for at in range(0, len(rows), _ROWS_PER_RUN)]
            finally:
                session.close()
            scores.append(np.concatenate(parts))
        return top1_agreement(*map(flat_scores, scores))

    def _package(
        self, form: str, choices: Choices, source: CapturedSource, runs: str, *, signature: Signature | None = None
    ) -> Variant:
        """Write the files that the choices lack, and the model with a plan of them; by default with the graph's signature."""
        artifact, here, files = self._artifact, self._plan, self._scratch / form
        files.mkdir(exist_ok=True)
        plan = Plan(fingerprint=fingerprint(), choices=choices, device=here.device, threads=here.threads)
        quantized = any(choice.precision.is_int8 for choice in choices.values())
        calibration = self._calibration(source.signature) if quantized else None
        plan = source.prepare_all(plan, files, calibration=calibration, again=False)
        kept = self._scratch / f"{form}-kept"
        copy_model_files(plan.files, files, kept)
        models = self._out / form
        write_package(
            models / artifact.name,
            name=artifact.name,
            files_from=kept,
            signature=signature or source.signature,
            preprocessing=artifact.preprocessing,
            labels=artifact.labels,
            task=artifact.task,
            parity={"status": "not-run", "why": "a form for the benchmark, which compares its answers itself"},
            plans=[plan],
            provenance={"form": form},
        )
        return Variant(form=form, models=models, runs=runs)

    def _calibration(self, signature: Signature) -> Calibration | None:
        """None without images, which the backend then says."""
        return Calibration([self._rows(signature)]) if self._artifact.preprocessing is not None and self._images else None

    def _rows(self, signature: Signature) -> np.ndarray[Any, Any]:
        """The images as the input of such a model, whose preprocessing is known."""
        preprocessing = self._artifact.preprocessing
        assert preprocessing is not None, "asked for before"
        pixels = signature.takes_pixels
        if pixels not in self._decoded:
            preprocessor = Preprocessor(preprocessing.to_json()["steps"], pixels=pixels)
            self._decoded[pixels] = np.stack([preprocessor(path.read_bytes()) for path in self._images])
        return self._decoded[pixels]


def _held_to(plan: Plan, precisions: Sequence[Precision]) -> Choices | None:
    """Per batch size the plan's choice, or the fastest that was measured where that computes in none of the precisions.

    A batch size for which none was measured does as the nearest. None when none was for any.
    """
    choices: dict[int, Choice] = {}
    for bucket, choice in plan.choices.items():
        if choice.precision.whole in precisions:
            choices[bucket] = choice
            continue
        times = {
            item.choice: item.median_ms
            for item in plan.measurements
            if item.bucket == bucket
            and item.choice.precision.whole in precisions
            and item.status in ("won", "lost")
            and item.median_ms is not None
        }
        if times:
            choices[bucket] = min(times, key=times.__getitem__)
    if not choices:
        return None
    for bucket in plan.buckets:
        if bucket not in choices:
            nearest = min(choices, key=lambda known: abs(known - bucket))
            choices[bucket] = replace(choices[nearest], batch=None, streams=1)
    return dict(sorted(choices.items()))


def _why_not(plan: Plan, precisions: Sequence[Precision]) -> str:
    """Why the plan gained nothing from these precisions, in its own words."""
    if plan.portable:
        return plan.reason
    tried = [item for item in plan.measurements if item.choice.precision.whole in precisions]
    words = "/".join(map(str, precisions))
    if not tried:
        return f"the plan did not try {words}; `headrace tune MODEL --calibration IMAGES` tries all, judged by real images"
    reasons = list(dict.fromkeys(f"{item.candidate}: {item.why}" for item in tried if item.why))
    return f"the plan uses no {words} ({'; '.join(reasons[:3])})"


def _named(choices: Choices) -> str:
    return ", ".join(dict.fromkeys(str(choice) for choice in choices.values()))


def main(arguments: Sequence[str]) -> int:
    asked, answered = (Path(argument).resolve() for argument in arguments)  # the user's code changes the working directory
    request = json.loads(asked.read_text())
    model = build_model(Recipe.from_json(request["recipe"]))
    images = [Path(path) for path in request["images"]]

    def report(fraction: float, text: str) -> None:
        print(f"PROGRESS {fraction:.3f} {text}", flush=True)

    made = write_variants(model, Path(request["artifact"]), Path(request["out"]), images=images, report=report)
    answered.write_text(json.dumps([asdict(variant) for variant in made], default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
