"""`python -m headrace.migrate.worker.ranks.launch REQUEST.json`: a rehearsal on as many ranks as the request says.

Each rank is a process with a copy of the repository of its own, since what stands in for data is made there. What rank 0 prints
is printed. Where one of them fails, the others are ended, its status is that of the whole, and what it says on stderr is said
last: the others' errors may be that it is gone.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
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
_GONE = re.compile(r"gloo/transport/|Dist(Network|Store|Backend)Error|Connection (closed|reset) by peer|Broken pipe")
"""What the last words of a rank say that lost another: gloo and the store of torch.distributed."""
_KEPT = 2**18
"""Bytes of each rank's stderr, its last."""
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
            with _errors(folder, rank).open("wb") as errors:
                processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=errors))
        try:
            failed = _first_failed(processes)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        said = [_said(_errors(folder, rank)) for rank in range(request.ranks)]
        if not failed:
            sys.stderr.write("".join(said))
            return 0
        told = why(failed, said)
        status = processes[told].returncode
        if status < 0:
            name = next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
            said[told] += f"Rank {told} was ended by {name}.\n"
        sys.stderr.write("".join(text for rank, text in enumerate(said) if rank != told) + said[told])
        return status if status >= 0 else 128 - status


def why(failed: Sequence[int], said: Sequence[str]) -> int:
    """The rank whose error is that of all: of those that failed, the first ones first, the first that did not lose another."""
    last = {rank: (said[rank].strip().splitlines() or [""])[-1] for rank in failed}
    return next((rank for rank in failed if not _GONE.search(last[rank])), failed[0])


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


def _errors(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank{rank}.err"


def _said(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _KEPT))
        return file.read().decode("utf-8", "replace")


def _first_failed(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The ranks that failed, the first ones first, once all have ended or have had time for it; none where all end well."""
    failed: list[int] = []
    ends: float | None = None
    while True:
        statuses = [process.poll() for process in processes]
        failed += [rank for rank, status in enumerate(statuses) if status and rank not in failed]
        if failed and ends is None:
            ends = time.monotonic() + _ENDS
        if all(status is not None for status in statuses) or (ends is not None and time.monotonic() > ends):
            return failed
        time.sleep(_PAUSE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
