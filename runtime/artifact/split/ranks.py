"""The processes that compute a split model's last layer: started, watched, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import BackendError, RankLostError
from .link import Kind, Link
from .mesh import Mesh

# A rank that serves beats twice a second; one that is not heard of for so long hangs. It has longer to open its part.
_HUNG_SECONDS, _START_SECONDS = 5.0, 120.0
# A rank that ends sooner than this after its start is started again later and later, up to so many seconds.
_SETTLED_SECONDS, _FIRST_DELAY, _LONGEST_DELAY = 10.0, 0.1, 10.0
_AGAIN = "; it is started again"


class Ranks:
    """One process for each part of a mesh, whose files lie in `folder`; each computes with so many threads.

    While one of them is away, `trouble` says which and why, and nothing is computed. `on_change` is called, in any thread, when
    that begins and when it is over. Raises BackendError when a rank cannot begin.
    """

    def __init__(self, folder: Path, mesh: Mesh, *, backend: str, threads: int) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.widths = [0] * len(mesh.parts)
        self._starts = [
            {
                "folder": str(folder.resolve()),
                "file": part.file,
                "digest": part.digest,
                "classes": part.classes,
                "backend": backend,
                "threads": threads,
            }
            for part in mesh.parts
        ]
        self._names = [f"rank {number} of {len(mesh.parts)}" for number in range(len(mesh.parts))]
        self._away = [f"{name} is starting" for name in self._names]
        self._processes: list[_Process | None] = [None] * len(self._names)
        self._state = threading.Condition()
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._serial = 0
        self._answers: dict[int, bytearray | BackendError] = {}
        self._losses: list[str] = []
        self._threads = [
            threading.Thread(target=self._keep, args=(number,), name=f"headrace-{name}", daemon=True)
            for number, name in enumerate(self._names)
        ]
        for thread in self._threads:
            thread.start()
        with self._state:
            self._state.wait_for(lambda: self._losses or not self.trouble)
        if self._losses:
            self.close()
            raise BackendError(self._losses[0].removesuffix(_AGAIN))

    @property
    def trouble(self) -> str:
        """Why nothing can be computed now, naming the rank; empty when all are there."""
        return next(filter(None, self._away), "")

    @property
    def pids(self) -> list[int]:
        """Of the ranks' processes, as they were last started."""
        return [process.running.pid for process in self._processes if process is not None]

    def compute(self, features: np.ndarray, count: int) -> list[bytearray]:
        """What each rank has of these features (float32 [rows, width]), in the form that `Kind` tells; threads take turns.
        Raises RankLostError when one is away or is lost meanwhile, BackendError when one fails."""
        with self._turn:
            with self._state:
                if self._closing.is_set():
                    raise BackendError("this session is closed; open another")
                if self.trouble:
                    raise RankLostError(self.trouble)
                self._serial += 1
                self._answers.clear()
                losses = len(self._losses)
                processes = [process for process in self._processes if process is not None]
            for process in processes:
                with contextlib.suppress(OSError):  # it is lost, as whoever receives from it is about to notice
                    process.link.send(Kind.COMPUTE, self._serial, count, features)
            with self._state:
                self._state.wait_for(lambda: len(self._losses) > losses or len(self._answers) == len(self._names))
                if len(self._answers) < len(self._names):
                    raise RankLostError(self._losses[losses])
                answers = [self._answers.pop(number) for number in range(len(self._names))]
        found = [answer for answer in answers if not isinstance(answer, BackendError)]
        if len(found) < len(answers):
            raise next(answer for answer in answers if isinstance(answer, BackendError))
        return found

    def close(self) -> None:
        """End all ranks, which have nothing to lose. Safe to call twice."""
        with self._state:
            self._closing.set()
            self._losses.append("the session was closed")
            self._state.notify_all()
            for process in filter(None, self._processes):
                process.running.kill()
        for thread in self._threads:
            thread.join()

    def _keep(self, number: int) -> None:
        """Have one rank running until all are closed. Its process ends with the thread that starts it, which is this one."""
        delay = 0.0
        while not self._closing.wait(delay):
            begin = time.monotonic()
            try:
                process = _Process(self._starts[number])
            except OSError as error:  # of memory, descriptors or processes there are none left
                ended = f"cannot be started ({error})"
            else:
                with self._state:
                    self._processes[number] = process
                    if self._closing.is_set():
                        process.running.kill()
                ended = self._follow(number, process)
            with self._state:
                if self._closing.is_set():
                    return
                self._away[number] = f"{self._names[number]} {ended}{_AGAIN}"
                self._losses.append(self._away[number])
                self._state.notify_all()
            self.on_change()
            settled = time.monotonic() - begin > _SETTLED_SECONDS
            delay = 0.0 if settled else min(_LONGEST_DELAY, max(_FIRST_DELAY, 2 * delay))

    def _follow(self, number: int, process: _Process) -> str:
        """Receive from a rank until it ends, and say how it did."""
        limit, failure = _START_SECONDS, ""
        process.link.limit_silence(limit)
        try:
            while (message := process.link.receive()) is not None:
                text = message.data.decode() if message.kind is Kind.FAILED else ""
                if message.kind is Kind.READY:
                    limit = _HUNG_SECONDS
                    process.link.limit_silence(limit)
                    with self._state:
                        self.widths[number], self._away[number] = message.value, ""
                        self._state.notify_all()
                    self.on_change()
                elif self._away[number]:
                    failure = f"cannot begin: {text}"
                elif message.kind in (Kind.RESULT, Kind.FAILED):
                    with self._state:
                        if message.serial == self._serial:  # else whoever asked has been told of another rank's loss
                            error = BackendError(f"{self._names[number]}: {text}")
                            self._answers[number] = error if text else message.data
                            self._state.notify_all()
        except TimeoutError:
            failure = f"has not moved for {limit:g} s and was ended"
        ended = process.end(at_once=bool(failure))
        return failure or f"has ended ({ended})"


class _Process:
    """A rank that runs, and the link to it. Raises OSError when it cannot be started."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # -P: a folder that a server is started in may hold anything, files with the names of modules included
                command = [sys.executable, "-P", "-m", f"{__package__}.rank", str(theirs.fileno()), str(os.getpid())]
                self.running = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
            except BaseException:
                ours.close()
                raise
        self.link = Link(ours)
        with contextlib.suppress(OSError):  # it has ended already, as receiving will tell
            self.link.send(Kind.START, 0, 0, json.dumps(start).encode())

    def end(self, *, at_once: bool) -> str:
        """Wait a moment for the end of one that has left its link, and make it end else; how it did."""
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running.wait(1.0)
        self.running.kill()
        status = self.running.wait()
        self.link.close()
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
