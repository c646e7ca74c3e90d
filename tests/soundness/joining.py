"""Faults in sessions that join a model while it serves, and in what OpenVINO compiled before: no request may meet them."""

from __future__ import annotations

import copy
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import headrace
from headrace.errors import BackendError
from headrace.runtime.artifact.artifact import Artifact, load_artifact
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.backends import openvino
from headrace.serving.config import ServeConfig
from headrace.serving.models import improvement, loading
from headrace.serving.models.memory_bound import MemoryBound
from headrace.specs import FP32

from .candidates import Rows, add, images, nan_on_rare_inputs, neighbors, net, zero_beyond
from .faults import Fault
from .stored import CONFIG, package

_BUCKETS, _ROWS = (1, 8, 32), 32
_SECONDS, _SLOWER = 60.0, 0.004
_HEAD = "of the head's weights"
_LATER = 40  # its batches, when it has stayed already
_BY = (
    ("answers otherwise", "batches computed by the first session, too"),
    ("beside rows of NaN", "known rows beside rows of NaN, before it joins"),
    ("is not used", "known rows, before it joins"),
    ("that is not its own", "known rows, before it joins"),
    ("were recorded", "recorded answers of known rows before it serves"),
    ("recorded ones", "recorded answers of known rows before it serves"),
)
Change = Callable[[Rows, Sequence[np.ndarray], float, int], Rows | None]


class _Joining:
    """What joins: `change(outputs, inputs, magnitude, number of the batch)` alters what it computes. Without one, as it is."""

    def __init__(self, session: Any, change: Change | None, magnitude: float, seconds: float = 0.0) -> None:
        self.session, self.change, self.magnitude, self.seconds = session, change, magnitude, seconds
        self.batches = 0

    def run(self, inputs: Sequence[np.ndarray]) -> Rows:
        time.sleep(self.seconds)
        outputs = [value.copy() for value in self.session.run(inputs)]
        self.batches += 1
        return (self.change and self.change(outputs, inputs, self.magnitude, self.batches)) or outputs

    def close(self) -> None:
        self.session.close()


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _beside(change: Change | None, *, right: bool = True, second: bool = False) -> Callable[[float], str | None]:
    """Who keeps away what joins for batches of 32, or as a second instance. With `right`, no answer may be wrong meanwhile."""

    def plant(magnitude: float) -> str | None:
        def own(artifact: Artifact, plan: Plan, *_: Any) -> dict[int, Any]:
            if second:
                return {}
            opened = _Joining(artifact.open_choice(plan, plan.first()), change, magnitude)
            return {_ROWS: improvement.Candidate(lambda: {_ROWS: opened}, 0)}

        def another(artifact: Artifact, plan: Plan, threads: Any, sessions: Any) -> Any:
            opened = _Joining(artifact.open_choice(plan, plan.first()), change, magnitude, _SLOWER)
            return improvement.Candidate(lambda: dict.fromkeys(sessions, opened), 0)

        with _slow_first(), patch.object(loading, "_own_sessions", own), patch.object(loading, "_second", another):
            return _served(package(_BUCKETS).parent, right=right, instances=None if second else 1)

    return plant


@contextmanager
def _slow_first() -> Iterator[None]:
    """A first session that is so slow that what joins is to be kept."""
    right = loading.open_first

    def slow(*given: Any, **more: Any) -> dict[int, Any]:
        sessions = right(*given, **more)
        first = _Joining(next(iter(sessions.values())), None, 0.0, _SLOWER)
        return dict.fromkeys(sessions, first)

    with patch.object(loading, "open_first", slow):
        yield


def _served(models: Path, *, right: bool, instances: int | None = 1, batches: int = 400) -> str | None:
    """Who noticed what joins the network while it answers so many batches; None for nobody, or where an answer is wrong."""
    rows = images()[:_ROWS]
    with torch.no_grad():
        wanted = [value.numpy() for value in net()(torch.from_numpy(rows)).values()]
    seen, log = _Warnings(), logging.getLogger("headrace.serving")
    log.addHandler(seen)
    memory = MemoryBound()
    try:
        config = ServeConfig.of(models=models, threads=1, instances=instances)
        model = loading.load_tensor_model(models / "net", config, lambda text: None, version=1, memory=memory)
        try:
            for _ in range(batches):
                tickets = [model.batcher.admit(_ROWS, timeout=_SECONDS) for _ in range(4)]
                for ticket in tickets:
                    model.batcher.submit(ticket, [rows.copy()])
                answers = [ticket.future.result() for ticket in tickets]
                wrong = any(not np.allclose(a, b, atol=1e-3) for given in answers for a, b in zip(wanted, given, strict=True))
                if wrong and right:
                    return None
                if seen.said:
                    break
        finally:
            model.close()
    except BackendError as error:
        seen.said.append(str(error))
    finally:
        log.removeHandler(seen)
    return next((next((by for text, by in _BY if text in said), said) for said in seen.said), None)


def _always(change: Callable[[Rows, Sequence[np.ndarray], float], Rows | None]) -> Change:
    return lambda outputs, inputs, magnitude, _: change(outputs, inputs, magnitude)


def _from(number: int) -> Change:
    """Right at first, and wrong from that batch on."""
    return lambda out, _, size, batch: add(out, size * out[0]) if batch >= number else None


def _compiled_before(*, joining: bool) -> Callable[[float], str | None]:
    """OpenVINO's compiled file of a network whose head is another, under this one's key: as if the key forgot the files."""

    def plant(magnitude: float) -> str | None:
        other = copy.deepcopy(net())
        with torch.no_grad():
            other.head.weight *= 1 + magnitude
        fixed = Choice(backend="openvino", precision=FP32, files=("model.onnx",), batch=_ROWS)
        anyhow = replace(fixed, batch=None)

        def first(artifact: Artifact, plan: Plan, *_: Any, **more: Any) -> dict[int, Any]:
            return dict.fromkeys(_BUCKETS, _Joining(artifact.open_choice(plan, anyhow, threads=1), None, 0.0, _SLOWER))

        def own(artifact: Artifact, plan: Plan, *_: Any) -> dict[int, Any]:
            return {_ROWS: improvement.Candidate(lambda: {_ROWS: artifact.open_choice(plan, fixed, threads=1)}, 0)}

        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            stack.enter_context(patch.dict(os.environ, {"HEADRACE_CACHE": str(folder / "cache")}))
            for where, what, instead in (
                (openvino, "key_of", lambda files, facts: f"{facts['rows'] or 0:064x}"),
                (loading, "open_first", first),
                (loading, "_own_sessions", own if joining else lambda *_: {}),
            ):
                stack.enter_context(patch.object(where, what, instead))
            graph = headrace.compile(other, torch.from_numpy(images()[:2]), config=replace(CONFIG, buckets=_BUCKETS))
            before = load_artifact(graph.save(folder / "before" / "net", labels=[f"class {index}" for index in range(10)]))
            before.open_choice(before.plan_here(), fixed if joining else anyhow, threads=1).close()
            shutil.copytree(package(_BUCKETS), folder / "models" / "net")
            return _served(folder / "models", right=True)

    return plant


def clean() -> list[tuple[str, str | None]]:
    """What must be let in, and who refused it."""
    return [("a session that joins", _beside(None)(0.0)), ("a second instance", _beside(None, second=True)(0.0))]


def faults() -> list[Fault]:
    """Every fault of this stage."""
    at_once: list[tuple[str, Change, float | None, str]] = [
        ("wrong rows at one batch size", _always(zero_beyond), 16.0, "rows of 32"),
        ("leak from the row before", _always(neighbors), 1.0, "of its scores"),
        ("NaN on a rare input", _always(nan_on_rare_inputs), 0.5, "of the inputs"),
        ("outputs in another order", _always(lambda out, *_: out[::-1]), None, ""),
        ("labels permuted", _always(lambda out, *_: [np.roll(out[0], 1, axis=1), out[1]]), None, ""),
        ("second head wrong", _always(lambda out, _, size: add(out, size * out[1], to=1)), 1.0, "of its values"),
        ("scores scaled", _always(lambda out, _, size: add(out, size * out[0])), 1.0, "of the scores"),
        ("right only for the known rows", _always(_right_for_known), 1.0, "of the scores"),
    ]
    return [
        *(Fault(name, "joining", _beside(change), size, unit) for name, change, size, unit in at_once),
        Fault("right at first, wrong while it is tried", "joining", _beside(_from(9), right=False), 1.0, "of the scores"),
        Fault("right at first, wrong when it stays", "joining", _beside(_from(_LATER), right=False), 1.0, "of the scores"),
        *(
            Fault(name, "joining as an instance", _beside(change, second=True), size, unit)
            for name, change, size, unit in at_once[:-1]
        ),
        Fault("compiled of another model, at the start", "compiled file", _compiled_before(joining=False), 1.0, _HEAD),
        Fault("compiled of another model, joining", "compiled file", _compiled_before(joining=True), 1.0, _HEAD),
    ]


def _right_for_known(outputs: Rows, inputs: Sequence[np.ndarray], magnitude: float) -> None:
    """Wrong for the pictures, whose pixels are not those of the known rows."""
    known = np.abs(inputs[0]).max() <= 2 or np.isnan(inputs[0]).any()
    add(outputs, 0 if known else magnitude * outputs[0])
