"""A model version is written: atomically, in Triton's layout, with the digests of all its files. Torch-free."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

from ..._version import __version__
from ...errors import ArtifactError
from ...specs import Preprocessing, Signature
from ..base.atomic import replacing
from ..base.task import GivenLabels, Task
from .manifest import FORMAT, MANIFEST, ONNX_FILE, STEPS_FILE, check_file, check_name, digest, labels_file, write_manifest
from .model_config import FILE, config_text, read_config
from .parity import ParityRecord
from .plan import Plan
from .routes.kept_route import KeptRoute

_MAX_BATCH_SIZE = 16


class ModelContents(TypedDict, total=False):
    """What a model's folder is written from: every file under `files_from`, and what its manifest and config say.

    `max_batch_size` defaults to the plans' largest bucket. `labels` are those of the output that the model is for, or a list
    for each output by name; without `task`, the outputs are what their shapes say. `answers` are those of known rows, which
    whatever serves the model is held to. `routes` are those of an application that the package can answer in its place. `mesh`
    says which of the files a split model consists of.
    """

    name: Required[str]
    files_from: Required[Path]
    signature: Required[Signature]
    parity: Required[ParityRecord | Mapping[str, Any]]
    plans: Required[Sequence[Plan]]
    provenance: Required[Mapping[str, Any]]
    preprocessing: Preprocessing | None
    labels: GivenLabels
    task: Task | None
    max_batch_size: int | None
    answers: Mapping[str, Any] | None
    routes: Sequence[KeptRoute]
    mesh: Mapping[str, Any] | None


def write_artifact(directory: Path, **model: Unpack[ModelContents]) -> Path:
    """Write the folder `directory` of the model, which must be called like it, and return it.

    A model that stands there is replaced in one step at the very end; on any failure it stays as it was. Raises ArtifactError.
    """
    check_target(directory, model["name"])
    with replacing(directory.parent, [model["name"]]) as (folder,):
        fill_artifact(folder, **model)
    return directory


def check_target(directory: Path, name: str) -> None:
    """Raise ArtifactError unless a model of that name may be written there: nothing but a package is ever replaced."""
    check_name(name)
    if directory.name != name:
        raise ArtifactError(f"the model {name!r} cannot be written to {directory}; the folder must be called {name!r}")
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ArtifactError(f"{directory} is a file or a link; remove it, or choose another folder")
    if directory.is_dir() and any(directory.iterdir()) and not _is_packaged(directory):
        kind = "a model that Headrace did not write" if (directory / FILE).is_file() else "no model"
        raise ArtifactError(f"{directory} exists and holds {kind}; it is left as it is: choose another folder, or another name")


def _is_packaged(directory: Path) -> bool:
    """Whether a folder is one of those that a package consists of: the model's, its decoder's or its ensemble's."""
    if not (directory / FILE).is_file():
        return False
    if any(directory.glob(f"[0-9]*/{MANIFEST}")) or any(directory.glob(f"[0-9]*/{STEPS_FILE}")):
        return True
    try:
        steps = read_config(directory).message.get("ensemble_scheduling", {}).get("step", ())
    except (ArtifactError, OSError):
        return False
    named = [step.get("model_name") for step in steps]
    return len(named) == 2 and directory.name == f"{named[1]}_classify" and named[0] == f"{named[1]}_decode"


def fill_artifact(folder: Path, **model: Unpack[ModelContents]) -> None:
    """Write version 1 of a model into an empty folder; `write_artifact` without the swap."""
    name, files_from, signature, plans = model["name"], model["files_from"], model["signature"], model["plans"]
    preprocessing, parity = model.get("preprocessing"), model["parity"]
    task = labeled(model.get("task") or Task.of(signature), model.get("labels"), signature)
    version = folder / "1"
    version.mkdir()
    digests = {file: _copy(files_from, file, version) for file in _files(files_from)}
    if not digests:
        raise ArtifactError(f"{files_from} holds no files; there is no graph to package as {name!r}")
    for plan in plans:
        for choice in plan.choices.values():
            if absent := sorted(set(choice.files) - set(digests)):
                raise ArtifactError(f"the plan of {name!r} opens {absent[0]!r}, which is not in {files_from}")
    label_filenames = {}
    for index, head in enumerate(task.heads):
        if head.labels:
            file = label_filenames[head.output] = labels_file(index, task.primary)
            (folder / file).write_text("\n".join(head.labels) + "\n", encoding="utf-8", newline="\n")
            digests[f"../{file}"] = digest(folder / file, inside=folder)
    largest = max((bucket for plan in plans for bucket in plan.buckets), default=_MAX_BATCH_SIZE)
    text = config_text(
        signature,
        name=name,
        # Triton has no backend for torch.export's format; only the embedded server runs a model without an ONNX graph.
        backend="onnxruntime" if ONNX_FILE in digests else "headrace",
        max_batch_size=model.get("max_batch_size") or largest,
        label_filenames=label_filenames,
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
            "task": task.to_json(),
            "digests": digests,
            "parity": parity.to_json() if isinstance(parity, ParityRecord) else parity,
            "plans": [plan.to_json() for plan in plans],
            "provenance": model["provenance"],
            "answers": model.get("answers"),
            **({"routes": [route.to_json() for route in model["routes"]]} if model.get("routes") else {}),
            **({} if model.get("mesh") is None else {"mesh": model["mesh"]}),
        },
    )


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


def labeled(task: Task, labels: GivenLabels, signature: Signature) -> Task:
    """The task with these labels; raises ArtifactError unless there is one per class of their outputs."""
    try:
        return task.labeled(labels, signature)
    except ValueError as error:
        raise ArtifactError(str(error)) from error
