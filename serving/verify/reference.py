"""What the packaged model answers: its portable graph in fp32, whatever plan this machine has for it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import AmbiguousError, ArtifactError, HeadraceError, VerifyError
from ...runtime.artifact.agreement import flat_scores
from ...runtime.artifact.artifact import Artifact, load_artifact, model_names, versions
from ...runtime.base.session import Session
from ...runtime.images.preprocessing import ImageError
from .answers import Vocabulary
from .images import Sample
from .pipeline import Pipeline

_ROWS = 8


class Reference:
    """One version of a packaged model. Close it when done."""

    def __init__(self, artifact: Artifact) -> None:
        if len(artifact.signature.inputs) != 1:
            raise VerifyError(
                f"{artifact.name} has {len(artifact.signature.inputs)} inputs; endpoints of one image or tensor can be judged"
            )
        self.artifact = artifact
        self.input = artifact.signature.inputs[0]
        output = artifact.signature.outputs[0]
        labels = () if artifact.labels is None else artifact.labels.names
        self.vocabulary = Vocabulary(output.classes or int(np.prod(output.row_shape)), labels)

    @functools.cached_property
    def session(self) -> Session:
        return replace(self.artifact, plans=()).open()

    def close(self) -> None:
        if "session" in self.__dict__:
            self.session.close()

    @property
    def precisions(self) -> frozenset[str]:
        """What the package's own plans compute in, on one machine or another."""
        return frozenset(choice.precision.dtype for plan in self.artifact.plans for choice in plan.choices.values())

    def outputs(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Every output by its name, each [rows, ...], in few rows at a time."""
        parts = [self.session.run([rows[at : at + _ROWS]]) for at in range(0, len(rows), _ROWS)]
        names = [spec.name for spec in self.artifact.signature.outputs]
        return {name: np.concatenate([part[index] for part in parts]) for index, name in enumerate(names)}

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """The first output as float64 [rows, classes]."""
        first = next(iter(self.outputs(rows).values()))
        return flat_scores(first).reshape(len(rows), -1).astype(np.float64)

    def rows(self, pipeline: Pipeline, samples: Sequence[Sample]) -> np.ndarray | None:
        """A row for each image; None where they are not of the model's shape. Raises ImageError for what is no image to it."""
        pixels = self.artifact.signature.takes_pixels
        made = [pipeline(sample.data, as_pixels=pixels) for sample in samples]
        return np.stack(made) if all(row.shape == self.input.row_shape for row in made) else None

    def taken(self, pipeline: Pipeline, samples: Sequence[Sample]) -> list[Sample]:
        """The images that the model's preprocessing takes at all."""
        found = []
        for sample in samples:
            try:
                if self.rows(pipeline, [sample]) is not None:
                    found.append(sample)
            except ImageError:
                continue
        return found


def open_reference(models: Path, model: str | None = None) -> Reference:
    """The model of that name, or the only one, in a folder of models. Raises VerifyError, AmbiguousError or ArtifactError."""
    folder = models.parent if (models / "config.pbtxt").is_file() else models
    names = [models.name] if folder != models else model_names(models)
    if not names:
        raise VerifyError(f"{models} holds no packaged model; `headrace migrate REPO --out DIR` writes DIR/models")
    if model is not None and model not in names:
        raise VerifyError(f"{models} has no model {model!r}; it has {', '.join(names)}")
    if model is None and len(names) > 1:
        raise AmbiguousError(f"{models} holds {len(names)} models", candidates=names, flag="--model")
    return Reference(load_artifact(folder / (model or names[0])))


def others(reference: Reference) -> Mapping[str, Reference]:
    """The other models beside it, and its other versions, that answer as many classes for such a row, by what to call them."""
    own = reference.artifact
    folder, found = own.path.parent, {}
    candidates: list[tuple[Path, int | None]] = [(folder, number) for number in versions(folder) if number != own.version]
    candidates += [(folder.parent / name, None) for name in model_names(folder.parent) if name != own.name]
    for place, number in candidates:
        try:
            other = Reference(load_artifact(place, version=number))
        except (ArtifactError, HeadraceError):
            continue
        if other.input.row_shape == reference.input.row_shape and other.vocabulary.count == reference.vocabulary.count:
            found[f"version {number} of {own.name}" if number else f"the model {place.name}"] = other
    return found
