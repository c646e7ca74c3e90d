"""`python check.py REQUEST.json RESPONSE.json`: one family through capture, passes and backends, in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

BATCHES = (1, 2, 3)
_BYTES = 26 << 30  # of address space, of which torch maps much that it never touches


def check(model: torch.nn.Module, sides: list[int]) -> dict[str, Any]:
    """{"stage", "why", "backends": {name: "passed" or why}, "size", "capture_seconds"} of a model that is built already."""
    from penstock.errors import BackendError, CaptureError
    from penstock.runtime import backends
    from penstock.runtime.capture import capture
    from penstock.runtime.parity import Gate, compare
    from penstock.runtime.passes import run_passes
    from penstock.runtime.randomise import noise, randomised
    from penstock.runtime.reference import make_reference
    from penstock.runtime.session import Target

    model.eval()
    side, why = _legal_side(model, sides)
    if side is None:
        return {"stage": "run", "why": why}
    example = noise((2, 3, side, side))
    model = randomised(model, [example])
    begin = time.monotonic()
    try:
        captured = capture(model, example)
    except CaptureError as error:
        first = error.obstacles[0] if error.obstacles else error
        return {"stage": "capture", "why": str(first), "size": side}
    optimised, passes = run_passes(captured)
    found: dict[str, Any] = {
        "size": side,
        "capture_seconds": round(time.monotonic() - begin, 1),
        "passes": {record.name: record.status for record in passes},
        "backends": {},
    }
    reference = make_reference(captured, Target(), rows=max(5, *BATCHES))
    gate = Gate(noise=reference.noise)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("onnxruntime", "openvino"):
            backend = backends.get(name)
            if why := backend.supports(Target()):
                found["backends"][name] = why
                continue
            try:
                session = backend.open(Path(folder), Target(), backend.prepare(optimised, Target(), Path(folder)))
                results = [session.run([value[:batch] for value in reference.inputs]) for batch in (*BATCHES, 5)]
            except BackendError as error:
                found["backends"][name] = str(error)[:500]
                continue
            given = [np.concatenate(parts) for parts in zip(*results, strict=True)]
            wanted = [
                np.concatenate(parts)
                for parts in zip(*[[value[:batch] for value in reference.outputs] for batch in (*BATCHES, 5)], strict=True)
            ]
            record = compare(wanted, given, gate, primary=reference.primary, batches=BATCHES)
            found["backends"][name] = "passed" if record.passed else str(record.why)
    able = [name for name, outcome in found["backends"].items() if outcome == "passed"]
    found["stage"] = "passed" if able else "backends"
    found["why"] = "" if able else "; ".join(f"{name}: {why}" for name, why in found["backends"].items())
    return found


def _legal_side(model: torch.nn.Module, sides: list[int]) -> tuple[int | None, str]:
    why = ""
    for side in sides:
        try:
            with torch.no_grad():
                model(torch.zeros(1, 3, side, side))
            return side, ""
        except Exception as error:  # noqa: BLE001 - a side that the model refuses; the last reason is reported
            why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None, why


def main(request: Path, response: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    torch.manual_seed(0)
    asked = json.loads(request.read_text())
    from families import build, make_torchvision_importable, sizes

    make_torchvision_importable()
    sides = sizes(asked["source"], asked["model"])
    try:
        model = build(asked["source"], asked["model"])
    except Exception as error:  # noqa: BLE001 - reported as this family's outcome
        outcome = {"stage": "build", "why": f"{type(error).__name__}: {error}"}
    else:
        outcome = check(model, sides)
    aside = response.with_suffix(".tmp")
    aside.write_text(json.dumps(outcome))
    aside.replace(response)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
