"""The engine and the front ends of a server under test are forks of its supervisor, which has imported what they need.

Started as `headrace serve` does, each with an interpreter of its own, they are in attacks/test_hung_processes.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from tests.warm_python import execute

_PR_SET_NAME = 15  # linux/prctl.h


class ForkedProcess:
    """What `asyncio.subprocess.Process` is to the supervisor."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._handle = handle
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(handle, self._reap)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


async def fork(program: str, *arguments: str, stdin: int, pass_fds: Sequence[int]) -> ForkedProcess:
    """As `asyncio.create_subprocess_exec`, for Python's modules."""
    assert (program, arguments[0], stdin) == (sys.executable, "-m", asyncio.subprocess.DEVNULL)
    sys.stdout.flush()
    sys.stderr.flush()
    task = asyncio.current_task()
    assert task is not None
    pid = os.fork()
    if pid == 0:
        try:
            if asyncio.current_task(task.get_loop()) is task:  # from Python 3.14 on a fork has left it already
                asyncio.tasks._leave_task(task.get_loop(), task)
            _become(arguments, pass_fds)
        except BaseException:  # noqa: BLE001 - the supervisor's stack must not go on here
            traceback.print_exc()
        finally:
            os._exit(70)
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return ForkedProcess(pid, handle)


def _become(arguments: Sequence[str], pass_fds: Sequence[int]) -> None:
    """Nothing of the supervisor's loop, signals and descriptors is left, as after an exec; what its stack holds stays there."""
    gc.freeze()
    asyncio._set_running_loop(None)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in (1, 2, *pass_fds):
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(number)
    assert os.open(os.devnull, os.O_RDWR) == 0
    ctypes.CDLL(None).prctl(_PR_SET_NAME, arguments[1].rpartition(".")[2].encode(), 0, 0, 0)
    execute(list(arguments))


def install() -> None:
    """From here on this process forks for what it would start."""
    asyncio.create_subprocess_exec = fork  # type: ignore[assignment]
