"""Every pass and backend that can run on the device, on small models, held to float64 on the CPU."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu.contenders import difference

if TYPE_CHECKING:
    from gpu.bench import Bench

# Largest difference from float64 as a share of the outputs' range, or twice that of the plain module on the device where that
# is more: on a GPU, torch's convolutions compute fp32 in TF32, which a deep network amplifies.
TOLERANCE = {"fp32": 3e-3, "bf16": 1e-1, "fp16": 2e-2, "fp8": 1.5e-1}
BATCHES = (1, 2, 5, 33)
WIDE = "wide vit"  # for fp8, which the small models have no layer for


def section(bench: Bench, name: str) -> None:
    import torch
    from models import ViT, build

    from headrace.runtime import backends
    from headrace.runtime.base.session import Target
    from headrace.runtime.capture.capture import capture
    from headrace.runtime.capture.programs import in_float64, runnable
    from headrace.runtime.passes import run_passes
    from headrace.runtime.tuning.randomize import randomized
    from headrace.specs import FP8

    for model_name in ("resnet50", "vit_small_patch16_224", WIDE):
        example = torch.randn(2, 3, 64, 64)
        wide = model_name == WIDE
        model = ViT(64, depth=2, width=256, heads=4).eval() if wide else build(model_name, 64, tiny=True)
        model = randomized(model, [example])
        exact = copy.deepcopy(model).double()
        rows = [torch.randn(batch, 64, 64, 3).permute(0, 3, 1, 2) for batch in BATCHES]
        with torch.no_grad():
            expected = [exact(images.double()) for images in rows]
        captured = capture(model.to(bench.device), example.to(bench.device))
        with torch.no_grad():
            plain = difference(expected, [model(images.to(bench.device)).cpu() for images in rows])
        optimized, records = run_passes(captured)
        for record in records:
            status = {"rejected": "wrong"}.get(record.status, "right")
            check(bench, f"pass {record.name} on a small {model_name}", status, was=record.status, why=record.why)
        # Folded in float64 too: weights that are rounded to float32 after folding differ by more than the rewrite does.
        proved, _ = run_passes(dataclasses.replace(captured, program=in_float64(captured.program)))
        graph = runnable(proved.program)
        with torch.no_grad():
            given = [graph(images.double().to(bench.device))[0].cpu() for images in rows]
        worst = difference(expected, given)
        status = "right" if worst < 1e-9 else "wrong"
        check(bench, f"passes on a small {model_name}, float64", status, difference=worst)
        # The cheap ones first: where time ends, the dear ones are skipped.
        for backend in sorted(backends.discover().values(), key=lambda one: one.preparation_seconds):
            if bench.arguments.backends is not None and backend.name not in bench.arguments.backends:
                continue
            if backend.name == "kernels":  # here all that can stand must be right, fast or not, and soon
                backend = dataclasses.replace(backend, timer=as_if_faster, seconds=10.0, preparation_seconds=15.0)
            for precision in [item for item in backend.precisions if item.name in TOLERANCE and (item == FP8) is wide]:
                what = f"{backend.name} {precision} on a small {model_name}"
                target = Target(device=bench.device, precision=precision)
                if why := backend.supports(target):
                    check(bench, what, "skipped", why=why)
                elif bench.here < backend.preparation_seconds / 2:  # of a usual model, and these are small
                    check(bench, what, "skipped", why="no time left")
                else:
                    held(bench, what, backend, optimized, target, rows, expected, plain)


def held(bench: Bench, what: str, backend: Any, captured: Any, target: Any, rows: list, expected: list, plain: float) -> None:
    """One backend at one precision. Batches come twice, so that recorded graphs are replayed."""
    import torch

    from headrace.errors import BackendError

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            session = backend.open(Path(folder), target, backend.prepare(captured, target, Path(folder)))
            given = [torch.from_numpy(session.run([images.numpy()])[0]) for images in [*rows, *rows]]
            note = getattr(session, "note", "")
            session.close()
        except BackendError as error:
            check(bench, what, "failed", why=str(error))
            return
    worst, most = difference([*expected, *expected], given), max(TOLERANCE[target.precision.name], 2 * plain)
    status = "right" if worst <= most else "wrong"
    seconds = round(time.monotonic() - begin, 1)
    check(bench, what, status, difference=worst, tolerance=most, seconds=seconds, note=note)


def check(bench: Bench, what: str, status: str, **more: object) -> None:
    bench.found["correctness"].append({"what": what, "status": status, **more})
    said = f"{what}: {status} {' '.join(f'{key} {value}' for key, value in more.items())}"
    if status in ("wrong", "failed"):
        bench.failed(said)
    else:
        bench.say(said)


def as_if_faster(contenders) -> list[float]:
    """Times with which a kernel is chosen wherever it can stand, the largest fusion first."""
    return [1.0 if item.operator == "torch" else 0.5 / len(item.names) for item in contenders]
