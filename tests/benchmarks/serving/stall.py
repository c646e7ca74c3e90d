"""How long others wait for the answer that the server lives, while it is sent what would stop it: every body of
tests/serving/attacks/bodies.py, one at a time and six at a time.

    python -m tests.benchmarks.serving.stall build/photos/models --out docs/reliability.md

The liveness probe has a process of its own, and asks every few milliseconds. The exit status is 1 where one body alone made it
wait longer than 50 ms. For a quiet machine: other programs, and the senders, take the same cores.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.runtime.artifact.artifact import model_names
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service
from tests.serving.attacks.bodies import BODIES

from .page import write_part

LIMIT_MS, TOGETHER = 50.0, 6


def probe(address: str, pipe: Connection) -> None:
    """Ask until told to stop, and for every message say the longest wait since the last one, in seconds."""
    connection = http.client.HTTPConnection(address, timeout=600)
    longest = 0.0
    while True:
        begin = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        answer = connection.getresponse()
        answer.read()
        longest = max(longest, time.perf_counter() - begin)
        assert answer.status == 200
        if pipe.poll(0.004):
            if not pipe.recv():
                return
            pipe.send(longest)
            longest = 0.0


def send(address: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of one request."""
    connection = http.client.HTTPConnection(address, timeout=600)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    except ConnectionError:  # answered and closed before all of it was sent
        return 0
    finally:
        connection.close()


def measure(
    address: str, model: str, bodies: Mapping[str, tuple[str, Callable[[], bytes], dict[str, str]]]
) -> list[tuple[str, int, str, float, float]]:
    """For each body: its name, its bytes, the statuses of its answers, and the longest waits in ms, alone and together."""
    ours, theirs = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=probe, args=(address, theirs), daemon=True)
    prober.start()
    rows = []
    ours.send(True)
    ours.recv()

    def longest(path: str, body: bytes, headers: dict[str, str], count: int) -> tuple[Counter[int], float]:
        ready = threading.Barrier(count)

        def one(_: int) -> int:
            ready.wait()
            return send(address, path.replace("/tiny/", f"/{model}/"), body, headers)

        with ThreadPoolExecutor(count) as pool:
            statuses = Counter(pool.map(one, range(count)))
        ours.send(True)
        return statuses, 1e3 * float(ours.recv())

    try:
        for name, (path, make, headers) in bodies.items():
            body = make()
            alone, wait = longest(path, body, headers, 1)
            several, waits = longest(path, body, headers, TOGETHER)
            statuses = ", ".join(str(status or "closed") for status in sorted({*alone, *several}))
            rows.append((name, len(body), statuses, wait, waits))
            print(f"{name}: {wait:.0f} ms, {waits:.0f} ms", file=sys.stderr)
    finally:
        ours.send(False)
        prober.join(10)
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.stall", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("models", type=Path, help="a model repository")
    parser.add_argument("--out", type=Path, help="a page, whose part it writes")
    chosen = parser.parse_args(arguments)
    try:
        with (
            terminate_as_exit(),
            tempfile.TemporaryDirectory(prefix="headrace-stall-") as folder,
            Server(headrace_service(chosen.models, ""), folder=Path(folder), timeout_seconds=600.0) as server,
        ):
            server.wait_ready()
            rows = measure(f"127.0.0.1:{server.ready['http']}", model_names(chosen.models)[0], BODIES)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = [f"| {name} | {size:,} | {status} | {one:.0f} ms | {six:.0f} ms |" for name, size, status, one, six in rows]
    page = "\n".join(
        (
            "## The longest wait for a liveness answer",
            "",
            f"`make stall`, {datetime.now(UTC):%Y-%m-%d}, on {fingerprint().get('cpu', 'an unknown processor')}: while each of "
            f"these bodies is sent, one at a time and {TOGETHER} at a time, another process asks every 4 ms whether the server "
            "lives. The senders and the probe ran on the same machine.",
            "",
            f"| body | bytes | answered | longest wait, one | {TOGETHER} at a time |",
            "|---|---|---|---|---|",
            *table,
        )
    )
    print(page)
    if chosen.out is not None:
        write_part(chosen.out, page)
    return int(any(row[3] > LIMIT_MS for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
