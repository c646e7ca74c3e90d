"""`python -m headrace.migrate.worker.server REQUESTS SECONDS MODULE...`: many requests to the worker, MODULEs loaded once.

REQUESTS is a named pipe with one line per request, a `Forward` of `proving.worker_protocol`. Each is answered, as `worker`
answers it, in a fork of its own that ends within SECONDS with all that it started; then `ANSWERED <token> <status>` goes to
standard output, with the exit status of the fork (-n for signal n). A worker that dies leaves no response. The end of the pipe
ends the server. The MODULEs may neither start threads nor touch an accelerator: forks would not survive it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import sys
import tempfile
from pathlib import Path

import psutil

from ..proving.confined_run import own_folders
from ..proving.worker_protocol import Forward, decode

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphaned descendants become this process's children, to be found and ended


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m headrace.migrate.worker.server REQUESTS SECONDS MODULE...\n")
        return 2
    for name in arguments[2:]:
        with contextlib.suppress(Exception):  # a library that breaks here breaks in the request, which says so
            importlib.import_module(name)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.freeze()  # else the first collection in each fork would copy every page
    with open(arguments[0], encoding="utf-8") as requests:
        for line in requests:
            asked = decode(line)
            assert isinstance(asked, Forward)
            status = _answer(asked, float(arguments[1]))
            sys.stdout.write(f"\nANSWERED {asked.token} {status}\n")
            sys.stdout.flush()
    return 0


def _answer(asked: Forward, seconds: float) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            from .worker import main as work

            folder = Path(asked.response).parent
            os.chdir(folder)
            if asked.apart:
                os.environ |= own_folders(folder)
                tempfile.tempdir = None
            status = work([asked.request, asked.response])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
        _, code = os.waitpid(child, 0)
    finally:
        os.close(ended)
    _end_descendants()
    return os.waitstatus_to_exitcode(code)


def _end_descendants() -> None:
    """Whatever the worker started must not meet the next one."""
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
