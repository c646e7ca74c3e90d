"""`python -m headrace.migrate.worker.ranks.launch REQUEST.json`: a rehearsal on as many ranks as the request says.

Each rank is a process with a copy of the repository of its own, since what stands in for data is made there. What rank 0 prints
is printed, and of the others what they say on stderr. Where one of them fails, the others are ended, and its status is that of
the whole.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...proving.rehearsal_protocol import Rehearsal

NUMBER = "{rank}"
"""Stands in arguments of the script for the number of the rank."""
_PAUSE = 0.05
_ENDS = 20.0
"""Seconds for the other ranks to end by themselves once one has failed: theirs may be the error that says why."""


def main(arguments: Sequence[str]) -> int:
    request = Rehearsal.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        record = os.environ.get("HEADRACE_RECORD", "")
        processes = []
        for rank in range(request.ranks):
            given = Path(folder) / f"rank{rank}.json"
            given.write_text(of_rank(request, rank, Path(folder)).to_json(), encoding="utf-8")
            environment = {**os.environ, **launched(rank, request.ranks, port)}
            if record and rank:
                environment["HEADRACE_RECORD"] = record_of(record, rank)
            command = [sys.executable, "-P", "-m", "headrace.migrate.worker.rehearsal", str(given)]
            output = None if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=environment, stdout=output))
        return _wait(processes)


def of_rank(request: Rehearsal, rank: int, folder: Path) -> Rehearsal:
    """The request of one rank: where it finds the others, and its own copies of what scripts write to."""
    argv = tuple(word.replace(NUMBER, str(rank)) for word in request.argv)
    request = dataclasses.replace(request, rank=rank, argv=argv, group=str(folder / "group"))
    if rank == 0:
        return request
    root = folder / f"rank{rank}" / "repository"
    shutil.copytree(request.root, root, symlinks=True)
    directory = request.directory
    if directory is not None and Path(directory).is_relative_to(request.root):
        directory = str(root / Path(directory).relative_to(request.root))
    made = str(folder / f"rank{rank}" / "made")
    return dataclasses.replace(request, root=str(root), directory=directory, made=made, report=None)


def launched(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells a process on one machine."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "HEADRACE_RANKS": str(ranks), "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def record_of(record: str, rank: int) -> str:
    """The file in which a rank's recorder writes."""
    return f"{record}.rank{rank}" if rank else record


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """The first status that is none of success; 0 where all end well."""
    ends: float | None = None
    try:
        while True:
            statuses = [process.poll() for process in processes]
            failed = next((status for status in statuses if status), 0)
            if all(status is not None for status in statuses):
                return failed if failed >= 0 else 128 - failed
            if failed and ends is None:
                ends = time.monotonic() + _ENDS
            if ends is not None and time.monotonic() > ends:
                return failed if failed >= 0 else 128 - failed
            time.sleep(_PAUSE)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
