"""What cannot be known without the machine: what links, which of cuDNN's fused operators take which dtype and how fast, and who
decodes JPEGs. Every question is asked alone, and its failure is the answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpu.about import said
from gpu.bench import described
from gpu.timing import in_turns, replayed

if TYPE_CHECKING:
    import torch
    from gpu.bench import Bench

_FUSED = ((64, 64, 3, 56), (256, 256, 3, 14), (64, 256, 1, 56), (256, 1024, 1, 14))


def section(bench: Bench, name: str) -> None:
    questions: dict[str, Callable[[Bench], Any]] = {
        "machine": _machine,
        "fused convolutions": _fused_convolutions,
        "cudnn frontend int8": _frontend_int8,
        "AOTInductor links": _links,
    }
    for what, ask in questions.items():
        begin = time.monotonic()
        try:
            answer = ask(bench)
        except Exception as error:  # noqa: BLE001 - that it fails is what was asked
            answer = {"failed": described(error)[:400]}
        bench.found[name][what] = {"answer": answer, "seconds": round(time.monotonic() - begin, 1)}
        bench.say(f"{what}: {answer}")


def _machine(bench: Bench) -> dict[str, Any]:
    return {
        "processor": said("sh", "-c", "grep -m1 'model name' /proc/cpuinfo"),
        "threads of a core": said("sh", "-c", "cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list"),
        "CUDA_HOME": os.environ.get("CUDA_HOME"),
        "nvcc": shutil.which("nvcc"),
        "g++": shutil.which("g++"),
        "libcuda": said("sh", "-c", "ldconfig -p | grep libcuda.so"),
        "shared memory": shutil.disk_usage("/dev/shm").free,
    }


_LINKED = """
import sys, tempfile, torch
from headrace.runtime import backends
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.source import CapturedSource
from headrace.specs import BF16
from pathlib import Path
device = sys.argv[1]
module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()).to(device).eval()
x = torch.randn(2, 3, 16, 16, device=device)
captured = capture(module, x)
backend, target = backends.get("inductor"), Target(device=device, precision=BF16)
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    files = backend.prepare(CapturedSource(captured, captured).graph_for(backend, None), target, Path(folder))
    print("prepared", files, flush=True)
    session = backend.open(Path(folder), target, files)
    print("opened", flush=True)
    print("difference", (session.run_tensors([x])[0] - module(x)).abs().max().item(), session.note, flush=True)
"""


def _links(bench: Bench) -> dict[str, Any]:
    """A small convolution compiled ahead of time and run as the product does it, in a process that may die of it."""
    command = [sys.executable, "-X", "faulthandler", "-c", _LINKED, bench.device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return {"status": done.returncode, "said": done.stdout[-500:], "error": done.stderr[-3000:] if done.returncode else ""}


def _fused_convolutions(bench: Bench) -> dict[str, Any]:
    """Microseconds of conv2d with its bias, of that and what follows as torch computes it, and of the fused operator."""
    import torch

    found: dict[str, Any] = {}
    batch = 2 if bench.quick else 128
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for given, made, taps, side in _FUSED[:1] if bench.quick else _FUSED:
                for adds in (False, True):
                    what = f"{str(dtype)[6:]} {given} to {made} {taps}x{taps} at {side}{' add' if adds else ''} relu"
                    try:
                        found[what] = _fused(bench, torch, dtype, (batch, given, made, taps, side), adds=adds)
                    except Exception as error:  # noqa: BLE001 - that it fails is what was asked
                        found[what] = described(error)[:240]
    finally:
        torch.backends.cudnn.benchmark = before
    return found


def _fused(bench: Bench, torch: Any, dtype: torch.dtype, sizes: tuple[int, ...], *, adds: bool) -> dict[str, Any]:
    batch, given, made, taps, side = sizes
    last = {"memory_format": torch.channels_last}
    x = torch.randn(batch, given, side, side, device=bench.device, dtype=dtype).to(**last)
    weight = (torch.randn(made, given, taps, taps, device=bench.device) / (given * taps**2) ** 0.5).to(dtype).to(**last)
    bias = torch.randn(made, device=bench.device, dtype=dtype)
    more = torch.randn(batch, made, side, side, device=bench.device, dtype=dtype).to(**last)
    geometry = ([1, 1], [taps // 2] * 2, [1, 1])

    def plain() -> torch.Tensor:
        return torch.nn.functional.conv2d(x, weight, bias, *geometry)

    def apart() -> torch.Tensor:
        return (plain() + more).relu_() if adds else plain().relu_()

    def fused() -> torch.Tensor:
        if adds:
            return torch.cudnn_convolution_add_relu(x, weight, more, 1.0, bias, *geometry, 1)
        return torch.cudnn_convolution_relu(x, weight, bias, *geometry, 1)

    calls = {"conv2d": plain, "apart": apart, "fused": fused}
    with torch.no_grad():
        difference = (fused().float() - apart().float()).abs().max().item()
        recorded = {what: replayed(call, [()] * 4, bench.device) for what, call in calls.items()}
        taken = in_turns({what: one for what, (one, _) in recorded.items()}, bench.device, 4.0, rounds=3)
    how = {what: how for what, (_, how) in recorded.items() if how != "CUDA graph"}
    return {"difference": difference, **{what: round(250 * item["ms"], 2) for what, item in taken.items()}, **how}


def _frontend_int8(bench: Bench) -> dict[str, Any]:
    """An int8 convolution with scale, ReLU and the step back to int8 as one plan of cuDNN's, by its own front end."""
    import cudnn
    import torch

    found: dict[str, Any] = {"version": cudnn.__version__, "backend": cudnn.backend_version()}
    for given, made, taps, side in _FUSED:
        batch = 128
        x = torch.randint(-128, 128, (batch, given, side, side), device=bench.device, dtype=torch.int8)
        weight = torch.randint(-128, 128, (made, given, taps, taps), device=bench.device, dtype=torch.int8)
        x, weight = (item.to(memory_format=torch.channels_last) for item in (x, weight))
        scale = torch.full((1, made, 1, 1), 1e-4, device=bench.device)
        bias = torch.randn(1, made, 1, 1, device=bench.device)
        out = torch.empty(batch, made, side, side, device=bench.device, dtype=torch.int8, memory_format=torch.channels_last)
        handle = cudnn.create_handle()
        graph = cudnn.pygraph(
            handle=handle, io_data_type=cudnn.data_type.INT8,
            intermediate_data_type=cudnn.data_type.FLOAT, compute_data_type=cudnn.data_type.FLOAT,
        )  # fmt: skip
        tx, tw, ts, tb = (graph.tensor_like(item) for item in (x, weight, scale, bias))
        sums = graph.conv_fprop(
            image=tx,
            weight=tw,
            padding=[taps // 2] * 2,
            stride=[1, 1],
            dilation=[1, 1],
            compute_data_type=cudnn.data_type.INT32,
        )
        sums.set_data_type(cudnn.data_type.INT32)
        scaled = graph.mul(a=sums, b=ts)
        scaled.set_data_type(cudnn.data_type.FLOAT)
        shifted = graph.add(a=scaled, b=tb)
        shifted.set_data_type(cudnn.data_type.FLOAT)
        result = graph.relu(shifted)
        result.set_output(True).set_data_type(cudnn.data_type.INT8)
        what = f"{given} to {made} {taps}x{taps} at {side}"
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
            graph.build_plans()
            space = torch.empty(max(1, graph.get_workspace_size()), device=bench.device, dtype=torch.uint8)
            pack = {tx: x, tw: weight, ts: scale, tb: bias, result: out}
            taken = in_turns({"it": lambda: graph.execute(pack, space, handle=handle)}, bench.device, 5.0, rounds=3)  # noqa: B023
            found[what] = round(1000 * taken["it"]["ms"], 2)
        except Exception as error:  # noqa: BLE001 - that it fails is what was asked
            found[what] = described(error)[:240]
    return found
