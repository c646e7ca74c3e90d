"""What Triton would refuse of a models folder, found without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import ArtifactError
from ...runtime.base.fingerprint import gpus as gpus_here
from . import lint_ensemble, lint_folder, lint_graph, lint_scheduling, lint_tensors
from .finding import Finding, error
from .subject import read_repository

_CHECKS = (lint_folder.check, lint_tensors.check, lint_graph.check, lint_scheduling.check, lint_ensemble.check)


def lint(models: Path, *, gpus: int | None = None) -> list[Finding]:
    """All findings in a models folder, by model. `gpus` are those of the machine that will serve, by default of this one.

    The rules are those of Triton's core and its onnxruntime backend, and tests hold them to a real Triton. Raises
    ArtifactError when there is no such folder, or no model in it.
    """
    if not models.is_dir():
        raise ArtifactError(f"{models} is not a folder; give the models folder that headrace migrate or compile wrote")
    repository = read_repository(models, gpus=len(gpus_here()) if gpus is None else gpus)
    if not repository.models and not repository.unreadable:
        raise ArtifactError(f"{models} holds no models; give the folder whose folders have a config.pbtxt each")
    findings = [
        replace(error("TR001", reason.where, str(reason)), model=name) for name, reason in repository.unreadable.items()
    ]
    for model in repository.models.values():
        findings += [replace(finding, model=model.name) for check in _CHECKS for finding in check(model, repository)]
    return sorted(findings, key=lambda finding: finding.model)


def status(findings: Sequence[Finding]) -> int:
    """The exit status, added up as the migrator's is: 1 warnings, 2 errors."""
    severities = {finding.severity for finding in findings}
    return ("warning" in severities) + 2 * ("error" in severities)
