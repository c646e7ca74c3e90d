"""When, where and with what."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from gpu.packages import FASTER, SERVING, lacking

_ROOT = Path(__file__).resolve().parents[3]


def about(arguments: argparse.Namespace) -> dict[str, object]:
    import torch

    from headrace.runtime.base.fingerprint import fingerprint

    versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    if importlib.util.find_spec("triton"):
        import triton

        versions["triton"] = triton.__version__
    driver = None
    if arguments.device == "cuda":
        versions["cudnn"] = torch.backends.cudnn.version()
        driver = said("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader")
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python tests/benchmarks/gpu", *sys.argv[1:]]),
        "quick": arguments.quick,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "driver": driver,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "commit": said("git", "-C", str(_ROOT), "rev-parse", "HEAD"),
        "versions": versions,
        "lacking": lacking({**SERVING, **FASTER}),
        "fingerprint": fingerprint(),
    }


def said(*command: str) -> str:
    """The first line that a command prints, or why there is none."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
