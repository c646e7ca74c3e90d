"""One model version on disk, in Triton's model-repository layout: written atomically, its digests checked at load. Torch-free.

    resnet50/config.pbtxt  labels.txt  1/model.onnx  1/headrace.json ...

Digests catch damage, not malice: whoever can write an artifact can write its digests too, so load only what you trust.
"""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

from ..._version import __version__
from ...errors import ArtifactError, BackendError
from ...specs import FP32, Labels, Preprocessing, Signature
from .. import backends
from ..base.atomic import replacing
from ..base.fingerprint import Differences, differences, fingerprint
from ..base.session import Session, Target
from .manifest import FORMAT, LABELS, MANIFEST, check_file, check_name, digest, read_manifest, write_manifest
from .model_config import ModelConfig, check_config, config_text, read_config
from .parity import ParityRecord
from .plan import Choice, Plan

_ONNX_FILE = "model.onnx"
# What runs a model on a machine that nobody measured: the first that is installed and has its file.
_PORTABLE = (
    Choice(backend="onnxruntime", precision=FP32, files=(_ONNX_FILE,)),
    Choice(backend="openvino", precision=FP32, files=(_ONNX_FILE,)),
    Choice(backend="eager", precision=FP32, files=("model.pt2",)),
)


_MAX_BATCH_SIZE = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Artifact:
    """A loaded, verified model version. `path` is the version's folder; `parity` and `provenance` are as they were written.

    `probabilities` says that the outputs are probabilities already, so no softmax may follow.
    """

    name: str
    version: int
    path: Path
    signature: Signature
    preprocessing: Preprocessing | None
    labels: Labels | None
    probabilities: bool
    plans: tuple[Plan, ...]
    config: ModelConfig = field(repr=False)
    files: tuple[str, ...] = field(repr=False)
    parity: Mapping[str, Any] = field(repr=False)
    provenance: Mapping[str, Any] = field(repr=False)
    created: str = ""

    @property
    def max_batch_size(self) -> int:
        """The most rows that one call may have, from `config.pbtxt`."""
        return self.config.max_batch_size

    def plan_here(self) -> Plan:
        """The plan measured on a machine like this one, else a portable one in fp32, which gives its reason.

        A portable one is for the GPU where there is one that the installed library can use. Raises BackendError, naming what
        to install, when nothing that is installed can run the model.
        """
        here = fingerprint()
        reasons = []
        for plan in self.plans:
            if (reason := self.why_not(plan)) is None:
                return plan
            reasons.append(reason)
        rejections = []
        for device, choice in itertools.product(("cuda", "cpu") if here["gpus"] else ("cpu",), _PORTABLE):
            if not set(choice.files) <= set(self.files):
                continue
            rejection = backends.get(choice.backend).supports(Target(device=device))
            if rejection is None:
                return Plan(
                    fingerprint=here,
                    choices=dict.fromkeys(self.plans[0].buckets if self.plans else (1,), choice),
                    device=device,
                    portable=True,
                    reason=f"{reasons[0] if reasons else self.unmeasured}; until then {choice} runs it, on any machine",
                )
            rejections.append(rejection)
        raise BackendError(f"nothing here can run {self.name}: {'; '.join(rejections) or 'the model has no portable graph'}")

    def open(self, batch: int | None = None, *, threads: int | None = None, ordinal: int | None = None) -> Session:
        """A session of the plan's choice for batches of that many rows (None: for its largest bucket).

        `ordinal` is which of the visible GPUs, for a plan that uses one; None is the process's current one. Never imports torch
        for onnxruntime (unless it computes on a GPU) or openvino. Raises BackendError.
        """
        plan = self.plan_here()
        rows = batch or max(plan.buckets)
        choice = plan.choice(rows)
        return backends.get(choice.backend).open(self.path, plan.target(rows, threads=threads, ordinal=ordinal), choice.files)

    def why_not(self, plan: Plan) -> str | None:
        """Why a plan cannot be used here, and the command that mends it, in one line; None where it can."""
        try:
            changed = measured_otherwise(plan, fingerprint())
            choices = [] if changed else sorted(set(plan.choices.values()), key=str)
            rejections = [backends.get(item.backend).supports(item.target(plan.device, plan.threads)) for item in choices]
        except BackendError as error:  # a backend that this version does not have
            return f"{error}; {self._remedy(plan)}"
        if rejection := next(filter(None, rejections), None):
            return f"the plan cannot run here: {rejection}"
        if not changed:
            return None
        listed = "; ".join(f"{name} {there} there, {now} here" for name, (there, now) in changed.items())
        return f"the plan was measured elsewhere ({listed}); {self._remedy(plan, changed)}"

    @property
    def unmeasured(self) -> str:
        """What to say of a model without any plan."""
        return f"no plan was measured; {self._remedy(None)}"

    def _remedy(self, plan: Plan | None, changed: Differences | None = None) -> str:
        if _ONNX_FILE not in self.files:
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


def load_artifact(directory: Path | str, *, version: int | None = None) -> Artifact:
    """Load and verify a model folder such as models/resnet50; the newest version unless one is named.

    Raises DigestError naming the file that is not the one written, and ArtifactError for whatever else is wrong.
    """
    folder = Path(directory)
    if (folder / MANIFEST).is_file():
        raise ArtifactError(f"{folder} is a version of a model; load the model's own folder, {folder.resolve().parent}")
    name = check_name(folder.resolve().name)
    path, number = _version(folder, version)
    content, raw_labels = read_manifest(path)
    try:
        signature = Signature.from_json(content["signature"])
        preprocessing = None if content["preprocessing"] is None else Preprocessing.from_json(content["preprocessing"])
        labels = None if raw_labels is None else Labels.of(raw_labels.decode("utf-8").removesuffix("\n").split("\n"))
        plans = tuple(Plan.from_json(plan) for plan in content["plans"])
        written_as = str(content["name"])
        probabilities = bool(content["probabilities"])
        parity, provenance = dict(content["parity"]), dict(content["provenance"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path / MANIFEST} holds what this version of Headrace cannot read: {error!r}") from error
    files = tuple(file for file in content["digests"] if file != f"../{LABELS}")
    for plan in plans:
        for choice in plan.choices.values():
            if unknown := sorted(set(choice.files) - set(files)):
                raise ArtifactError(f"{path / MANIFEST}: the plan opens {unknown[0]!r}, which is not one of its files")
    if written_as != name:
        raise ArtifactError(
            f"{folder} holds the model {written_as!r}; rename the folder back, or package the model under a new name"
        )
    config = read_config(folder)
    check_config(config, signature, name=name, where=str(folder / "config.pbtxt"))
    if labels is not None and config.label_filename not in ("", LABELS):
        raise ArtifactError(f"{folder / 'config.pbtxt'}: label_filename must be {LABELS!r}, whose digest is known")
    return Artifact(
        name=name,
        version=number,
        path=path,
        signature=signature,
        preprocessing=preprocessing,
        labels=labels,
        probabilities=probabilities,
        plans=plans,
        config=config,
        files=files,
        parity=parity,
        provenance=provenance,
        created=str(content.get("created", "")),
    )


class ModelContents(TypedDict, total=False):
    """What a model's folder is written from: every file under `files_from`, and what its manifest and config say.

    `max_batch_size` defaults to the plans' largest bucket.
    """

    name: Required[str]
    files_from: Required[Path]
    signature: Required[Signature]
    parity: Required[ParityRecord | Mapping[str, Any]]
    plans: Required[Sequence[Plan]]
    provenance: Required[Mapping[str, Any]]
    preprocessing: Preprocessing | None
    labels: Labels | Sequence[str] | None
    probabilities: bool
    max_batch_size: int | None


def write_artifact(directory: Path, **model: Unpack[ModelContents]) -> Path:
    """Write the folder `directory` of the model, which must be called like it, and return it.

    A model that stands there is replaced in one step at the very end; on any failure it stays as it was. Raises ArtifactError.
    """
    check_target(directory, model["name"])
    with replacing(directory.parent, [model["name"]]) as (folder,):
        fill_artifact(folder, **model)
    return directory


def check_target(directory: Path, name: str) -> None:
    """Raise ArtifactError unless a model of that name may be written there: nothing but a model is ever replaced."""
    check_name(name)
    if directory.name != name:
        raise ArtifactError(f"the model {name!r} cannot be written to {directory}; the folder must be called {name!r}")
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ArtifactError(f"{directory} is a file or a link; remove it, or choose another folder")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / "config.pbtxt").is_file():
        raise ArtifactError(f"{directory} exists and holds no model; it is left as it is: choose another folder")


def fill_artifact(folder: Path, **model: Unpack[ModelContents]) -> None:
    """Write version 1 of a model into an empty folder; `write_artifact` without the swap."""
    name, files_from, signature, plans = model["name"], model["files_from"], model["signature"], model["plans"]
    preprocessing, labels, parity = model.get("preprocessing"), model.get("labels"), model["parity"]
    version = folder / "1"
    version.mkdir()
    digests = {file: _copy(files_from, file, version) for file in _files(files_from)}
    if not digests:
        raise ArtifactError(f"{files_from} holds no files; there is no graph to package as {name!r}")
    for plan in plans:
        for choice in plan.choices.values():
            if absent := sorted(set(choice.files) - set(digests)):
                raise ArtifactError(f"the plan of {name!r} opens {absent[0]!r}, which is not in {files_from}")
    if labels is not None:
        digests[f"../{LABELS}"] = _write_labels(folder, checked_labels(labels, signature))
    largest = max((bucket for plan in plans for bucket in plan.buckets), default=_MAX_BATCH_SIZE)
    text = config_text(
        signature,
        name=name,
        # Triton has no backend for torch.export's format; only the embedded server runs a model without an ONNX graph.
        backend="onnxruntime" if _ONNX_FILE in digests else "headrace",
        max_batch_size=model.get("max_batch_size") or largest,
        label_filename=LABELS if labels is not None else "",
    )
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    write_manifest(
        version,
        {
            "format": FORMAT,
            "headrace": __version__,
            "name": name,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "signature": signature.to_json(),
            "preprocessing": None if preprocessing is None else preprocessing.to_json(),
            "probabilities": model.get("probabilities", False),
            "digests": digests,
            "parity": parity.to_json() if isinstance(parity, ParityRecord) else parity,
            "plans": [plan.to_json() for plan in plans],
            "provenance": model["provenance"],
        },
    )


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


def _files(root: Path) -> list[str]:
    """Every file below a folder, relative, sorted; names that a manifest could not hold and links are refused."""
    found = []
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            entry = Path(place) / name
            if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                raise ArtifactError(f"{entry} is a link or a special file; an artifact holds only files and folders of its own")
        found += [check_file((Path(place) / name).relative_to(root).as_posix()) for name in files]
    if MANIFEST in found:
        raise ArtifactError(f"{root / MANIFEST} would be overwritten; package from a folder with the graph's files only")
    return sorted(found)


def _copy(source: Path, file: str, version: Path) -> str:
    copy = version / file
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / file, copy)
    return digest(copy, inside=version)


def checked_labels(labels: Labels | Sequence[str], signature: Signature) -> Labels:
    """The labels as a value; raises ArtifactError unless there is one per class of the first output."""
    try:
        checked = labels if isinstance(labels, Labels) else Labels.of(labels)
    except ValueError as error:
        raise ArtifactError(str(error)) from error
    classes = signature.outputs[0].classes
    if classes != len(checked):
        raise ArtifactError(f"{len(checked)} labels for an output of {classes or 'no'} classes; give one per class")
    return checked


def _write_labels(folder: Path, labels: Labels) -> str:
    (folder / LABELS).write_text("\n".join(labels.names) + "\n", encoding="utf-8", newline="\n")
    return digest(folder / LABELS, inside=folder)
