"""The processes that compute a split model together: started, watched, and started again."""

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....errors import BackendError
from .link import Kind, Link, Message

# One that serves shows twice a second that it lives; one that is silent for so long hangs. It has longer to open its part.
_HUNG_SECONDS, _START_SECONDS = 5.0, 120.0
# One that ends sooner than this after its start is started again later and later, up to so many seconds.
_SETTLED_SECONDS, _FIRST_DELAY, _LONGEST_DELAY = 10.0, 0.1, 10.0
_AGAIN = "; it is started again"


class Members:
    """One process for each of `starts`, which runs the module `program`; a list of processes of one kind is named after that:
    "rank 0 of 2".

    While one of them is away, `trouble` says which and why. `on_change` is called, in any thread, when that begins and when it
    is over. What a kind does with its processes is in the methods that say "with `_state` held".
    """

    def __init__(self, kind: str, program: str, starts: Sequence[Mapping[str, Any]]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._program = program
        self._starts = starts
        self._names = [f"{kind} {number} of {len(starts)}" for number in range(len(starts))]
        self._away = [f"{name} is starting" for name in self._names]
        self._processes: list[_Process | None] = [None] * len(starts)
        self._state = threading.Condition()
        self._closing = threading.Event()
        self._losses: list[str] = []
        self._threads = [
            threading.Thread(target=self._keep, args=(number,), name=f"headrace-{name}", daemon=True)
            for number, name in enumerate(self._names)
        ]

    def _start(self) -> None:
        """Start all, and return when all are there. Raises BackendError when one cannot begin; none is left then."""
        for thread in self._threads:
            thread.start()
        with self._state:
            self._state.wait_for(lambda: self._losses or not self.trouble)
        if self._losses:
            self.close()
            raise BackendError(self._losses[0].removesuffix(_AGAIN))

    @property
    def trouble(self) -> str:
        """Why nothing can be computed now, naming the process; empty when all are there."""
        return next(filter(None, self._away), "")

    @property
    def pids(self) -> list[int]:
        """Of the processes, as they were last started."""
        return [process.running.pid for process in self._processes if process is not None]

    def close(self) -> None:
        """End all, which have nothing to lose. Safe to call twice."""
        with self._state:
            self._closing.set()
            self._lose("the session was closed")
            for process in filter(None, self._processes):
                process.running.kill()
        for thread in self._threads:
            thread.join()

    def _joined(self, number: int, ready: Message) -> None:
        """One has begun, and said so, with `_state` held. An OSError or RuntimeError ends it again."""

    def _heard(self, number: int, message: Message) -> None:
        """One that has begun has sent something, with `_state` held."""

    def _lose(self, why: str) -> None:
        """One is lost, or all are closed, with `_state` held: nobody may wait for an answer any more."""
        self._losses.append(why)
        self._state.notify_all()

    def _links(self) -> list[Link]:
        """To all that run, in their order, with `_state` held."""
        return [process.link for process in self._processes if process is not None]

    def _keep(self, number: int) -> None:
        """Have one process running until all are closed. It ends with the thread that starts it, which is this one."""
        delay = 0.0
        while not self._closing.wait(delay):
            begin = time.monotonic()
            try:
                process = _Process(self._program, self._names[number], self._starts[number])
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
                self._lose(self._away[number])
            self.on_change()
            settled = time.monotonic() - begin > _SETTLED_SECONDS
            delay = 0.0 if settled else min(_LONGEST_DELAY, max(_FIRST_DELAY, 2 * delay))

    def _follow(self, number: int, process: _Process) -> str:
        """Receive from a process until it ends, and say how it did."""
        limit, failure = _START_SECONDS, ""
        process.link.limit_silence(limit)
        try:
            while (message := process.link.receive()) is not None:
                if message.kind is Kind.READY:
                    limit = _HUNG_SECONDS
                    process.link.limit_silence(limit)
                    with self._state:
                        self._away[number] = ""
                        self._joined(number, message)
                        self._state.notify_all()
                    self.on_change()
                elif self._away[number]:
                    failure = f"cannot begin: {message.data.decode()}"
                else:
                    with self._state:
                        self._heard(number, message)
        except TimeoutError:
            failure = f"has not moved for {limit:g} s and was ended"
        except (OSError, RuntimeError) as error:  # of descriptors or threads there are none left
            failure = f"cannot begin: {error}"
        ended = process.end(at_once=bool(failure))
        return failure or f"has ended ({ended})"


class _Process:
    """A process that runs, and the link to it. Raises OSError when it cannot be started."""

    def __init__(self, program: str, name: str, start: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # -P: a folder that a server is started in may hold anything, files with the names of modules included
                # the name is for people who look at processes
                command = [sys.executable, "-P", "-m", program, str(theirs.fileno()), str(os.getpid()), name]
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
