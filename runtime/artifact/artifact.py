"""One model version on disk, in Triton's model-repository layout: written atomically, its digests checked at load. Torch-free.

    resnet50/config.pbtxt  labels.txt  1/model.onnx  1/headrace.json ...

Digests catch damage, not malice: whoever can write an artifact can write its digests too. So what of it would be run as code is
opened only where the caller says that it is trusted; the portable graph is data.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, BackendError
from ...specs import FP32, Labels, Preprocessing, Signature
from ...trust import REMEDY, is_trusted
from .. import backends
from ..base.fingerprint import Differences, differences, fingerprint
from ..base.session import Session, Target
from ..base.task import MULTI_LABEL, SINGLE_LABEL, Task
from .agreement import Array
from .known_answers import check_record, known_rows, recorded_span
from .manifest import (
    LABELS,
    MANIFEST,
    ONNX_FILE,
    check_name,
    labels_file,
    read_content,
    read_manifest,
)
from .model_config import ModelConfig, check_config, read_config
from .pipeline.mesh import PipelineMesh, is_pipeline
from .pipeline.session import PipelineSession
from .plan import Choice, Plan
from .routes.kept_route import KeptRoute, routes_from_json
from .split.mesh import Mesh
from .split.session import SplitSession

# What runs a model on a machine that nobody measured: the first that is installed and has its file.
_PORTABLE = (
    Choice(backend="onnxruntime", precision=FP32, files=(ONNX_FILE,)),
    Choice(backend="openvino", precision=FP32, files=(ONNX_FILE,)),
    Choice(backend="eager", precision=FP32, files=("model.pt2",)),
)

# What values raise that are not of the form that was written; ArithmeticError is that of numbers that no float holds.
_ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


@dataclass(frozen=True, kw_only=True, eq=False)
class Artifact:
    """A loaded, verified model version. `path` is the version's folder; `parity` and `provenance` are as they were written.

    `task` says what each output is, with its labels. `trusted` says that what it holds may run as code of this process. `mesh`
    says how a model is split that runs as several processes; such a one has no other form, and no plans.
    """

    name: str
    version: int
    path: Path
    signature: Signature
    preprocessing: Preprocessing | None
    task: Task
    plans: tuple[Plan, ...]
    config: ModelConfig = field(repr=False)
    files: tuple[str, ...] = field(repr=False)
    parity: Mapping[str, Any] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    created: str = ""
    trusted: bool = False
    answers: Mapping[str, Any] | None = field(default=None, repr=False)
    routes: tuple[KeptRoute, ...] = field(default=(), repr=False)
    mesh: Mesh | PipelineMesh | None = None

    @property
    def labels(self) -> Labels | None:
        """The labels of the output that the model is for."""
        return self.task.labels

    @property
    def max_batch_size(self) -> int:
        """The most rows that one call may have, from `config.pbtxt`."""
        return self.config.max_batch_size

    @property
    def imageless(self) -> str:
        """What to say of a model without preprocessing where it is to be given images."""
        why = f" ({known})" if (known := self.provenance.get("no_preprocessing")) else ""
        return f"{self.name} does not say how an image becomes its input{why}"

    def known_rows(self) -> list[Array] | None:
        """The rows whose answers were recorded, by which a server knows the model; None where it may take an index."""
        return known_rows(self.signature, recorded_span(self.answers))

    def plan_here(self) -> Plan:
        """The plan measured on a machine like this one, else a portable one in fp32, which gives its reason.

        A portable one is for the GPU where there is one that the installed library can use. Raises BackendError, naming what
        to install, when nothing that is installed can run the model.
        """
        reasons = []
        for plan in self.plans:
            if (reason := self.why_not(plan)) is None:
                return plan
            reasons.append(reason)
        return self.portable_plan(reasons[0] if reasons else self.unmeasured)

    def portable_plan(self, why: str) -> Plan:
        """The plan that nobody measured, in fp32; `why` says why it is taken. Raises BackendError."""
        here, rejections = fingerprint(), []
        devices = ("cuda", "cpu") if here["gpus"] and self.mesh is None else ("cpu",)
        for device, choice in itertools.product(devices, _PORTABLE if self.mesh is None else _split(self.mesh)):
            rejection = self._rejection(choice, device)
            if rejection is None:
                return Plan(
                    fingerprint=here,
                    choices=dict.fromkeys(self.plans[0].buckets if self.plans else (1,), choice),
                    device=device,
                    portable=True,
                    reason=f"{why}; until then {choice} runs it, on any machine" if self.mesh is None else why,
                )
            if rejection:
                rejections.append(rejection)
        raise BackendError(f"nothing here can run {self.name}: {'; '.join(rejections) or 'the model has no portable graph'}")

    def lossless_plan(self) -> Plan:
        """As `plan_here`, and where that chose a lossy precision, the form in fp32 that was measured to be fastest here: at
        that batch size, else at the nearest at which any was measured.

        Raises BackendError where none can run.
        """
        plan = self.plan_here()
        if not any(choice.precision.lossy for choice in plan.choices.values()):
            return plan
        exact = {replace(item, files=()): item for item in _PORTABLE if self._rejection(item, plan.device) is None}
        if not exact:
            raise BackendError(f"{self.name} has no form in fp32 that runs here; package it again")
        known = [
            (item.bucket, item.median_ms, exact[item.choice])
            for item in plan.measurements
            if item.median_ms is not None and item.status in ("won", "lost") and item.choice in exact
        ]

        def fastest(bucket: int) -> Choice:
            nearest = min((size for size, _, _ in known), key=lambda size: abs(size - bucket), default=bucket)
            times = {form: taken for size, taken, form in known if size == nearest}
            return min(exact.values(), key=lambda form: times.get(form, math.inf))

        choices = {size: fastest(size) if item.precision.lossy else item for size, item in plan.choices.items()}
        return replace(plan, choices=choices)

    def exact_plan(self, plan: Plan) -> Plan:
        """What judges the answers of a plan, and takes its place where they are wrong: `lossless_plan` of a lossy one, else the
        portable one. Raises BackendError where none can run."""
        if any(choice.precision.lossy for choice in plan.choices.values()):
            return self.lossless_plan()
        return self.portable_plan("the measured plan was taken back")

    def open(self, batch: int | None = None, *, threads: int | None = None, ordinal: int | None = None) -> Session:
        """A session of the plan's choice for batches of that many rows (None: for its largest bucket).

        `ordinal` is which of the visible GPUs, for a plan that uses one; None is the process's current one. Never imports torch
        for onnxruntime (unless it computes on a GPU) or openvino. Raises BackendError.
        """
        plan = self.plan_here()
        return self.open_choice(plan, plan.choice(batch or max(plan.buckets)), threads=threads, ordinal=ordinal)

    def open_choice(self, plan: Plan, choice: Choice, *, threads: int | None = None, ordinal: int | None = None) -> Session:
        """A session of one of the choices of a plan, as `open` opens it."""
        target = replace(choice.target(plan.device, threads or plan.threads, ordinal), kept=True)
        if isinstance(self.mesh, PipelineMesh):
            return PipelineSession(self.path, self.mesh, target, backend=choice.backend)
        if self.mesh is not None:
            return SplitSession(self.path, self.mesh, target, backend=choice.backend)
        return backends.get(choice.backend).open(self.path, target, choice.files)

    def why_not(self, plan: Plan) -> str | None:
        """Why a plan cannot be used here, and the command that mends it, in one line; None where it can."""
        try:
            changed = measured_otherwise(plan, fingerprint())
            choices = [] if changed else sorted(set(plan.choices.values()), key=str)
            rejections = [
                self._distrusted(item) or backends.get(item.backend).supports(item.target(plan.device, plan.threads))
                for item in choices
            ]
        except BackendError as error:  # a backend that this version does not have
            return f"{error}; {self._remedy(plan)}"
        if rejection := next(filter(None, rejections), None):
            return f"the plan cannot run here: {rejection}"
        if not changed:
            return None
        listed = "; ".join(f"{name} {there} there, {now} here" for name, (there, now) in changed.items())
        return f"the plan was measured elsewhere ({listed}); {self._remedy(plan, changed)}"

    def _rejection(self, choice: Choice, device: str) -> str | None:
        """Why a portable choice cannot run; empty where its file is not here."""
        if not set(choice.files) <= set(self.files):
            return ""
        return self._distrusted(choice) or backends.get(choice.backend).supports(Target(device=device))

    def _distrusted(self, choice: Choice) -> str | None:
        if self.trusted or not backends.get(choice.backend).runs_code:
            return None
        return f"{choice} would run code that the package holds, with your rights: {REMEDY}"

    @property
    def unmeasured(self) -> str:
        """What to say of a model without any plan."""
        if self.mesh is not None:
            return self.mesh.described
        return f"no plan was measured; {self._remedy(None)}"

    def _remedy(self, plan: Plan | None, changed: Differences | None = None) -> str:
        if ONNX_FILE not in self.files:
            return "compile the model again here"
        device = " --device cuda" if plan is not None and plan.device == "cuda" else ""
        lossy = plan is not None and any(choice.precision.lossy for choice in plan.choices.values())
        measure = f"headrace tune {self.path.parent}{device}{' --calibration IMAGES' if lossy else ''} measures it here"
        if plan is None or not changed or any(name in ("cpu", "flags", "cores", "gpus", "headrace") for name in changed):
            return measure
        wanted = " ".join(f"{name}=={there}" for name, (there, _) in changed.items() if there)
        return f"pip install {wanted} brings back what was measured, or {measure}" if wanted else measure


def measured_otherwise(plan: Plan, here: Mapping[str, Any]) -> Differences:
    """What of a machine is not as it was where the plan was measured, of what its own backends depend on."""
    libraries = {name for choice in plan.choices.values() for name in backends.get(choice.backend).libraries}
    return differences(plan.fingerprint, here, device=plan.device, libraries=sorted(libraries))


def model_names(models: Path) -> list[str]:
    """The models that a repository holds, without their companions, sorted."""
    return sorted({record.parent.parent.name for record in models.glob(f"*/*/{MANIFEST}")})


def load_artifact(directory: Path | str, *, version: int | None = None, trusted: bool = False) -> Artifact:
    """Load and verify a model folder such as models/resnet50; the newest version unless one is named.

    `trusted`, or HEADRACE_TRUST_REPOSITORY=1 where a container is the wall, lets it run the code that it holds.
    Raises DigestError naming the file that is not the one written, and ArtifactError for whatever else is wrong.
    """
    folder = Path(directory)
    if (folder / MANIFEST).is_file():
        raise ArtifactError(f"{folder} is a version of a model; load the model's own folder, {folder.resolve().parent}")
    path, number = _version(folder, version)
    # The folder's own, and that of a link to it, as an orchestrator mounts volumes.
    names = folder.resolve().name, check_name(Path(os.path.abspath(folder)).name)
    content, label_files = read_manifest(path)
    try:
        signature = Signature.from_json(content["signature"])
        preprocessing = None if content["preprocessing"] is None else Preprocessing.from_json(content["preprocessing"])
        task = _task(content, signature, label_files)
        plans = tuple(Plan.from_json(plan) for plan in content["plans"])
        written_as = str(content["name"])
        parity, provenance = dict(content["parity"]), dict(content["provenance"])
        answers = None if content.get("answers") is None else dict(content["answers"])
        check_record(answers, signature)
        routes = _routes(content, signature)
        mesh = _mesh(content, signature, task)
    except _ODD as error:
        raise ArtifactError(f"{path / MANIFEST} holds what this version of Headrace cannot read: {error!r}") from error
    files = tuple(file for file in content["digests"] if not file.startswith("../"))
    for plan in plans:
        for choice in plan.choices.values():
            if not choice.files:
                raise ArtifactError(f"{path / MANIFEST}: the plan's {choice} opens no file; package the model again")
            if unknown := sorted(set(choice.files) - set(files)):
                raise ArtifactError(f"{path / MANIFEST}: the plan opens {unknown[0]!r}, which is not one of its files")
    if written_as not in names:
        raise ArtifactError(
            f"{folder} holds the model {written_as!r}; rename the folder back, or package the model under a new name"
        )
    name = check_name(written_as)
    config = read_config(folder)
    check_config(config, signature, name=name, where=str(folder / "config.pbtxt"))
    for named in (output.label_filename for output in config.outputs if output.label_filename):
        if label_files and named not in label_files:
            known = " or ".join(map(repr, label_files))
            raise ArtifactError(f"{folder / 'config.pbtxt'}: label_filename must be {known}, whose digest is known")
    return Artifact(
        name=name,
        version=number,
        path=path,
        signature=signature,
        preprocessing=preprocessing,
        task=task,
        plans=plans,
        config=config,
        files=files,
        parity=parity,
        provenance=provenance,
        created=str(content.get("created", "")),
        trusted=is_trusted(trusted),
        answers=answers,
        routes=routes,
        mesh=mesh,
    )


def read_routes(directory: Path) -> tuple[KeptRoute, ...]:
    """The routes of the newest version of a model folder, without a look at the model itself. Raises ArtifactError."""
    path, _ = _version(directory, None)
    content = read_content(path)
    try:
        return _routes(content, Signature.from_json(content["signature"])) if content.get("routes") else ()
    except _ODD as error:
        raise ArtifactError(f"{path / MANIFEST} holds what this version of Headrace cannot read: {error!r}") from error


def _routes(content: Mapping[str, Any], signature: Signature) -> tuple[KeptRoute, ...]:
    """The routes that a manifest says can be kept. Raises ValueError."""
    if not (data := content.get("routes", [])):
        return ()
    classes = signature.outputs[0].classes
    if len(signature.outputs) != 1 or classes is None:
        raise ValueError("routes are those of a model with one output of scores")
    return routes_from_json(data, classes=classes, labeled=f"../{LABELS}" in content["digests"])


def _mesh(content: Mapping[str, Any], signature: Signature, task: Task) -> Mesh | PipelineMesh | None:
    """How a manifest says that its model is split. Raises ValueError."""
    if (data := content.get("mesh")) is None:
        return None
    if content["plans"]:
        raise ValueError("a split model has no plans")
    beside = {name: written for name, written in content["digests"].items() if not name.startswith("../")}
    if is_pipeline(data):
        return PipelineMesh.from_json(data, digests=beside, signature=signature)
    return Mesh.from_json(data, digests=beside, signature=signature, task=task)


def _split(mesh: Mesh | PipelineMesh) -> tuple[Choice, ...]:
    """What runs a split model."""
    return (Choice(backend="onnxruntime", precision=FP32, files=mesh.files),)


def _task(content: Mapping[str, Any], signature: Signature, label_files: Mapping[str, bytes]) -> Task:
    """What a manifest says of the outputs; one of before there were tasks says only whether the first holds probabilities."""
    if "task" in content:
        task = Task.from_json(content["task"], signature)
    else:
        first = signature.outputs[0]
        told = f"0={MULTI_LABEL if first.classes == 1 else SINGLE_LABEL}" if label_files else ""
        task = Task.of(signature, told, activated={first.name: "softmax"} if content["probabilities"] else {})
    texts = {name: data.decode("utf-8").removesuffix("\n").split("\n") for name, data in label_files.items()}
    files = [labels_file(index, task.primary) for index in range(len(signature.outputs))]
    named = {head.output: texts[file] for head, file in zip(task.heads, files, strict=True) if file in texts}
    return task.labeled(named, signature)


def versions(directory: Path | str) -> list[int]:
    """The versions in a model's folder, ascending. As in Triton, only folders named by a number without leading zeros count."""
    folder = Path(directory)
    if not folder.is_dir():
        raise ArtifactError(f"{folder} is not a model's folder; it does not exist or is a file")
    return sorted(
        int(entry.name)
        for entry in folder.iterdir()
        if entry.name.isdecimal() and entry.name.isascii() and not entry.name.startswith("0") and entry.is_dir()
    )


def _version(folder: Path, wanted: int | None) -> tuple[Path, int]:
    found = versions(folder)
    if not found:
        raise ArtifactError(f"{folder} holds no version of a model; expected a numbered folder such as {folder / '1'}")
    if wanted is not None and wanted not in found:
        raise ArtifactError(f"{folder} has no version {wanted}; it has {', '.join(map(str, found))}")
    number = found[-1] if wanted is None else wanted
    path = folder / str(number)
    if path.is_symlink():
        raise ArtifactError(f"{path} is a symbolic link; a version must be a folder of its own")
    return path, number
