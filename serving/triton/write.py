"""The production variant of a models folder: the same models with the settings that a Triton in production wants."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...runtime.artifact.artifact import load_artifact
from ...runtime.artifact.manifest import MANIFEST
from ...runtime.artifact.model_config import FILE, to_text
from ...runtime.artifact.write_artifact import check_target
from ...runtime.base.atomic import replacing
from .config import Settings
from .lint import lint
from .production import decoder_settings, tensor_settings
from .subject import ModelFolder, Repository, read_repository


@dataclass(frozen=True, kw_only=True)
class Written:
    """One model, and what there is to say of it. `written` is False where it was left out; the caveats say why."""

    name: str
    written: bool
    caveats: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "written": self.written, "notes": list(self.caveats)}


def write(models: Path, out: Path, settings: Settings) -> list[Written]:
    """Write every model that Triton can run into `out`, which may hold earlier ones; each is replaced as a whole.

    Tensor models get the plan's settings, decoders theirs; ensembles and models that Headrace did not package are copied as
    they are. The embedded server reads the result too. A model without an ONNX graph is left out, with its companions.
    Raises ArtifactError where lint finds what Triton would refuse, a file is damaged, or nothing remains.
    """
    if models.resolve() == out.resolve():
        raise ArtifactError(f"{out} is the models folder itself; name another folder, the original stays as it is")
    findings = lint(models, gpus=1)  # instances are chosen below
    repository = read_repository(models, gpus=1)
    left_out = _left_out(repository)
    if rejected := [finding for finding in findings if finding.severity == "error" and finding.model not in left_out]:
        listed = "\n".join(f"  {finding}" for finding in rejected)
        raise ArtifactError(f"Triton would not load {models}; put this right first:\n{listed}")
    names = [name for name in repository.models if name not in left_out]
    if not names:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in left_out.items())
        raise ArtifactError(f"{models} holds no model that Triton can run:\n{reasons}")
    for name in names:
        check_target(out / name, name)
    caveats = {}
    with replacing(out, names) as folders:
        for name, folder in zip(names, folders, strict=True):
            caveats[name] = _write_model(repository.models[name], folder, settings)
    written = [Written(name=name, written=True, caveats=tuple(caveats[name])) for name in names]
    return written + [Written(name=name, written=False, caveats=(reason,)) for name, reason in left_out.items()]


def _left_out(repository: Repository) -> dict[str, str]:
    """Models that Triton cannot run, and those that are of no use without them."""
    reasons = {
        name: "it has no ONNX graph, and Triton has no backend for torch.export's; only headrace serve runs it"
        for name, model in repository.models.items()
        if model.backend == "headrace"
    }
    for name, model in repository.models.items():
        steps = [step.model_name for step in model.config.ensemble_scheduling.step]
        if lost := next((step for step in steps if step in reasons), None):
            reasons[name] = f"it needs {lost}, which is left out"
    for name in repository.models:
        if (target := name.removesuffix("_decode")) != name and target in reasons:
            reasons[name] = f"it decodes for {target}, which is left out"
    return reasons


def _write_model(model: ModelFolder, folder: Path, settings: Settings) -> list[str]:
    caveats = []
    config = type(model.config)()
    config.CopyFrom(model.config)
    wanted = model.wanted_versions
    shutil.copytree(model.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    del config.model_warmup[:]
    if model.backend == "onnxruntime" and all((folder / str(version) / MANIFEST).is_file() for version in wanted):
        # Read, and compared with its digests, from where it lies: the copy's name is another until it is in its place.
        for version in wanted[:-1]:
            load_artifact(model.folder, version=version)
        caveats = tensor_settings(config, load_artifact(model.folder, version=wanted[-1]), settings, folder / "warmup")
    elif model.backend == "python" and _takes_images(config):
        caveats = decoder_settings(config, settings, folder / "warmup")
    elif not model.is_ensemble:
        config.CopyFrom(model.config)
        caveats = ["Headrace did not package it; it is copied as it is"]
    (folder / FILE).write_text(to_text(config), encoding="utf-8")
    return caveats


def _takes_images(config: Any) -> bool:
    from ...runtime.artifact.triton_messages import model_config as schema

    return [tensor.data_type for tensor in config.input] == [schema.TYPE_STRING] and config.name.endswith("_decode")
