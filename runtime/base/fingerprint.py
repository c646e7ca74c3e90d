"""What a plan's measurements depend on: the processor, the cores granted, the GPUs, the versions. Torch-free."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._version import __version__

# The instruction sets that decide which kernels and precisions are fast, by their names in /proc/cpuinfo.
_FLAGS = (
    "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
    "amx_fp16", "asimd", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip

# One library may come under several distributions; the first that is installed counts.
_LIBRARIES = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "openvino": ("openvino",),
    "tensorrt": ("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
    "triton": ("triton",),
}
_UNKNOWN = object()

Differences = dict[str, tuple[Any, Any]]


def fingerprint() -> dict[str, Any]:
    """This machine and installation as plain JSON values, the same at every call of a process and after a restart.

    `cores` counts the logical processors that this process may use. `versions` holds null for what is not installed.
    What a platform does not tell is empty.
    """
    model, flags = _processor()
    return {
        "cpu": model,
        "flags": flags,
        "cores": available_cores(),
        "gpus": gpus(),
        "versions": versions(),
        "headrace": __version__,
    }


def differences(planned: Mapping[str, Any], here: Mapping[str, Any], *, device: str, libraries: Iterable[str]) -> Differences:
    """Of what a plan for that device depends on, what was otherwise where it was measured: by name, the value there and here.

    On a CPU that is the processor and the cores granted, on a GPU the kinds of GPU, of which any number will do: a batch is
    computed by one of them. Of the libraries only those count that the plan runs with; a CPU's plan has no use for the CUDA
    that they were built with, which their local version tells.
    """

    def facts(found: Mapping[str, Any]) -> dict[str, Any]:
        gpus, installed = found.get("gpus"), found.get("versions") or {}
        kinds = list(dict.fromkeys(map(str, gpus))) if isinstance(gpus, list) else gpus
        depends = {"gpus": kinds} if device == "cuda" else {name: found.get(name) for name in ("cpu", "flags", "cores")}
        needed = {name: installed.get(name) for name in libraries} if isinstance(installed, Mapping) else {}
        if device == "cpu":
            needed = {name: version and str(version).partition("+")[0] for name, version in needed.items()}
        return {**depends, **needed, "headrace": found.get("headrace")}

    there, now = facts(planned), facts(here)
    return {name: (there.get(name), value) for name, value in now.items() if there.get(name, _UNKNOWN) != value}


def versions() -> dict[str, str | None]:
    """The versions of the libraries that run graphs, without importing them; null where none is installed."""
    return {name: next(filter(None, map(_version, names)), None) for name, names in _LIBRARIES.items()}


def available_cores() -> int:
    """Logical processors this process may use: its CPU affinity, and its container's quota rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _quota() or allowed))


def gpus() -> list[str]:
    """The names of the visible NVIDIA GPUs, ordered by PCI address.

    The driver's files come first, so that a process with torch and one without it agree; where there are none (WSL),
    torch is asked if it is imported already. CUDA_VISIBLE_DEVICES counts where it is a list of numbers or hides all.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return []
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"^Model:\s*(.+?)\s*$", _text(information), re.MULTILINE)
        names.append(found.group(1) if found else "NVIDIA GPU")
    torch = sys.modules.get("torch")
    if not names and torch is not None and torch.cuda.is_available():
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    chosen = [part.strip() for part in (visible or "").split(",") if part.strip()]
    if chosen and all(part.isdigit() for part in chosen):
        return [names[int(part)] for part in chosen if int(part) < len(names)]
    return names


def _processor() -> tuple[str, list[str]]:
    text = _text(Path("/proc/cpuinfo"))
    fields = dict(re.findall(r"^(model name|Hardware|flags|Features)\s*:\s*(.*?)\s*$", text, re.MULTILINE))
    model = fields.get("model name") or fields.get("Hardware") or platform.processor() or platform.machine()
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    return model, [flag for flag in _FLAGS if flag in present]


def _quota(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """CPUs granted by the cgroup (v2, then v1), rounded up; None when it sets no limit."""
    granted, _, period = _text(groups / "cpu.max").strip().partition(" ")
    if not granted:
        granted = _text(groups / "cpu/cpu.cfs_quota_us").strip()
        period = _text(groups / "cpu/cpu.cfs_period_us").strip()
    if not (granted.isdigit() and period.isdigit() and int(period)):
        return None
    return max(1, -(-int(granted) // int(period)))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str:
    """The file's text, or nothing where the platform has no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
