"""Every operator once under NVIDIA's compute-sanitizer, which sees accesses outside of what was allocated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.bench import Bench

_PLACES = ("/usr/local/cuda/bin/compute-sanitizer",)
_ERROR = 86  # an exit status of its own
_CODE = """
import torch
from headrace import kernels
for kernel in kernels.discover().values():
    for name, operator in kernel.operators.items():
        operator.run(*operator.example("cuda"))
        torch.cuda.synchronize()
        print("ran", name, flush=True)
"""


def section(bench: Bench, name: str) -> None:
    found = bench.found[name]
    binary = shutil.which("compute-sanitizer") or next((place for place in _PLACES if Path(place).exists()), None)
    if binary is None or bench.device != "cuda":
        found["status"] = "absent: compute-sanitizer is not on the PATH" if binary is None else "skipped: it needs a GPU"
        bench.say(found["status"])
        return
    command = [binary, "--tool", "memcheck", "--error-exitcode", str(_ERROR), sys.executable, "-c", _CODE]
    found["command"] = " ".join(command[:-1])
    # An allocation for each tensor: inside torch's large blocks nothing would lie outside.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    limit = max(20.0, min(bench.left, 90.0))
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        found["status"] = f"skipped: it did not end within {limit:.0f} s"
        bench.say(found["status"])
        return
    summary = re.findall(r"ERROR SUMMARY: (\d+)", done.stdout + done.stderr)
    found["operators"] = re.findall(r"^ran (\w+)$", done.stdout, re.MULTILINE)
    if done.returncode == 0 and summary:
        found["status"] = f"right: {summary[-1]} errors"
    elif done.returncode == _ERROR:
        found["status"] = "wrong"
        found["output"] = (done.stdout + done.stderr)[:6000]
        bench.failed(f"compute-sanitizer found {', '.join(summary) or 'some'} errors")
    else:  # of the tool or of the machine, as where a virtual machine keeps the GPU's debugger away
        found["status"] = f"could not run: it ended with {done.returncode}"
        found["output"] = (done.stdout + done.stderr)[-3000:]
    bench.say(f"compute-sanitizer, {len(found['operators'])} operators: {found['status']}")
