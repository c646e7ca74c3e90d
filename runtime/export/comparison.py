"""Every form of a packaged model that this machine can run, measured side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ...errors import ArtifactError, BackendError
from ...specs import FP32, Precision
from .. import backends, formats
from ..artifact.agreement import METRICS, Array, agreements, right_share
from ..artifact.parity import AGREEMENTS
from ..artifact.plan import Choice, Plan
from ..base.fingerprint import fingerprint
from ..base.memory import free_megabytes, give_back_memory
from ..base.session import Session, visible_gpus
from ..capture.capture import CapturedGraph
from ..lowering.portable import PortableGraph
from ..passes import run_passes
from ..tuning.measure import measure
from ..tuning.random_rows import random_rows
from ..tuning.reference import CHUNK
from .export import size
from .opened import Opened, opened

BATCHES = (1, 2, 4, 8, 16)
_SECONDS = 6.0  # of measuring at each batch size
_PATIENCE = 3.0  # times the best: what takes longer is known well enough after three rounds
_PAUSE = 0.1  # before each turn, as in tests/benchmarks/by_hand.py: the threads of the one before spin
_ROOM = 2.0  # times the memory of the largest so far that must be free for the next
_MEGABYTE = 1 << 20
_KINDS = {"eager": "pt2", "inductor": "AOTInductor", "kernels": "Triton kernels", "tensorrt": "TensorRT engine"}
"""What a backend's files are, where they are not ONNX."""


@dataclass(kw_only=True)
class Form:
    """One way to run the model: what it is (`name`, such as "openvino fp32"), its files' `kind` and bytes, and its figures.

    Times are of one call, in milliseconds by batch size; `throughput` is rows per second at `best_batch`. `load_seconds` is
    from its files to its first answer, with the library imported already, `memory_mb` what that and a largest batch added to
    the process's resident memory (2^20 bytes). `agreement` is the share of images whose answer is eager fp32's, `accuracy`
    that of right answers where labels are known. `planned` are the batch sizes for which the plan takes it. `why` says what
    went wrong; then there are no figures.
    """

    name: str
    precision: str
    kind: str
    device: str = "cpu"
    bytes: int = 0
    load_seconds: float | None = None
    memory_mb: float | None = None
    times_ms: dict[int, float] = field(default_factory=dict)
    spread_ms: dict[int, float] = field(default_factory=dict)
    agreement: float | None = None
    accuracy: float | None = None
    planned: tuple[int, ...] = ()
    why: str = ""

    @property
    def latency_ms(self) -> float | None:
        return self.times_ms.get(1)

    @property
    def best_batch(self) -> int | None:
        return min(self.times_ms, key=lambda rows: self.times_ms[rows] / rows, default=None)

    @property
    def throughput(self) -> float | None:
        best = self.best_batch
        return None if best is None else 1000 * best / self.times_ms[best]

    def to_json(self) -> dict[str, Any]:
        more = {"latency_ms": self.latency_ms, "best_batch": self.best_batch, "throughput": self.throughput}
        return asdict(self) | more


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All forms, the fastest first, then those that cannot run here; what agreement was counted on, and what the plan takes."""

    model: str
    version: int
    forms: tuple[Form, ...]
    counted_on: str
    metric: str
    plan: tuple[str, ...]
    load: tuple[float, ...]
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        forms = [form.to_json() for form in self.forms]
        return {**asdict(self), "forms": forms, "machine": dict(fingerprint())}


@dataclass(eq=False)
class _Running:
    form: Form
    session: Session
    only: int | None = None  # the one batch size that it is made for


def compare_forms(
    folder: Path,
    *,
    images: Path | None = None,
    trusted: bool = False,
    only: Sequence[str] | None = None,
    batches: Sequence[int] = BATCHES,
    seconds: float = _SECONDS,
    report: Callable[[float, str], None] = lambda part, text: None,
) -> Comparison:
    """Open every form side by side, have each answer the same images (noise, where none are given), and time them in turns.

    `only` names backends and formats. Raises ArtifactError, InputError, and BackendError where nothing runs.
    """
    with opened(folder, images=images, trusted=trusted, int8=True) as model:
        artifact = model.package.artifact
        plan = artifact.plan_here()
        forms: list[Form] = []
        running: list[_Running] = []
        try:
            ways = [way for way in _ways(model, plan) if only is None or way[0].name.partition(" ")[0] in only]
            sizes = sorted(rows for rows in {1, *batches} if rows <= artifact.max_batch_size)
            for index, (form, opening, batch) in enumerate(ways):
                report(0.5 * index / len(ways), f"opening {form.name}")
                forms.append(form)
                _open(form, opening, batch, model, sizes, running)
            if not running:
                raise BackendError(f"nothing here runs {artifact.name}: {'; '.join(dict.fromkeys(form.why for form in forms))}")
            counted_on, metric = _judge(running, model)
            for index, rows in enumerate(sizes):
                report(0.5 + 0.5 * index / len(sizes), f"measuring batch {rows}")
                _measure(running, model, rows, seconds)
        finally:
            for item in running:
                item.session.close()
        forms.sort(key=lambda form: (form.why != "", -(form.throughput or 0.0)))
        return Comparison(
            model=artifact.name,
            version=artifact.version,
            forms=tuple(forms),
            counted_on=counted_on,
            metric=metric,
            plan=tuple(_reasons(plan)),
            load=os.getloadavg(),
            remark=model.remark,
        )


_Way = tuple[Form, Callable[[Form], Session], int | None]


def _ways(model: Opened, plan: Plan) -> Iterator[_Way]:
    """Each backend in each precision it knows, on each device that is here; the plan's own choices for one batch size alone;
    and the formats that no backend runs."""
    package, artifact = model.package, model.package.artifact
    for name in artifact.files:
        if "/" not in name and (name.endswith((".onnx", ".onnx.data"))):
            (package.directory / name).symlink_to((artifact.path / name).resolve())
    plain = [
        (device, Choice(backend=backend.name, precision=precision))
        for device in ("cpu", *(["cuda"] if visible_gpus() else []))
        for backend in backends.discover().values()
        for precision in backend.precisions
        if device in backend.devices
    ]
    fixed = dict.fromkeys((plan.device, replace(choice, files=())) for choice in plan.choices.values())
    for device, choice in [*plain, *(way for way in fixed if way not in plain)]:
        planned = tuple(
            rows for rows, own in plan.choices.items() if replace(own, files=()) == choice and plan.device == device
        )
        kind = _KINDS.get(choice.backend, "ONNX")
        name = str(choice) if device == "cpu" else f"{choice} on {device}"
        form = Form(name=name, precision=choice.precision.name, kind=kind, device=device, planned=planned)
        yield form, _of_backend(model, choice, device), choice.batch
    form = Form(name=f"torchscript {FP32}", precision=FP32.name, kind="TorchScript")
    yield form, _of_format(model, "torchscript", FP32), None


def _of_backend(model: Opened, choice: Choice, device: str) -> Callable[[Form], Session]:
    package, backend = model.package, backends.get(choice.backend)

    def opening(form: Form) -> Session:
        target = choice.target(device, None)
        if why := backend.supports(target):
            raise BackendError(why)
        files = backend.prepare(_graph(model, backend.format, choice), target, package.directory)
        form.bytes = sum(size((package.directory / name).resolve()) for name in _with_data(files, package.directory))
        return backend.open(package.directory, target, files)

    return opening


def _graph(model: Opened, kind: str, choice: Choice) -> CapturedGraph | PortableGraph:
    package = model.package
    calibration = package.calibration
    if kind == "onnx" and package.portable:
        if choice.precision.is_int8:
            package.onnx(choice.precision)  # the packaged one, or its refusal that names the remedy
        return PortableGraph(package.artifact.signature, calibration)
    captured = replace(package.captured, calibration=calibration)
    return captured if choice.backend == "eager" else run_passes(captured)[0]


def _with_data(files: Sequence[str], directory: Path) -> list[str]:
    return [
        *files,
        *(f"{name}.data" for name in files if f"{name}.data" not in files and (directory / f"{name}.data").exists()),
    ]


def _of_format(model: Opened, name: str, precision: Precision) -> Callable[[Form], Session]:
    wanted = formats.get(name)

    def opening(form: Form) -> Session:
        path = model.package.directory / f"export{wanted.suffix}"
        if not path.exists():
            wanted.check(precision)
            wanted.write(model.package, precision, path)
        form.bytes = size(path)
        return wanted.open(path, model.package)

    return opening


def _open(
    form: Form,
    opening: Callable[[Form], Session],
    batch: int | None,
    model: Opened,
    sizes: Sequence[int],
    running: list[_Running],
) -> None:
    """Open it twice: the first time its files are written and its library is imported, which is not what a load costs."""
    process, rows = psutil.Process(), random_rows(model.package.artifact.signature, batch or max(sizes))
    needed = _ROOM * max((item.form.memory_mb or 0.0 for item in running), default=0.0)
    if free_megabytes() < needed:
        form.why = f"of {needed:.0f} MB that it may take, {free_megabytes():.0f} MB are free"
        return
    session: Session | None = None
    try:
        session = opening(form)
        session.run([value[:1] for value in rows])
        session.close()
        session = None
        give_back_memory()
        before, begin = process.memory_info().rss, time.perf_counter()
        session = opening(form)
        session.run([value[:1] for value in rows])
        form.load_seconds = time.perf_counter() - begin
        session.run(rows)
        form.memory_mb = max(0.0, (process.memory_info().rss - before) / _MEGABYTE)
    except (ArtifactError, BackendError, OSError) as error:
        form.why = str(error).splitlines()[0]
        if session is not None:
            session.close()
        return
    running.append(_Running(form, session, batch))


def _judge(running: Sequence[_Running], model: Opened) -> tuple[str, str]:
    """Have every form answer the images: what agreement is counted on, and what accuracy is called."""
    reference, artifact = model.reference, model.package.artifact
    task, images = reference.task, reference.images
    primary = task.primary
    head = task.heads[primary]
    rows = list(images.images) if images is not None else reference.inputs
    eager = next((item for item in running if item.form.name == f"eager {FP32}"), None)
    wanted = _answers(eager.session if eager is not None else model.session, rows)[primary]
    for item in running:
        try:
            given = _answers(item.session, rows, item.only)[primary]
        except BackendError as error:
            item.form.why = str(error).splitlines()[0]
            continue
        shares = agreements(head, wanted, given)
        item.form.agreement = next((shares[name] for name in AGREEMENTS if shares.get(name) is not None), None)
        if images is not None and images.labels is not None and head.kind in METRICS:
            item.form.accuracy = right_share(head, given, images.labels)
    what = f"{len(rows[0])} images" if images is not None else f"{len(rows[0])} rows of noise: give --images DIR"
    compared = "eager fp32" if eager is not None else f"{artifact.lossless_plan().first()}, since eager fp32 does not run here"
    return f"{what}, with {compared}", METRICS.get(head.kind, "")


def _answers(session: Session, rows: Sequence[Array], step: int | None = None) -> list[Array]:
    step = step or CHUNK
    parts = [session.run([value[at : at + step] for value in rows]) for at in range(0, len(rows[0]), step)]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _measure(running: Sequence[_Running], model: Opened, rows: int, seconds: float) -> None:
    able = [item for item in running if item.only in (None, rows) and not item.form.why]
    inputs = random_rows(model.package.artifact.signature, rows)
    found = measure([item.session for item in able], inputs, seconds=seconds, patience=_PATIENCE, pause=_PAUSE)
    for item, samples in zip(able, found, strict=True):
        if samples.failed:
            item.form.why = samples.failed
        else:
            item.form.times_ms[rows], item.form.spread_ms[rows] = samples.median_ms, samples.spread_ms


def _reasons(plan: Plan) -> Iterator[str]:
    """What the plan takes at which batch sizes, and by what."""
    if plan.portable:
        yield f"the plan takes {plan.first()} everywhere: {plan.reason}"
        return
    for choice in dict.fromkeys(plan.choices.values()):
        rows = [bucket for bucket, own in plan.choices.items() if own == choice]
        gains = []
        for bucket in rows:
            times = {item.choice: item.median_ms for item in plan.measurements if item.bucket == bucket and item.median_ms}
            own = times.pop(replace(choice, files=()), None)
            lost = {item.choice for item in plan.measurements if item.bucket == bucket and item.status == "lost"}
            others = {other: value for other, value in times.items() if other in lost}
            if own is not None and others:
                second = min(others, key=lambda other: others[other])
                gains.append(f"{others[second] / own:.2f} times as fast as {second} at batch {bucket}")
        measured = "; ".join(gains) or "nothing else came into question when it was tuned"
        yield f"the plan takes {choice} at batch {', '.join(map(str, rows))}: {measured}"
    for item in plan.measurements:
        if item.status in ("refused", "failed") and item.bucket == min(plan.buckets):
            yield f"not {item.candidate}: {item.why}"
