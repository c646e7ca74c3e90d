"""A process of its own that measures something for so many seconds whenever it is asked, and sleeps between.

The benchmark writes seconds, one line each. The process answers in JSON, one line each: first what it is ready with, then a
measurement for each line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from headrace.errors import BenchError

__all__ = ["Rounds", "answer_rounds"]

_SHOWN = 3000


class Rounds:
    """The benchmark's side, for a `with` block. `ready` is what the process sent first; `what` it is in errors."""

    def __init__(self, command: Sequence[str], log: Path, *, what: str) -> None:
        self._command, self._log, self._what = command, log, what

    def __enter__(self) -> Rounds:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            self.ready: dict[str, Any] = self._answer()["ready"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            _open(pipe).close()

    def measure(self, seconds: float) -> dict[str, Any]:
        """One measurement. Raises BenchError with the end of its log when the process has ended."""
        _open(self._process.stdin).write(f"{seconds}\n".encode())
        _open(self._process.stdin).flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line:
            raise BenchError(f"{self._what} ended:\n{self._log.read_text(errors='replace')[-_SHOWN:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def answer_rounds(ready: Mapping[str, Any], measure: Callable[[float], Mapping[str, Any]]) -> None:
    """The process's side, until its input ends."""
    _send({"ready": ready})
    for line in sys.stdin:
        _send(measure(float(line)))


def _send(content: Mapping[str, Any]) -> None:
    print(json.dumps(content), flush=True)


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "opened with pipes"
    return pipe
