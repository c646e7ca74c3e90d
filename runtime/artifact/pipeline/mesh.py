"""What a manifest says of a pipeline: its stages, and which values go from each to the next. Torch-free."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....specs import Signature

MAX_STAGES = 64
_KIND = "pipeline"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage: a graph, as the file whose digest is known, and the names of the values that the next stage takes, be they of
    this graph or of what came to it. Those of the last stage are the model's outputs."""

    file: str
    gives: tuple[str, ...]
    digest: str


@dataclass(frozen=True, kw_only=True)
class PipelineMesh:
    """A mesh of one axis, whose stages follow one another. The first takes the model's inputs, `takes`."""

    takes: tuple[str, ...]
    stages: tuple[Stage, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """All graphs, in the order of the stages."""
        return tuple(stage.file for stage in self.stages)

    @property
    def described(self) -> str:
        """How the model lies, in words."""
        return f"cut into a pipeline of {len(self.stages)} stages"

    @property
    def taken(self) -> tuple[tuple[str, ...], ...]:
        """The names of the values that each stage takes."""
        return (self.takes, *(before.gives for before, _ in itertools.pairwise(self.stages)))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest, whose digests and inputs are elsewhere in it."""
        stages = [{"file": stage.file, "gives": list(stage.gives)} for stage in self.stages]
        return {"shape": [len(stages)], "kind": _KIND, "stages": stages}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, digests: Mapping[str, str], signature: Signature) -> PipelineMesh:
        """Read what `to_json` wrote of such a model; `digests` are those of the files beside the manifest. Raises KeyError,
        TypeError or ValueError on anything else."""
        stages = tuple(
            Stage(file=item["file"], gives=tuple(item["gives"]), digest=digests[item["file"]]) for item in data["stages"]
        )
        mesh = cls(takes=tuple(spec.name for spec in signature.inputs), stages=stages)
        if not 2 <= len(stages) <= MAX_STAGES:
            raise ValueError(f"mesh: a pipeline has 2 to {MAX_STAGES} stages, got {len(stages)}")
        if data != mesh.to_json():
            raise ValueError(f"mesh: expected the shape [{len(stages)}], {_KIND!r}, and a file and names for each stage")
        if len(set(mesh.files)) != len(stages):
            raise ValueError(f"mesh: the stages must be files of their own, got {list(mesh.files)}")
        for stage in stages:
            if not stage.gives or len(set(stage.gives)) != len(stage.gives) or not all(map(_is_name, stage.gives)):
                raise ValueError(f"mesh: {stage.file} must give values, each once, got {list(stage.gives)}")
        outputs = tuple(spec.name for spec in signature.outputs)
        if stages[-1].gives != outputs:
            raise ValueError(f"mesh: the last stage gives {list(stages[-1].gives)}, not the model's outputs {list(outputs)}")
        return mesh


def is_pipeline(data: Any) -> bool:
    """Whether what a manifest calls its mesh says that it is a pipeline's."""
    return isinstance(data, Mapping) and data.get("kind") == _KIND


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
