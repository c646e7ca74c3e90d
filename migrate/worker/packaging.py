"""A built model becomes folders of a model repository: captured, tuned, compared with what its script computed, written."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from ...errors import ArtifactError, BackendError, ParityError
from ...runtime import backends
from ...runtime.artifact.agreement import Array, agreements, fits_labels
from ...runtime.artifact.package import check_fit, copy_model_files, write_package
from ...runtime.artifact.parity import Gate, ParityRecord, compare
from ...runtime.artifact.plan import Plan
from ...runtime.artifact.write_artifact import check_target, labeled
from ...runtime.backends.shared.torch_session import open_session
from ...runtime.base.atomic import old_model_stays
from ...runtime.base.config import GraphConfig
from ...runtime.base.passes import PassRecord
from ...runtime.base.session import Session, Target
from ...runtime.base.task import GivenLabels, Task
from ...runtime.capture.capture import CapturedGraph, capture
from ...runtime.capture.programs import on_device, runnable
from ...runtime.graph.packaged import weights_digest
from ...runtime.graph.program_digest import program_digest
from ...runtime.lowering.portable import write_onnx
from ...runtime.tuning.autotuner import Progress
from ...runtime.tuning.judging_data import NO_IMAGES, JudgingData
from ...runtime.tuning.measure import measure
from ...runtime.tuning.randomize import device_of, drawn, noise
from ...runtime.tuning.reference import known_answers, noise_where_off
from ...runtime.tuning.source import CapturedSource
from ...runtime.tuning.tune import tune
from ...scratch import ScratchFolder
from ...specs import Preprocessing
from ..proving.worker_protocol import Duel
from .portable_parity import portable_parity
from .precision import in_float32

_CHUNK = 16
_DUEL_SECONDS = 0.5
_DUEL_CALL_SECONDS = 0.5  # eager mode is called four times or more, and larger batches tell nothing more
# Of the images whose outputs the script recorded, evenly spread: on how many the plan's choices are compared, and on how many
# eager mode is, which is the slowest and computes what the script did.
_MOST_COMPARED, _MOST_EAGER = 64, 32


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to package, as the worker's request says it: see the fields of its "package" task.

    `images` are the model's inputs [N, C, H, W], `targets` their classes, `outputs` what the original script computed for them.
    Those that were `made`, for want of the user's, compare the graph with the script and judge no lossy precision.
    `labels` are those of each output, or those of the one that the model is for.
    With `randomize`, tuning and parity use a copy with weights drawn anew, and the artifact gets the model's own. Not
    `planned`, the portable graph is compared with eager and written without a plan, if there is one: any machine runs it, and
    nothing was measured. `told_later` waits for the preprocessing, and for notes on it, where that is found out meanwhile.
    """

    name: str
    out: Path
    row: tuple[int, ...]
    config: GraphConfig
    images: Array | None = None
    made: bool = False
    targets: Array | None = None
    outputs: Array | None = None
    labels: Sequence[Sequence[str] | None] = ()
    preprocessing: Preprocessing | None = None
    randomize: bool = False
    planned: bool = True
    told_later: Callable[[], tuple[Preprocessing | None, Sequence[str]]] | None = None
    provenance: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """Where the model is, how it compares with its original, the plan that it holds if any, and what its outputs are."""

    path: Path
    parity: ParityRecord
    plan: Plan | None
    task: Task
    duels: tuple[Duel, ...]
    precision: str | None = None
    """Of the model's weights, where it was another than the package's."""


@old_model_stays
def package_model(model: torch.nn.Module, order: Order, tell: Progress) -> Packaged:
    """Package a model that is in evaluation mode. `tell(fraction, text)` hears of progress from 0 to 1.

    Raises CaptureError with all obstacles; ParityError when outputs differ from the original script's, or no candidate agrees
    with eager; BackendError, also when torch cannot use the device that is planned for; ArtifactError.
    """
    own = device_of(model)
    device = own if order.config.device == "auto" else order.config.device
    if why := backends.no_torch_target(Target(device=device)):
        raise BackendError(why)
    example = _example(order).to(own)
    check_target(order.out, order.name)
    tell(0.0, "capturing the graph")
    precision = in_float32(model, example)
    captured = _captured(model, example, order)
    if order.outputs is not None and order.outputs.ndim == 1 and all(spec.row_shape for spec in captured.signature.outputs):
        order = replace(order, outputs=order.outputs[:, None])  # one number for each image is a column in a package
    labels = _labels(captured, order)
    labeled(captured.task, labels, captured.signature)  # what would be refused at the end is refused before the tuning
    if order.preprocessing is not None:
        check_fit(order.preprocessing, captured.signature)
    source = CapturedSource.of(captured) if order.planned else CapturedSource(captured, captured)
    with ScratchFolder() as staging:
        directory = staging / "files"
        directory.mkdir()
        # Before anything is compiled: a backend may leave guards of its own in the program that it was given.
        tell(0.1, "comparing with the original's outputs")
        original = _with_original(captured, order, device)
        tell(0.15, "writing the portable graph")
        no_portable_graph = _write_portable(source.optimized, directory)

        probed, plan, duels = captured, None, tuple[Duel, ...]()
        if order.planned or no_portable_graph is not None:

            def tuning(part: float, text: str) -> None:
                tell(0.2 + 0.7 * part, text)

            # Found to be what the graph computes.
            scores = order.outputs if original is not None else None
            if scores is not None and captured.task.judged != (_recorded(captured, scores),):
                scores = None  # others are judged, too
            plan, probed = _tune(model, source, order, scores, directory, device, tuning)
            tell(0.9, "measuring what that is worth")
            duels = _duels(captured, order, plan, directory, device)
            parity = _joined(plan.worst_parity(), original, plan, captured, directory, order, device)
        else:
            tell(0.6, "comparing the portable graph with the model")
            parity = portable_parity(captured, directory, order.config)
        order = _told(order, captured)
        images = () if order.images is None else (order.images,)
        tell(0.95, "writing the model")
        files = staging / "kept"
        copy_model_files(() if plan is None else plan.files, directory, files)
        path = write_package(
            order.out,
            name=order.name,
            files_from=files,
            signature=captured.signature,
            preprocessing=order.preprocessing,
            labels=labels,
            task=probed.task,
            parity=parity,
            plans=[] if plan is None else [plan],
            answers=None
            if plan is None
            else known_answers(captured, Target(device=device, threads=order.config.threads), images),
            provenance=_provenance(model, order, captured, () if plan is None else source.records(plan), no_portable_graph),
        )
    tell(1.0, "packaged")
    return Packaged(path=path, parity=parity, plan=plan, task=probed.task, duels=duels, precision=precision)


def _told(order: Order, captured: CapturedGraph) -> Order:
    """The order with what was found out of the images meanwhile."""
    if order.told_later is None:
        return order
    preprocessing, notes = order.told_later()
    if preprocessing is not None:
        check_fit(preprocessing, captured.signature)
    provenance = {**order.provenance, "notes": [*order.provenance.get("notes", ()), *notes]}
    return replace(order, preprocessing=preprocessing, provenance=provenance)


def _labels(captured: CapturedGraph, order: Order) -> GivenLabels:
    """Those of each output, or of the one that the model is for."""
    if len(order.labels) == 1:
        return order.labels[0]
    outputs = captured.signature.outputs
    return {spec.name: names for spec, names in zip(outputs, order.labels, strict=False) if names is not None} or None


def _captured(model: torch.nn.Module, example: Any, order: Order) -> CapturedGraph:
    """Raises CaptureError, ArtifactError for a task that does not fit."""
    try:
        captured = capture(model, example, task=order.config.task)
    except ValueError as error:
        raise ArtifactError(f"{error}; --task says what the outputs are") from error
    return replace(captured, disabled=order.config.disable_passes)


def _duels(captured: CapturedGraph, order: Order, plan: Plan, directory: Path, device: str) -> tuple[Duel, ...]:
    """At the smallest batch size and at the largest of which eager mode computes one in `_DUEL_CALL_SECONDS`."""
    eager = _eagerly(captured, Target(device=device, threads=plan.threads))
    smallest, *larger = sorted(plan.choices)
    try:
        first = _duel(eager, order, plan, smallest, directory, device)
        row = float(np.median(first.eager)) / smallest
        fitting = [batch for batch in larger if batch * row <= _DUEL_CALL_SECONDS]
        return (first, *(_duel(eager, order, plan, batch, directory, device) for batch in fitting[-1:]))
    finally:
        eager.close()


def _duel(eager: Session, order: Order, plan: Plan, batch: int, directory: Path, device: str) -> Duel:
    """Eager float32 and what the plan chose, in turns, and what else the machine did meanwhile."""
    choice = plan.choices[batch]
    inputs = [noise((batch, *order.row)).numpy()]
    taken: tuple[list[float], list[float]] = [], []
    chosen = backends.get(choice.backend).open(directory, choice.target(device, plan.threads), choice.files)
    try:
        started, busy, own = time.monotonic(), _busy_seconds(), sum(os.times()[:4])
        while time.monotonic() - started < _DUEL_SECONDS:  # a clock that ticks a hundred times a second tells what is busy
            turns = measure([eager, chosen], inputs, seconds=_DUEL_SECONDS, patience=math.inf)
            for times, samples in zip(taken, turns, strict=True):
                times.extend(samples.seconds)
        elapsed = time.monotonic() - started
        others = (_busy_seconds() - busy) - (sum(os.times()[:4]) - own)
    finally:
        chosen.close()
    return Duel(
        batch=batch, chosen=f"{choice.backend} {choice.precision}", eager=tuple(taken[0]), graph=tuple(taken[1]),
        others=max(0.0, others / elapsed / (os.cpu_count() or 1)),
    )  # fmt: skip


def _eagerly(captured: CapturedGraph, target: Target) -> Session:
    """The graph run eagerly, with the weights that are in memory already."""
    return open_session(runnable(on_device(captured.program, target.device)), target, recorded=False)


def _busy_seconds() -> float:
    """What all processors of the machine worked so far; `guest` times count as user times already."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def _example(order: Order) -> torch.Tensor:
    if order.images is None:
        return noise((2, *order.row))
    if order.images.dtype != np.float32 or order.images.shape[1:] != order.row or not len(order.images):
        shape, dtype = order.images.shape, order.images.dtype
        raise ArtifactError(f"the images must be float32 of shape [n, {', '.join(map(str, order.row))}], got {dtype} {shape}")
    return torch.from_numpy(np.ascontiguousarray(order.images[:2]))


def _tune(
    model: torch.nn.Module,
    source: CapturedSource,
    order: Order,
    scores: Array | None,
    directory: Path,
    device: str,
    tell: Progress,
) -> tuple[Plan, CapturedGraph]:
    """The plan, its files for the model's own weights in `directory`, and the graph whose outputs mean something."""
    if not order.randomize:
        images = () if order.images is None else (np.ascontiguousarray(order.images),)
        head, targets = source.captured.task.heads[source.captured.task.primary], order.targets
        spec = source.captured.signature.outputs[source.captured.task.primary]
        fitting = targets is not None and fits_labels(head, np.broadcast_to(0, (len(targets), *spec.row_shape)), targets)
        judging = JudgingData(images, targets if fitting else None, scores=None if scores is None else (scores,))
        judging = NO_IMAGES if order.made else judging
        plan = tune(source, order.config, directory=directory, device=device, judging=judging, progress=tell)
        return plan, source.captured
    # Top-1 agreement of untrained weights says nothing about trained ones, so no images: lossless candidates only.
    other = drawn(model, source.captured.example)
    proved = CapturedSource.of(_captured(other, source.captured.example, order))
    with ScratchFolder() as scratch:
        plan = tune(proved, order.config, directory=scratch, device=device, progress=tell)
    return source.prepare_all(plan, directory), proved.captured


def _with_original(captured: CapturedGraph, order: Order, device: str) -> ParityRecord | None:
    """Hold the graph, in fp32 on the same images, to what the script computed; None where the script computed nothing for it.

    Raises ParityError when the outputs differ.
    """
    if order.images is None or order.outputs is None:
        return None
    images, outputs = _compared(order, _MOST_EAGER)
    target = Target(device=device, threads=order.config.threads)
    recorded = _recorded(captured, outputs)
    computed = _run(_eagerly(captured, target), images)[recorded]

    def compared(own_noise: float) -> ParityRecord:
        gate = Gate(tolerance=order.config.tolerance, noise=(own_noise,))
        return compare([outputs.astype(computed.dtype)], [computed], gate, task=Task((captured.task.heads[recorded],)))

    record = compared(0.0)
    if not record.passed:  # how far eager alone varies takes longer to find than all else here, and excuses no more than that
        record = compared(noise_where_off(captured, target, [images], [outputs], [computed])[recorded])
    if record.max_abs is not None and record.tolerance is not None and not record.max_abs <= record.tolerance:
        raise ParityError(
            f"the graph does not compute what the script computed: outputs differ by {record.max_abs:.2e}, "
            f"more than the tolerance {record.tolerance:.2e}"
        )
    if not record.passed and (images == images[:1]).all() and np.isfinite(outputs).all():
        # One image tells no rows apart, and that of a server's request is one: the plan's own parity has many.
        record = replace(record, status="passed", why=None)
    return record


def _recorded(captured: CapturedGraph, outputs: Array) -> int:
    """Which output a script's recorded ones are: of several it is the first, which is not always what the model is for."""
    primary = captured.task.primary
    rows = [spec.row_shape for spec in captured.signature.outputs]
    if outputs.shape[1:] not in rows:
        raise ParityError(
            f"the script's outputs have rows of shape {outputs.shape[1:]}, the graph's {', '.join(map(str, rows))}"
        )
    return primary if rows[primary] == outputs.shape[1:] else rows.index(outputs.shape[1:])


def _joined(
    parity: ParityRecord,
    original: ParityRecord | None,
    plan: Plan,
    captured: CapturedGraph,
    directory: Path,
    order: Order,
    device: str,
) -> ParityRecord:
    """The plan's parity together with that to the original, whose agreement with the plan's own choices counts as well."""
    if original is None:
        return parity
    images, outputs = _compared(order, _MOST_COMPARED)
    parity, recorded = parity.joined(original), _recorded(captured, outputs)
    # Compiled for other batch sizes, the same arithmetic was shown to be no less accurate when it was chosen.
    forms = {
        (plan.choices[bucket].backend, plan.choices[bucket].precision): plan.choices[bucket] for bucket in sorted(plan.choices)
    }
    for choice in forms.values():
        target = choice.target(device, plan.threads)
        results = _run(backends.get(choice.backend).open(directory, target, choice.files), images)
        parity = parity.agreeing(agreements(captured.task.heads[recorded], outputs, results[recorded]))
    return parity


def _compared(order: Order, most: int) -> tuple[Array, Array]:
    """Images and the outputs that the script recorded for them, evenly spread over all and at most so many."""
    assert order.images is not None
    assert order.outputs is not None
    chosen = np.unique(np.linspace(0, len(order.images) - 1, most).astype(int))
    return order.images[chosen], order.outputs[chosen]


def _run(session: Session, images: Array) -> list[Array]:
    try:
        parts = [session.run([np.ascontiguousarray(images[at : at + _CHUNK])]) for at in range(0, len(images), _CHUNK)]
    finally:
        session.close()
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _write_portable(optimized: CapturedGraph, directory: Path) -> str | None:
    """Write the portable graph; return why there is none, or None."""
    try:
        write_onnx(optimized, directory)
    except BackendError as error:
        return str(error)
    return None


def _provenance(
    model: torch.nn.Module,
    order: Order,
    captured: CapturedGraph,
    passes: Sequence[PassRecord],
    no_portable_graph: str | None,
) -> dict[str, Any]:
    facts = {
        **order.provenance,
        "weights": weights_digest([model]),
        "program": program_digest(model),
        "outputs": captured.structure.to_json(),
        "passes": [record.to_json() for record in passes],
        "torch": torch.__version__,
        "randomised_for_parity": order.randomize,
    }
    return facts if no_portable_graph is None else {**facts, "no_portable_graph": no_portable_graph}
