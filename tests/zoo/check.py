"""One family through the runtime: `python check.py CATALOG FAMILY OUT.json PARENT_PID`, a process of its own.

Built, settled, captured with a symbolic batch, rewritten, written as a portable graph, opened by every cheap backend, and
compared with the module itself at each batch. Timing is not its business.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.errors import BackendError, CaptureError
from headrace.runtime import backends
from headrace.runtime.artifact.parity import Gate, compare
from headrace.runtime.base.session import Target
from headrace.runtime.base.structure import flatten
from headrace.runtime.capture.capture import CapturedGraph, capture
from headrace.runtime.passes import run_passes
from headrace.runtime.tuning.randomize import settled
from headrace.runtime.tuning.reference import Reference, make_reference

BATCHES = (1, 2, 3)
BACKENDS = ("onnxruntime", "openvino")
_MOST_LETTERS = 600
_PR_SET_PDEATHSIG = 1


def load_catalog(path: Path) -> Any:
    """The catalog in that file, which may import what lies beside it."""
    sys.path.insert(0, str(path.resolve().parent))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module  # dataclasses look their module up by name
    specification.loader.exec_module(module)
    return module


def check(catalog: Any, family: str) -> dict[str, Any]:
    """What became of the family, ready for JSON: `status`, and where it is not "passed" `stage` and `why`."""
    found: dict[str, Any] = {"family": family, "seconds": {}}
    try:
        with _timed(found, "build"):
            candidate = catalog.candidate(family)
            model = settled(candidate.model, [candidate.images])
    except catalog.NotRun as reason:
        return found | {"status": "not run", "why": str(reason)}
    except Exception as error:  # noqa: BLE001 - libraries raise anything; it is this family's outcome
        return found | {"status": "failed", "stage": "build", "why": _text(error)}
    found |= {"variant": candidate.variant, "parameters": candidate.parameters, "size": candidate.images.shape[-1]}
    try:
        with _timed(found, "capture"):
            captured = capture(model, candidate.images[:2])
    except CaptureError as error:
        obstacles = [dataclasses.asdict(item) for item in error.obstacles]
        return found | {"status": "failed", "stage": "capture", "why": _text(error), "obstacles": obstacles}
    with _timed(found, "passes"):
        optimized, records = run_passes(captured)
    found["passes"] = {record.name: record.status if not record.why else f"{record.status}: {record.why}" for record in records}
    with _timed(found, "reference"):
        reference = _reference(model, captured)
    with tempfile.TemporaryDirectory(prefix="zoo-") as directory:
        found["backends"] = {name: _judged(name, optimized, reference, Path(directory), found) for name in BACKENDS}
    if any(item["status"] == "passed" for item in found["backends"].values()):
        return found | {"status": "passed"}
    why = "; ".join(dict.fromkeys(item["why"] for item in found["backends"].values()))
    return found | {"status": "failed", "stage": "backends", "why": why}


def _reference(model: torch.nn.Module, captured: CapturedGraph) -> Reference:
    """Rows and noise as the plan uses them; the outputs are the module's own, batch by batch, not those of its graph."""
    reference = make_reference(captured, Target(threads=torch.get_num_threads()), rows=max(BATCHES))
    runs = []
    for batch in BATCHES:
        with torch.no_grad():
            outputs = model(*(torch.from_numpy(value[:batch].copy()) for value in reference.inputs))
        runs.append([value.numpy() for value in flatten(outputs, torch.is_tensor, lambda where, value: None)[0]])
    return dataclasses.replace(reference, outputs=_joined(runs))


def _judged(
    name: str, graph: CapturedGraph, reference: Reference, directory: Path, found: dict[str, Any]
) -> dict[str, float | str | None]:
    """Outcome of one backend: "passed", "failed" (it could not do it) or "refused" (it computes something else)."""
    backend, target = backends.get(name), Target(threads=torch.get_num_threads())
    if why := backend.supports(target):
        return {"status": "missing", "why": why}
    try:
        with _timed(found, name):
            session = backend.open(directory, target, backend.prepare(graph, target, directory))
            with contextlib.closing(session):
                actual = _joined([session.run([value[:batch] for value in reference.inputs]) for batch in BATCHES])
    except BackendError as error:
        return {"status": "failed", "why": f"{name}: {_text(error)}"}
    record = compare(reference.outputs, actual, Gate(noise=reference.noise), task=reference.task, batches=BATCHES)
    return {
        "status": "passed" if record.passed else "refused",
        "max_abs": record.max_abs,
        "tolerance": record.tolerance,
        "noise": reference.noise[reference.task.primary],
        "why": f"{name}: {record.why}" if record.why else "",
    }


def _joined(runs: list[list[Any]]) -> list[Any]:
    return [np.concatenate(parts) for parts in zip(*runs, strict=True)]


@contextlib.contextmanager
def _timed(found: dict[str, Any], stage: str) -> Iterator[None]:
    """Adds the seconds of the block; they tell where a run's time goes, and nothing about a model's speed."""
    begin = time.monotonic()
    try:
        yield
    finally:
        found["seconds"][stage] = round(time.monotonic() - begin, 1)


def _text(error: BaseException) -> str:
    words = " ".join(f"{'' if isinstance(error, BackendError | CaptureError) else type(error).__name__ + ': '}{error}".split())
    return words if len(words) <= _MOST_LETTERS else words[: _MOST_LETTERS - 3] + "..."


def _die_with(parent: int) -> None:
    """A runner that is killed takes its families along."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the runner is gone")


def main() -> None:
    catalog, family, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    _die_with(int(sys.argv[4]))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    result = check(load_catalog(catalog), family)
    aside = out.with_suffix(".part")
    aside.write_text(json.dumps(result))
    aside.replace(out)


if __name__ == "__main__":
    main()
