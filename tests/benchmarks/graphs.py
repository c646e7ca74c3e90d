"""`make bench-graphs`: what graph mode gains over PyTorch eager, per model, batch size and precision allowed.

All figures of a line come from one process and take turns. The baseline is eager fp32 in its default memory format, with an
allocator that keeps large blocks (glibc's defaults would slow it down by up to 1.8x), on as many threads as Headrace uses.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "268435456"}
TARGETS = {
    "resnet50": {"int8 allowed": 6.0, "int8, onnxruntime alone": 4.5, "bf16 allowed": 3.0, "fp32": 1.5},
    "resnet101": {"int8 allowed": 6.0, "int8, onnxruntime alone": 4.5, "bf16 allowed": 3.0, "fp32": 1.5},
    "vit_small_patch16_224": {"int8 allowed": 5.0, "bf16 allowed": 3.0},
    "mobilenet_v3_large": {"int8 allowed": 4.5},
}
RESNET50_GOP = 8.18  # multiply-accumulates at 224x224, times two
_SECONDS = {"int8 allowed": 60.0, "int8, onnxruntime alone": 40.0}  # else 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(TARGETS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "bench-graphs.json")
    arguments = parser.parse_args()
    if any(name not in os.environ for name in ALLOCATOR):  # the allocator reads them when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR, "HEADRACE_CACHE": "off"})
    batches = tuple(int(part) for part in arguments.batches.split(","))
    sys.path.insert(0, str(Path(__file__).parent))
    from rich.console import Console
    from zoo_models import photos

    from headrace.runtime.base.fingerprint import fingerprint

    console = Console(soft_wrap=True)
    data = photos()
    found = {
        "date": datetime.date.today().isoformat(),
        "command": "make bench-graphs",
        "fingerprint": fingerprint(),
        "allocator": ALLOCATOR,
        "models": {},
    }
    for name in arguments.only:
        console.rule(name)
        found["models"][name] = measured(name, data, batches, console)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"written to {arguments.out}")


def measured(name, data, batches, console):
    import numpy as np
    import torch
    from zoo_models import build

    from headrace.runtime import backends
    from headrace.runtime.backends.shared.torch_session import TorchSession
    from headrace.runtime.base.config import GraphConfig
    from headrace.runtime.base.session import Target
    from headrace.runtime.capture.capture import capture
    from headrace.runtime.passes import run_passes
    from headrace.runtime.tuning.judging_data import JudgingData
    from headrace.runtime.tuning.measure import measure
    from headrace.runtime.tuning.source import CapturedSource
    from headrace.runtime.tuning.tune import tune

    model = build(name, data)
    images, labels = data["test"], data["test_labels"]
    with torch.no_grad():
        scores = np.concatenate([model(torch.from_numpy(images[at : at + 16])).numpy() for at in range(0, len(images), 16)])
    accuracy = float((scores.argmax(1) == labels).mean())
    console.print(f"eager top-1 on {len(images)} held-out photos: {accuracy:.1%}")
    captured = capture(model, torch.from_numpy(images[:2]))
    source = CapturedSource(captured, run_passes(captured)[0])
    allowed = {
        "fp32": {"precision": "fp32"},
        "bf16 allowed": {"precision": "bf16"},
        "int8 allowed": {"precision": "auto"},
        "int8, onnxruntime alone": {"precision": "auto", "backend": "onnxruntime"},
    }
    result = {"eager_top1": accuracy, "batches": {str(batch): {} for batch in batches}, "plans": {}}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        plans = {}
        for label, config in allowed.items():
            begin = time.monotonic()
            try:
                plans[label] = tune(
                    source,
                    GraphConfig(buckets=batches, max_tuning_seconds=_SECONDS.get(label, 25.0), **config),
                    directory=directory,
                    device="cpu",
                    judging=JudgingData((images,), labels, (data["fit"][::4],), scores),
                )
            except Exception as error:  # noqa: BLE001 - a precision that does not pass its gate is a result
                console.print(f"{label}: {type(error).__name__}: {error}", markup=False)
                result["plans"][label] = {"error": str(error)}
                continue
            result["plans"][label] = plans[label].to_json()
            console.print(f"{label}: {plans[label].choices} in {time.monotonic() - begin:.0f} s", markup=False)
        eager = TorchSession(lambda *rows: [model(*rows)], Target())
        for batch in batches:
            opened = {}
            for label, plan in plans.items():
                choice = plan.choice(batch)
                opened[label] = backends.get(choice.backend).open(directory, plan.target(batch), choice.files)
            rows = [images[:batch]]
            samples = measure([eager, *opened.values()], rows, seconds=20, patience=1000.0)
            base = samples[0]
            line = result["batches"][str(batch)]
            line["eager"] = {
                "ms": base.median_ms,
                "spread_ms": base.spread_ms,
                "images_per_second": 1000 * batch / base.median_ms,
            }
            for label, one in zip(opened, samples[1:], strict=True):
                ratio = base.median_ms / one.median_ms
                target = TARGETS[name].get(label)
                line[label] = {
                    "choice": str(plans[label].choice(batch)),
                    "ms": one.median_ms,
                    "spread_ms": one.spread_ms,
                    "images_per_second": 1000 * batch / one.median_ms,
                    "ratio": ratio,
                    "target": target,
                }
                verdict = "" if target is None else f" (target {target}x: {'holds' if ratio >= target else 'MISSED'})"
                text = f"batch {batch} {label}: {1000 * batch / one.median_ms:.4g}/s, {ratio:.2f}x eager{verdict}"
                console.print(f"{text} [{plans[label].choice(batch)}]", markup=False)
            for session in opened.values():
                session.close()
            if "int8 allowed" in plans:
                line["within"] = afresh(plans["int8 allowed"], batch, rows, directory)
                console.print(f"batch {batch}: chosen takes {line['within']} times the best candidate, measured afresh")
        if name == "resnet50" and "int8 allowed" in plans:
            result["cold_start_seconds"] = cold_start(captured, plans["int8 allowed"], directory, console)
            result["int8_peak"] = peak(result, batches, console)
    return result


def afresh(plan, batch, rows, directory):
    """The chosen candidate's time over that of the best which passed or was not refused, all measured again in turn."""
    from headrace.runtime import backends
    from headrace.runtime.tuning.measure import measure

    chosen = plan.choice(batch)
    sessions = {}
    for item in plan.measurements:
        if item.bucket != batch or item.status not in ("won", "lost") or item.choice.backend in ("eager", "inductor"):
            continue
        name = "model-int8.onnx" if item.choice.precision.is_int8 else "model.onnx"
        choice = chosen if item.status == "won" else dataclasses.replace(item.choice, files=(name,))
        opened = backends.get(choice.backend).open(directory, choice.target("cpu", plan.threads), choice.files)
        sessions[item.candidate] = (item.status, opened)
    if not sessions:
        return None  # the time was used up before this batch was measured
    samples = measure([session for _, session in sessions.values()], rows, seconds=10)
    times = dict(zip(sessions, (one.median_ms for one in samples), strict=True))
    won = next(name for name, (status, _) in sessions.items() if status == "won")
    for _, session in sessions.values():
        session.close()
    return times[won] / min(times.values())


def cold_start(captured, plan, directory, console):
    """Seconds from starting Python to the first answer of a model on disk, the median of five fresh processes."""
    import shutil
    import statistics

    from headrace.runtime.artifact.write_artifact import write_artifact

    with tempfile.TemporaryDirectory() as place:
        files = Path(place) / "files"
        files.mkdir()
        for name in {"model.onnx", *(name for choice in plan.choices.values() for name in choice.files)}:
            shutil.copyfile(directory / name, files / name)
        folder = write_artifact(
            Path(place) / "resnet50", name="resnet50", files_from=files, signature=captured.signature,
            parity=plan.worst_parity(), plans=[plan], provenance={},
        )  # fmt: skip
        code = "import sys, torch, headrace;graph = headrace.load(sys.argv[1]); print(graph(torch.zeros(1, 3, 224, 224)).shape)"
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True)
            times.append(time.perf_counter() - begin)
    console.print(f"cold start: {statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f}; target 3)")
    return times


def peak(result, batches, console):
    """The highest int8 rate that OpenVINO reaches here on stacks of convolutions, in GOP/s, and ResNet-50's share of it."""
    import numpy as np
    import torch
    from torch import nn

    from headrace.runtime import backends
    from headrace.runtime.base.calibration import Calibration
    from headrace.runtime.base.session import Target
    from headrace.runtime.capture.capture import capture
    from headrace.runtime.lowering.portable import write_onnx
    from headrace.runtime.lowering.quantize import write_int8
    from headrace.runtime.tuning.measure import measure
    from headrace.specs import INT8

    best, shape = 0.0, ""
    for channels, side, kernel in ((512, 28, 1), (1024, 14, 1), (256, 28, 3), (512, 14, 3)):
        torch.manual_seed(0)
        stack = nn.Sequential(
            *(layer for _ in range(12) for layer in (nn.Conv2d(channels, channels, kernel, padding=kernel // 2), nn.ReLU()))
        ).eval()
        rows = np.random.default_rng(0).normal(size=(8, channels, side, side)).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            write_onnx(capture(stack, torch.from_numpy(rows[:2])), Path(folder))
            files = write_int8(Path(folder), Calibration([rows[:2]]))
            session = backends.get("openvino").open(Path(folder), Target(precision=INT8, batch=8), files)
            (samples,) = measure([session], [rows], seconds=6)
            session.close()
        rate = 2 * 8 * 12 * channels**2 * kernel**2 * side**2 / min(samples.seconds) / 1e9
        if rate > best:
            best, shape = rate, f"{kernel}x{kernel} convolutions of {channels} channels at {side}x{side}, batch 8"
    shares = {
        str(batch): RESNET50_GOP * result["batches"][str(batch)]["int8 allowed"]["images_per_second"] / best
        for batch in batches
    }
    console.print(f"int8 peak {best:.0f} GOP/s ({shape}); ResNet-50 reaches {shares} of it (target 0.8)", markup=False)
    return {"gop_per_second": best, "shape": shape, "share": shares}


if __name__ == "__main__":
    main()
