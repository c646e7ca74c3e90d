"""What a manifest says of a split model: the mesh, and which file and which classes are whose. Torch-free."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....specs import Signature
from ...base.task import Task

MAX_RANKS = 64
SBP = "split(0)"  # of the last layer's weight [classes, features], as in headrace.parallel


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rank's share of the last layer: a graph from the features [rows, width] to the scores [rows, classes] of so many
    classes, as the file whose digest is known."""

    file: str
    classes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A mesh of one axis. `trunk` is the graph from the model's inputs to the features; the parts follow in the order of their
    classes, one for each rank."""

    trunk: str
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """All graphs, the trunk first."""
        return (self.trunk, *(part.file for part in self.parts))

    @property
    def described(self) -> str:
        """How the model lies, in words."""
        return f"split by class over {len(self.parts)} ranks"

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The first class of each rank, and the one behind its last."""
        ends = list(itertools.accumulate((part.classes for part in self.parts), initial=0))
        return tuple(itertools.pairwise(ends))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest, whose digests are elsewhere in it."""
        parts = [{"file": part.file, "classes": part.classes} for part in self.parts]
        return {"shape": [len(parts)], "sbp": SBP, "trunk": self.trunk, "parts": parts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, digests: Mapping[str, str], signature: Signature, task: Task) -> Mesh:
        """Read what `to_json` wrote of such a model; `digests` are those of the files beside the manifest. Raises KeyError,
        TypeError or ValueError on anything else."""
        check_model(signature, task)
        classes = signature.outputs[0].classes
        parts = tuple(Part(file=item["file"], classes=item["classes"], digest=digests[item["file"]]) for item in data["parts"])
        mesh = cls(trunk=data["trunk"], parts=parts)
        if not 2 <= len(parts) <= MAX_RANKS:
            raise ValueError(f"mesh: a model is split over 2 to {MAX_RANKS} ranks, got {len(parts)}")
        if data != mesh.to_json():
            raise ValueError(
                f"mesh: expected the shape [{len(parts)}], {SBP!r}, and a file and a number of classes for each part"
            )
        if len(set(mesh.files)) != len(mesh.files) or mesh.trunk not in digests:
            raise ValueError(f"mesh: the trunk and the parts must be files of their own, got {list(mesh.files)}")
        if any(type(part.classes) is not int or part.classes < 1 for part in parts) or mesh.bounds[-1][1] != classes:
            raise ValueError(f"mesh: parts of {[part.classes for part in parts]} classes are not the model's {classes}")
        return mesh


def check_model(signature: Signature, task: Task) -> None:
    """Raise ValueError unless a model has one output, float32 scores of classes of which one holds."""
    names = [spec.name for spec in signature.outputs]
    if len(names) != 1:
        raise ValueError(f"a model with several outputs ({', '.join(names)}) cannot be split; package it with its scores alone")
    if task.one_choice is None or task.heads[0].probabilities or signature.outputs[0].dtype != "float32":
        raise ValueError(
            f"output {names[0]!r} ({signature.outputs[0].dtype}) is {task.heads[0].described}; what can be split are float32 "
            "scores of classes of which one holds, without a softmax: package the model so"
        )
