"""Faults between a packaged model and the answers of the server: a version that shows one must not be served."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import headrace
from headrace.errors import BackendError
from headrace.serving.batching import executor
from headrace.serving.batching.collate import Collator, split
from headrace.serving.config import ServeConfig
from headrace.serving.models import loading

from .candidates import images, net
from .faults import Fault
from .stored import CONFIG, package

BUCKETS = (1, 8)
Split = Callable[[Sequence[np.ndarray], Sequence[Any]], list[list[np.ndarray]]]


def load(models: Path) -> str | None:
    """Who refuses to serve it; None where it serves."""
    config = ServeConfig.of(models=models, instances=1, threads=1)
    try:
        model = loading.load_tensor_model(models / "net", config, lambda text: None, version=1)
    except BackendError as error:
        for text, by in (
            ("not its own", "requests of known rows before it serves"),
            ("were recorded", "recorded answers of known rows before it serves"),
            ("not finite", "warm-up"),
        ):
            if text in str(error):
                return by
        return str(error)
    model.close()
    return None


def _planted(make: Callable[[float], AbstractContextManager[Any]]) -> Callable[[float], str | None]:
    def plant(magnitude: float) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(package(BUCKETS), Path(folder) / "net")
            with make(magnitude):
                return load(Path(folder))

    return plant


def _splitting(change: Split) -> Callable[[float], str | None]:
    return _planted(lambda _: patch.object(executor, "split", change))


def _exchanged(outputs: Sequence[np.ndarray], items: Sequence[Any]) -> list[list[np.ndarray]]:
    return split([np.roll(output, 1, axis=0) for output in outputs], items)


def _of_the_end(outputs: Sequence[np.ndarray], items: Sequence[Any]) -> list[list[np.ndarray]]:
    rows = sum(item.rows for item in items)
    return split([output[len(output) - rows :] for output in outputs], items)


def _a_batch_late(_: float) -> AbstractContextManager[Any]:
    before: list[list[np.ndarray]] = []

    def late(outputs: Sequence[np.ndarray], items: Sequence[Any]) -> list[list[np.ndarray]]:
        before.append([output.copy() for output in outputs])
        same = [other for other in before[:-1] if len(other[0]) == len(outputs[0])]
        return split(same[-1] if same else outputs, items)

    return patch.object(executor, "split", late)


def _unchanged_buffer(_: float) -> AbstractContextManager[Any]:
    """The buffer that a batch is laid out in keeps the rows of the first batch of that size."""
    right, kept = Collator.collate, {}

    def collate(self: Collator, items: Sequence[Any], bucket: int) -> list[np.ndarray]:
        return kept.setdefault(bucket, [value.copy() for value in right(self, items, bucket)])

    return patch.object(Collator, "collate", collate)


def _in_sessions(change: Callable[[list[np.ndarray], float], list[np.ndarray]]) -> Callable[[float], str | None]:
    """What the opened sessions compute, changed: the files are as they were packaged, the library here is not."""

    class Changed:
        def __init__(self, session: Any, magnitude: float) -> None:
            self.session, self.magnitude = session, magnitude

        def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
            return change([value.copy() for value in self.session.run(inputs)], self.magnitude)

        def close(self) -> None:
            self.session.close()

    def make(magnitude: float) -> AbstractContextManager[Any]:
        return _opening(
            lambda right, *given, **more: {
                bucket: Changed(session, magnitude) for bucket, session in right(*given, **more).items()
            }
        )

    return _planted(make)


@contextmanager
def _opening(change: Callable[..., Any]) -> Iterator[None]:
    """However the loader opens sessions, `change(open, ...)` does it."""
    with ExitStack() as stack:
        for name in ("open_first", "open_instance"):
            stack.enter_context(patch.object(loading, name, partial(change, getattr(loading, name))))
        yield


def _other_version(magnitude: float) -> str | None:
    """The loader opens the files of another version: a network of the same form whose head is another."""
    other = copy.deepcopy(net())
    with torch.no_grad():
        other.head.weight *= 1 + magnitude
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        shutil.copytree(package(BUCKETS), models / "net")
        graph = headrace.compile(other, torch.from_numpy(images()[:2]), config=replace(CONFIG, buckets=BUCKETS))
        wrong = graph.save(models / "aside" / "net", labels=[f"class {index}" for index in range(10)])
        with _opening(lambda right, artifact, *given, **more: right(replace(artifact, path=wrong / "1"), *given, **more)):
            return load(models)


def clean() -> list[tuple[str, str | None]]:
    """What must be served, and who refused it."""
    return [("the packaged network, served", _planted(lambda _: nullcontext())(0.0))]


def faults() -> list[Fault]:
    """Every fault of this stage."""
    return [
        Fault("rows of two requests exchanged", "server", _splitting(_exchanged)),
        Fault("a row of padding answered", "server", _splitting(_of_the_end)),
        Fault("answers of the batch before", "server", _planted(_a_batch_late)),
        Fault("a batch's buffer that is not written again", "server", _planted(_unchanged_buffer)),
        Fault("the answer of another version", "server", _other_version, 1.0, "of the head's weights"),
        Fault(
            "a library that computes something else here",
            "server",
            _in_sessions(lambda out, size: [out[0] * np.float32(1 + size), *out[1:]]),
            1.0,
            "of the scores",
        ),
        Fault("NaN", "server", _in_sessions(lambda out, _: [out[0] * np.float32(np.nan), *out[1:]])),
    ]
