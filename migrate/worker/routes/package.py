"""What a package computes of images: with its own preprocessing, in the form that runs everywhere, in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import ArtifactError
from ....runtime.artifact.artifact import Artifact, load_artifact
from ....runtime.images.preprocessing import Preprocessor


class PackagedModel:
    """A package with one output of scores, opened. Raises ArtifactError for another one."""

    def __init__(self, folder: Path) -> None:
        self.artifact: Artifact = load_artifact(folder, trusted=True)  # the sandbox is the wall
        heads, signature = self.artifact.task.heads, self.artifact.signature
        classes = signature.outputs[0].classes
        if len(heads) != 1 or classes is None or heads[0] not in self.artifact.task.classifying:
            raise ArtifactError("only the routes of a model with one output, scores of classes, are kept")
        if self.artifact.preprocessing is None or signature.takes_pixels:
            raise ArtifactError("the package takes tensors, not images")
        self.classes = classes
        self.labels = heads[0].labels
        self._preprocessor = Preprocessor(self.artifact.preprocessing.to_json()["steps"])
        plan = self.artifact.portable_plan("what its application answers is compared with what it computes")
        self._batch = max(plan.buckets)
        self._session = self.artifact.open_choice(plan, plan.choice(self._batch))

    def scores(self, images: Sequence[bytes]) -> np.ndarray:
        """The output [N, classes] for encoded images."""
        found = []
        for at in range(0, len(images), self._batch):
            rows = np.stack([self._preprocessor(data) for data in images[at : at + self._batch]])
            found.append(np.asarray(self._session.run([rows])[0]).reshape(len(rows), -1))
        return np.concatenate(found)
