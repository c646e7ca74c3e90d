"""What may end a process, tried in one that nobody needs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

_SECONDS = 120.0


def died_of(code: str, arguments: Sequence[str] = (), *, seconds: float = _SECONDS) -> str:
    """How a Python that ran this code ended, such as "signal SIGSEGV", with the last line that it wrote; empty when well."""
    command = [sys.executable, "-c", code, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} s"
    if done.returncode == 0:
        return ""
    said = next((line.strip()[:300] for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    return f"{_end(done.returncode)}{f': {said}' if said else ''}"


def _end(status: int) -> str:
    if status > 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
