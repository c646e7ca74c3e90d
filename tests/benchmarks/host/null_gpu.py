"""A model that computes nothing on a device that takes its time: what the host costs is all that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from headrace.runtime.artifact.model_config import ConfigTensor, ModelConfig
from headrace.runtime.base.task import Task
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import BatchPolicy
from headrace.serving.models.loading import best_of
from headrace.serving.models.models import TensorModel
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec

NAME, CLASSES, BEST = "null", 1000, 5
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
_LAUNCH_SECONDS = 2e-4


class NullDevice:
    """One device, which computes a batch after another, `row_seconds` for each row."""

    def __init__(self, row_seconds: float) -> None:
        self._row_seconds = row_seconds
        self._lock = threading.Lock()
        self._free = 0.0

    def seconds(self, bucket: int) -> float:
        return _LAUNCH_SECONDS + bucket * self._row_seconds

    def compute(self, bucket: int) -> None:
        """Wait until the device is done with a batch that comes now."""
        with self._lock:
            self._free = max(time.monotonic(), self._free) + self.seconds(bucket)
            ended = self._free
        time.sleep(max(0.0, ended - time.monotonic()))


class NullSession:
    """What a backend's session is to the batcher. It gives the same scores again and again; `batches` counts rows by calls."""

    def __init__(self, device: NullDevice) -> None:
        self._device = device
        self._scores: np.ndarray = np.zeros((BUCKETS[-1], CLASSES), np.float32)
        self.batches: list[int] = []

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        bucket = len(inputs[0])
        self.batches.append(bucket)
        self._device.compute(bucket)
        return [self._scores[:bucket]]

    def close(self) -> None:
        """There is nothing to free."""


def null_model(dtype: str, *, size: int, device: NullDevice, instances: int) -> tuple[TensorModel, list[NullSession]]:
    """A classifier of images, with its queue, and its sessions."""
    shape = (size, size, 3) if dtype == "uint8" else (3, size, size)
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype=dtype, shape=("batch", *shape)),),  # type: ignore[arg-type]
        outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", CLASSES)),),
    )
    sessions = [NullSession(device) for _ in range(instances)]
    batcher = Batcher(
        [dict.fromkeys(BUCKETS, session) for session in sessions],
        LatencyTable({bucket: device.seconds(bucket) for bucket in BUCKETS}),
        name=NAME,
        policy=BatchPolicy(),
        max_queue=1024,
        best=best_of(Task.of(signature)),
    )
    geometry = (Resize(size=size * 8 // 7), CenterCrop(size=(size, size)))
    model = TensorModel(
        name=NAME,
        version="1",
        config=ModelConfig(
            name=NAME,
            backend="onnxruntime",
            max_batch_size=BUCKETS[-1],
            inputs=(ConfigTensor(name="x", datatype="UINT8" if dtype == "uint8" else "FP32", shape=shape),),
            outputs=(ConfigTensor(name="scores", datatype="FP32", shape=(CLASSES,)),),
        ),
        batcher=batcher,
        signature=signature,
        preprocessing=Preprocessing(geometry=geometry, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        task=Task.of(signature),
        statistics=batcher.statistics,
    )
    return model, sessions
