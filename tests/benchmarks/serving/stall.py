"""How long others wait for the answer that the server lives, while it is sent what would stop it: every body and message of
tests/serving/attacks/bodies.py, one at a time and six at a time; and while a program that only discards them is sent the same.

    python -m tests.benchmarks.serving.stall build/photos/models --out docs/reliability.md

The liveness probe has a process of its own, and asks every few milliseconds. The exit status is 1 where one body alone made it
wait longer than 50 ms. The senders, and other programs, take the same cores: what the waits beside the discarding program are
is not the server's doing.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import grpc

from headrace.errors import HeadraceError
from headrace.runtime.artifact.artifact import model_names
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service
from tests.serving.attacks.bodies import BODIES, MESSAGES

from .page import write_part

LIMIT_MS, TOGETHER = 50.0, 6
Body = Callable[[], bytes]


class Row(NamedTuple):
    """The longest waits in ms while one, and while six, were sent to a program that discards them, and to the server."""

    name: str
    protocol: str
    bytes: int
    answered: str
    one_discarded: float
    one: float
    six_discarded: float
    six: float


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


def call(address: str, message: bytes) -> str:
    """The code of one call of ModelInfer."""
    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        try:
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(message, timeout=600)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


def discard(pipe: Connection) -> None:
    """A server that reads bodies, answers, and does nothing else; says its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            left = int(self.headers["content-length"])
            while left and (piece := self.rfile.read1(min(left, 1 << 16))):
                left -= len(piece)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pipe.send(server.server_port)
        server.serve_forever()


Send = Callable[[], object]


def measure(addresses: Mapping[str, str], model: str, sent: Mapping[str, tuple[str, Body, dict[str, str]] | Body]) -> list[Row]:
    """A row for each body of HTTP, which has a path and headers, and each message of gRPC. Addresses are of "http", "grpc"."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    prober = context.Process(target=probe, args=(addresses["http"], theirs), daemon=True)
    prober.start()
    told, telling = multiprocessing.Pipe()
    sink = context.Process(target=discard, args=(telling,), daemon=True)
    sink.start()
    nowhere = f"127.0.0.1:{told.recv()}"
    rows = []
    ours.send(True)
    ours.recv()

    def longest(send_one: Send, count: int) -> tuple[set[str], float]:
        ready = threading.Barrier(count)

        def one(_: int) -> str:
            ready.wait()
            return str(send_one() or "closed")

        with ThreadPoolExecutor(count) as pool:
            answers = set(pool.map(one, range(count)))
        ours.send(True)
        return answers, 1e3 * float(ours.recv())

    try:
        for name, what in sent.items():
            path, make, headers = what if isinstance(what, tuple) else ("", what, {})
            body = make()
            away: Send = partial(send, nowhere, "/", body, {})
            here: Send = partial(send, addresses["http"], path.replace("/tiny", f"/{model}"), body, headers)
            if not path:
                here = partial(call, addresses["grpc"], body)
            waits, answers = [], set()
            for count in (1, TOGETHER):
                waits.append(longest(away, count)[1])
                answered, wait = longest(here, count)
                waits.append(wait)
                answers |= answered
            row = Row(name, "HTTP" if path else "gRPC", len(body), ", ".join(sorted(answers)), *waits)
            rows.append(row)
            print(
                f"{row.name}: {row.one:.0f} ms ({row.one_discarded:.0f}), {row.six:.0f} ms ({row.six_discarded:.0f})",
                file=sys.stderr,
            )
    finally:
        ours.send(False)
        prober.join(10)
        sink.terminate()
        sink.join(10)
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
            Server(
                headrace_service(chosen.models, "", options=("--api", "kserve-v1"), trusted=True),
                folder=Path(folder),
                timeout_seconds=600.0,
            ) as server,
        ):
            server.wait_ready()
            addresses = {protocol: f"127.0.0.1:{server.ready[protocol]}" for protocol in ("http", "grpc")}
            rows = measure(addresses, model_names(chosen.models)[0], {**BODIES, **MESSAGES})
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = [
        f"| {row.name} ({row.protocol}) | {row.bytes:,} | {row.answered} | {row.one:.0f} ms | {row.one_discarded:.0f} ms "
        f"| {row.six:.0f} ms | {row.six_discarded:.0f} ms |"
        for row in rows
    ]
    ratios = [sum(row.one for row in rows) / sum(row.one_discarded for row in rows)]
    ratios.append(sum(row.six for row in rows) / sum(row.six_discarded for row in rows))
    page = "\n".join(
        (
            "## The longest wait for a liveness answer",
            "",
            f"`make stall`, {datetime.now(UTC):%Y-%m-%d}, on {fingerprint().get('cpu', 'an unknown processor')}: while each of "
            f"these is sent, one at a time and {TOGETHER} at a time, another process asks every 4 ms whether the server lives. "
            "The senders and the probe ran on the same machine, so the same bytes were also sent to a program that only "
            "discards them: what others wait meanwhile is the machine's doing. "
            f"Load: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores. All waits together are {ratios[0]:.1f} times those "
            f"beside the discarding program, {ratios[1]:.1f} times with {TOGETHER} at a time.",
            "",
            f"| sent | bytes | answered | longest wait, one | discarded | {TOGETHER} at a time | discarded |",
            "|---|---|---|---|---|---|---|",
            *table,
        )
    )
    print(page)
    if chosen.out is not None:
        write_part(chosen.out, page)
    return int(any(row.one > LIMIT_MS for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
