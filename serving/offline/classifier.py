"""The model of a job: image bytes to rows, rows to scores, scores to labels, as the embedded server does it."""

from __future__ import annotations

import hashlib
import logging
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import ArtifactError, BackendError, ClassifyError, InputError
from ...runtime.artifact.artifact import Artifact, load_artifact
from ...runtime.artifact.manifest import MANIFEST
from ...runtime.artifact.model_config import FILE
from ...runtime.artifact.model_folder import model_folder
from ...runtime.artifact.pipeline.stages import Stages
from ..batching.lanes import lanes
from ..batching.ticket import close
from ..config import ServeConfig
from ..images.decode_pool import decode_rows
from ..models.devices import each_device
from ..models.loading import open_instance, preprocessor_of
from ..models.warmup import sample_inputs, warm_up
from ..protocol.results import predictions
from .config import ClassifyConfig
from .sources import Image
from .stages import Parts, StageReport

log = logging.getLogger("headrace.classify")


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Which model it is; `digest` is of its config and its record, which holds its files' digests, preprocessing and plans."""

    name: str
    version: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As the job keeps it."""
        return {"name": self.name, "version": self.version, "digest": self.digest}


def identify(artifact: Artifact) -> ModelIdentity:
    """Tells this model from any other, and from itself with other plans."""
    parts = (artifact.path / MANIFEST, artifact.path.parent / FILE)
    digest = hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()
    return ModelIdentity(name=artifact.name, version=artifact.version, digest=digest)


def load(config: ClassifyConfig) -> Artifact:
    """The job's model, verified. Raises ArtifactError, and ClassifyError when it does not classify images."""
    artifact = load_artifact(model_folder(config.model, flag="--model"), trusted=config.trust_repository)
    if artifact.preprocessing is None:
        raise ClassifyError(f"{artifact.imageless}; package it with its preprocessing (headrace migrate)")
    if len(artifact.signature.inputs) != 1:
        raise ClassifyError(f"{artifact.name} has {len(artifact.signature.inputs)} inputs; an image can only be one")
    heads = artifact.task.classifying
    if not heads:
        outputs = zip(artifact.task.heads, artifact.signature.outputs, strict=True)
        given = ", ".join(f"{spec.name} of shape {spec.shape}{f' ({head})' if str(head) else ''}" for head, spec in outputs)
        raise ClassifyError(f"{artifact.name} is no classifier: it gives {given}")
    if len(heads) > 1:
        names = " and ".join(head.output for head in heads)
        raise ClassifyError(
            f"{artifact.name} gives labels in several outputs, {names}, and a job writes those of one; serve it, and "
            "/v1/classify answers with all"
        )
    return artifact


class Classifier:
    """A loaded, warm model. `decode` may be called by many threads, `scores` by as many as there are `instances`.

    `batch` is the number of rows at which it serves most.
    """

    def __init__(self, artifact: Artifact, config: ClassifyConfig) -> None:
        if artifact.preprocessing is None:
            raise ArtifactError(f"{artifact.name} does not say how an image becomes its input")
        plan, self.artifact = artifact.plan_here(), artifact
        settings = ServeConfig.of(models=artifact.path, decoding=config.decoding, max_pixels=config.max_pixels)
        self._preprocessor = preprocessor_of(artifact.preprocessing, artifact.signature, settings)
        self._shape = artifact.signature.inputs[0].row_shape
        self._output = artifact.task.primary
        self._head = artifact.task.heads[self._output]
        self._top_k = config.top_k
        largest = artifact.max_batch_size
        if config.batch is not None:
            if config.batch > largest:
                raise ClassifyError(f"{artifact.name} takes at most {largest} rows at once; give --batch {largest} or less")
            opener: Callable[..., Any] = partial(_one_size, artifact, config.batch, config.threads)
        else:
            opener = partial(open_instance, artifact, plan, largest, config.threads)
        # the processes of a split model have the processor's cores already
        count = config.instances or (None if artifact.mesh is None else 1)
        instances, table = warm_up(each_device(opener, plan, None), artifact.signature, count=count)
        self.batch = max(table.buckets, key=lambda rows: (rows / table.seconds(rows), rows))
        for instance in instances:
            close({rows: other for rows, other in instance.items() if other is not instance[self.batch]})
        self._sessions = [lane[self.batch] for lane in lanes([{self.batch: instance[self.batch]} for instance in instances])]
        self._known = sample_inputs(artifact.signature, 1)
        self._pipelines = [ranks for ranks in {id(r): r for r in self._ranks()}.values() if isinstance(ranks, Stages)]
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for session in self._sessions:
            self._idle.put(session)

    @property
    def instances(self) -> int:
        """Batches that may be computed side by side."""
        return len(self._sessions)

    def decode(self, images: list[Image]) -> np.ndarray:
        """A row for each image that can be decoded, [rows, ...]; the others say in their `error` why not. Bytes are let go."""
        rows: np.ndarray = np.empty((len(images), *self._shape), self._preprocessor.dtype)
        count = 0
        for image in images:
            if image.error is None:
                assert image.data is not None, "an image was read or says why not"
                try:
                    decode_rows(self._preprocessor, [image.data], self._shape, rows[count : count + 1])
                    count += 1
                except InputError as error:
                    image.error = str(error)
                except Exception as error:  # a decoder that fails in a way nobody foresaw costs its own image
                    log.debug("decoding %s failed", image.name, exc_info=error)
                    image.error = f"the image could not be decoded: {type(error).__name__}: {error}"
            image.data = None
        return rows[:count]

    def scores(self, rows: np.ndarray) -> list[np.ndarray | str]:
        """The scores that the model gives for each row, or what went wrong with that row alone.

        Raises BackendError or RankLostError when it gives none for any row any more.
        """
        session = self._idle.get()
        try:
            return list(session.run([rows])[self._output])
        except BackendError:
            alone = [self._alone(session, rows[number : number + 1]) for number in range(len(rows))]
            if isinstance(alone[-1], str):
                session.run(self._known)  # for which there were scores once
            return alone
        finally:
            self._idle.put(session)

    def parts(self) -> Callable[[], list[StageReport]]:
        """Tells how the processes of a model that is a pipeline have stood since now."""
        several = len(self._pipelines) > 1
        parts = [
            (pipeline, Parts(f"pipeline {number} stage" if several else "stage", pipeline.totals))
            for number, pipeline in enumerate(self._pipelines)
        ]
        return lambda: [report for pipeline, part in parts for report in part.report(pipeline.shares())]

    def labels(self, scores: np.ndarray) -> list[dict[str, Any]]:
        """The labels of one row of scores: what the server's /v1/classify answers under "predictions"."""
        return predictions(self._head, scores, self._top_k)

    def close(self) -> None:
        """Free the sessions."""
        for session in self._sessions:
            session.close()

    def _ranks(self) -> Iterator[Any]:
        for session in self._sessions:
            if hasattr(session, "ranks"):
                yield session.ranks

    def _alone(self, session: Any, row: np.ndarray) -> np.ndarray | str:
        try:
            return session.run([row])[self._output][0]
        except BackendError as error:
            return f"the model failed: {error}"


def _one_size(artifact: Artifact, batch: int, threads: int | None, *, ordinal: int | None) -> dict[int, Any]:
    return {batch: artifact.open(batch, threads=threads, ordinal=ordinal)}
