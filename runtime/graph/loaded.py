"""A graph from a model folder, without the source of the model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ...errors import ArtifactError, InputError
from ...specs import Signature
from ..artifact.artifact import Artifact, load_artifact
from ..artifact.manifest import MANIFEST
from ..artifact.parity import ParityRecord
from ..artifact.plan import Plan
from ..base.passes import PassRecord
from ..base.structure import LEAF, Structure
from ..inspect.describe import framed, parity_line, pass_lines, plan_lines, signature_lines
from .checks import check_tensors
from .runner import Runner


class LoadedGraph:
    """A graph from a model folder: called like any other, without the source of the model. Calls from several threads take
    turns. What changes a graph (compiling, training, saving) is for graphs of modules; a folder is copied as it is.

    `plan` is how it runs, by default as measured on a machine like this one; `structure` puts its outputs together, by default
    as plain dicts and tuples. Raises ArtifactError where the model has outputs of another structure, or is split.
    """

    def __init__(self, artifact: Artifact, *, plan: Plan | None = None, structure: Structure | None = None) -> None:
        if artifact.mesh is not None:
            raise ArtifactError(
                f"{artifact.path} is {artifact.mesh.described}; headrace serve runs it, or load the whole model's folder"
            )
        self.artifact = artifact
        self._lock = threading.RLock()
        outputs = artifact.provenance.get("outputs")
        with _read_from(artifact):
            self._structure = Structure.from_json(outputs) if outputs else _plain_structure(artifact.signature)
        if structure is not None:
            if structure != self._structure:
                raise ArtifactError(f"the outputs of {artifact.path} are put together in another way")
            self._structure = structure
        self._runner = Runner(artifact.signature, plan or artifact.plan_here(), artifact.path)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        wanted = self._runner.signature.inputs
        if len(inputs) != len(wanted):
            names = ", ".join(spec.name for spec in wanted)
            raise InputError(f"this graph takes {len(wanted)} tensors ({names}), got {len(inputs)}")
        check_tensors(inputs, [spec.name for spec in wanted])
        with self._lock:
            return self._structure.rebuild(self._runner.run(inputs))

    def close(self) -> None:
        """Close its sessions; a later call opens them again."""
        with self._lock:
            self._runner.close()

    @property
    def plan(self) -> Plan:
        """How it runs here, with every measurement."""
        return self._runner.plan

    @property
    def signature(self) -> Signature:
        return self._runner.signature

    @property
    def parity(self) -> ParityRecord:
        """Of the plan that was measured on a machine like this one; else what packaging found."""
        if self.plan.measurements:
            return self.plan.worst_parity()
        with _read_from(self.artifact):
            return ParityRecord.from_json(self.artifact.parity)

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        with _read_from(self.artifact):
            return tuple(PassRecord(**record) for record in self.artifact.provenance.get("passes", ()))

    def __repr__(self) -> str:
        artifact = self.artifact
        lines = [
            f"{artifact.name} version {artifact.version}",
            *signature_lines(self.signature, artifact.task),
        ]
        lines += [f"labels of {head.output}: {len(head.labels)} classes" for head in artifact.task.heads if head.labels]
        if artifact.preprocessing is not None:
            steps = ", ".join(map(str, artifact.preprocessing.geometry)) or "no geometry"
            lines.append(f"preprocessing: {artifact.preprocessing.mode} image, {steps}")
        lines += [*pass_lines(self.passes), *plan_lines(self.plan), parity_line(self.parity)]
        return framed("LoadedGraph", lines)


def load(path: str | Path) -> LoadedGraph:
    """A graph from a model folder that `Graph.save` or `headrace migrate` wrote. Raises ArtifactError, or BackendError
    when nothing installed here can run it."""
    return LoadedGraph(load_artifact(path, trusted=True))


@contextlib.contextmanager
def _read_from(artifact: Artifact) -> Iterator[None]:
    """What the manifest holds beside what every reader needs is read when it is asked for."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = artifact.path / MANIFEST
        raise ArtifactError(f"{where} holds what this version of Headrace cannot read: {error!r}; package it again") from error


def _plain_structure(signature: Signature) -> Structure:
    if len(signature.outputs) == 1:
        return LEAF
    return Structure("mapping", tuple((spec.name, LEAF) for spec in signature.outputs))
