"""Mixed traffic while processes are killed and stopped, models replaced and corrupted, connections cut, and descriptors and
the disk used up.

    python -m tests.benchmarks.serving.chaos --seconds 600 --out docs/reliability.md

The models and the log lie on a small disk of their own, in memory; who is not root gets it in a namespace (unshare(1)).

What must hold: every request gets one right answer or one clear error, in its time; and at the end all is as it was at the
beginning: processes, descriptors (shared memory is one of them), memory. The exit status is 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace.errors import ArtifactError
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service
from headrace.serving.images.fast_preprocessing import make_preprocessor
from tests.serving.conftest import LABELS, PREPROCESSING, WEIGHTS, Repository, photo

from .chaos_memory import run_memory
from .page import write_part

# A request says 2 s; one that meets a process that stands still waits until the supervisor has replaced that.
_DEADLINE, _SPARE, _HUNG = 2.0, 3.0, 30.0
_FRONT_ENDS, _BUSY = 2, 2  # and threads of each kind of traffic
_TOLD = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
_GROWTH = 200 << 20
_DISK_BYTES = 64 << 20


class Traffic:
    """Requests of every kind, one after another in threads, and what became of them."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.http, self.grpc = (f"127.0.0.1:{ports[name]}" for name in ("http", "grpc"))
        self.counted: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.scales = {1}  # of models that were ever there
        self.stopped: list[tuple[float, float]] = []  # when a process stood still
        self._end = threading.Event()
        preprocess = make_preprocessor(PREPROCESSING.to_json()["steps"])
        self._photos = [photo(seed) for seed in range(8)]
        self._labels = [LABELS[int(np.argmax(preprocess(one).reshape(-1) @ WEIGHTS))] for one in self._photos]
        kinds: dict[str, Callable[[np.random.Generator], Iterator[str]]]
        kinds = {"http": self._http, "classify": self._classify, "grpc": self._grpc, "stream": self._stream}
        self.threads = [
            threading.Thread(target=self._work, args=(name, ask, seed)) for name, ask in kinds.items() for seed in range(_BUSY)
        ]

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self.threads:
            thread.join()

    def _work(self, name: str, ask: Callable[[np.random.Generator], Iterator[str]], seed: int) -> None:
        draw = np.random.default_rng(seed)
        while not self._end.is_set():
            begin = time.monotonic()
            try:
                for outcome in ask(draw):
                    self.counted[name, outcome] += 1
            except Exception as error:  # noqa: BLE001 - whatever is no clear error is what is looked for
                self.wrong.append(f"{name}: {type(error).__name__}: {error}"[:300])
            took, allowed = time.monotonic() - begin, _DEADLINE + _SPARE
            if any(since < begin + took and until > begin for since, until in list(self.stopped)):
                allowed = _HUNG
            if took > allowed:
                self.wrong.append(f"{name}: took {took:.1f} s")
            time.sleep(0.01)

    def _check(self, rows: np.ndarray, scores: np.ndarray) -> str:
        expected = rows.reshape(len(rows), -1) @ WEIGHTS
        if not any(np.allclose(scores / scale, expected, rtol=1e-3, atol=1e-4) for scale in list(self.scales)):
            raise AssertionError(f"{scores.ravel()[:3]} is no answer to what was asked, {expected.ravel()[:3]}")
        return "right"

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[str, bytes]:
        connection = http.client.HTTPConnection(self.http, timeout=_HUNG)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (ConnectionError, http.client.HTTPException):
            return "cut", b""  # by a process that ended
        finally:
            connection.close()
        if answer.status == 200:
            return "", data
        if answer.status not in (429, 503) or not json.loads(data)["error"]:
            raise AssertionError(f"{answer.status} {data[:200]!r}")
        return "told", data

    def _http(self, draw: np.random.Generator) -> Iterator[str]:
        rows = draw.normal(size=(int(draw.integers(1, 9)), 3, 16, 16)).astype(np.float32)
        tensor = {"name": "images", "datatype": "FP32", "shape": rows.shape, "parameters": {"binary_data_size": rows.nbytes}}
        options = {"timeout": int(_DEADLINE * 1e6), "binary_data_output": False}
        head = json.dumps({"inputs": [tensor], "parameters": options}).encode()
        length = {"Inference-Header-Content-Length": str(len(head))}
        outcome, data = self._post("/v2/models/tiny/infer", head + rows.tobytes(), length)
        yield outcome or self._check(rows, np.array(json.loads(data)["outputs"][0]["data"]).reshape(len(rows), -1))

    def _classify(self, draw: np.random.Generator) -> Iterator[str]:
        number = int(draw.integers(len(self._photos)))
        outcome, data = self._post(f"/v1/classify/tiny?k=1&timeout_ms={_DEADLINE * 1e3:.0f}", self._photos[number], {})
        if not outcome and (label := json.loads(data)["predictions"][0]["label"]) != self._labels[number]:
            raise AssertionError(f"{label!r} where {self._labels[number]!r} is right")
        yield outcome or "right"

    def _request(self, draw: np.random.Generator, name: str = "") -> tuple[pb.ModelInferRequest, np.ndarray]:
        rows = draw.normal(size=(int(draw.integers(1, 9)), 3, 16, 16)).astype(np.float32)
        request = pb.ModelInferRequest(model_name="tiny", id=name, raw_input_contents=[rows.tobytes()])
        request.inputs.add(name="images", datatype="FP32", shape=rows.shape)
        request.parameters["timeout"].int64_param = int(_DEADLINE * 1e6)
        return request, rows

    def _grpc(self, draw: np.random.Generator) -> Iterator[str]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.grpc, options=options) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for _ in range(20):
                request, rows = self._request(draw)
                try:
                    answer = stub.ModelInfer(request, timeout=_HUNG)
                except grpc.RpcError as error:
                    if error.code() not in _TOLD:
                        raise
                    yield "told"
                    return
                yield self._check(rows, np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(len(rows), -1))
                time.sleep(0.01)

    def _stream(self, draw: np.random.Generator) -> Iterator[str]:
        asked = {str(number): self._request(draw, str(number)) for number in range(8)}
        with grpc.insecure_channel(self.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                for answer in stub.ModelStreamInfer(iter([request for request, _ in asked.values()]), timeout=_HUNG):
                    _, rows = asked.pop(answer.infer_response.id)  # a second answer to one request is a KeyError
                    if answer.error_message:
                        yield "told"
                        continue
                    scores = np.frombuffer(answer.infer_response.raw_output_contents[0], np.float32)
                    yield self._check(rows, scores.reshape(len(rows), -1))
            except grpc.RpcError as error:
                if error.code() not in _TOLD:
                    raise
                yield from ["cut"] * len(asked)
            else:
                assert not asked, f"{len(asked)} requests of a stream were never answered"


class Chaos:
    """What is done to a server, in an order drawn by `seed`."""

    def __init__(self, server: psutil.Process, traffic: Traffic, repository: Repository, seed: int, *, disk: bool) -> None:
        self._server, self._traffic, self._repository, self._disk = server, traffic, repository, disk
        self._draw = random.Random(seed)
        self.done: Counter[str] = Counter()

    def processes(self, kind: str) -> list[psutil.Process]:
        return [one for one in self._server.children() if f"headrace.serving.processes.{kind}" in one.cmdline()]

    def once(self) -> None:
        """One thing, drawn."""
        acts = {
            "an engine killed": lambda: self._send("engine", signal.SIGKILL),
            "a front end killed": lambda: self._send("frontend", signal.SIGKILL),
            "an engine stopped": lambda: self._stop("engine"),
            "a front end stopped": lambda: self._stop("frontend"),
            "a model replaced": self._replace,
            "a corrupt version added": self._corrupt,
            "20 connections cut": self._cut,
            "descriptors used up": self._starve,
            **({"the disk full": self._fill} if self._disk else {}),
        }
        name = self._draw.choice(list(acts))
        with contextlib.suppress(psutil.NoSuchProcess, IndexError, ProcessLookupError):  # it ended just now
            acts[name]()
            self.done[name] += 1

    def _send(self, kind: str, number: int) -> psutil.Process:
        process = self._draw.choice(self.processes(kind))
        process.send_signal(number)
        return process

    def _stop(self, kind: str) -> None:
        since = time.monotonic()
        process = self._send(kind, signal.SIGSTOP)
        self._traffic.stopped.append((since, since + _HUNG))
        time.sleep(self._draw.choice((0.2, 0.2, 1.0, 1.0, 4.0, 20.0)))
        process.send_signal(signal.SIGCONT)

    def _replace(self) -> None:
        scale = max(self._traffic.scales) + 1
        self._traffic.scales.add(scale)
        self._repository.package("tiny", scale=float(scale))

    def _corrupt(self) -> None:
        folder = self._repository.add("tiny", 2, scale=1000.0)
        file = folder / "model.onnx"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        # The whole version may have been seen before it is corrupt, which is then a version like any other.
        self._traffic.scales.add(1000)
        file.write_bytes(data)
        time.sleep(1.5)
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()

    def _cut(self) -> None:
        host, port = self._traffic.http.split(":")
        for number in range(20):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                head = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
                connection.sendall((head + bytes(500))[: 10 + 30 * number])

    def _starve(self) -> None:
        process = self._draw.choice(self.processes("frontend"))
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 1, before[1]))
        self._traffic.stopped.append((time.monotonic(), time.monotonic() + _HUNG))  # connections wait to be accepted
        try:
            time.sleep(2)
        finally:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)

    def _fill(self) -> None:
        """Not a byte is left for the log, nor for a model that somebody writes meanwhile."""
        filler = self._repository.tmp / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 20)):
                    pass
            with contextlib.suppress(OSError, ArtifactError):
                self._replace()
            time.sleep(2)
        finally:
            filler.unlink()


@contextlib.contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder, and whether it is a disk of its own that can be filled, which takes the right to mount one."""
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "headrace-chaos", name]
        mounted = (
            shutil.which("mount") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )
        try:
            yield Path(name), mounted
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=True)


def held(server: psutil.Process) -> dict[str, int]:
    """What the server's processes hold together."""
    processes = [server, *server.children(recursive=True)]
    return {
        "processes": len(processes),
        "descriptors": sum(one.num_fds() for one in processes),
        "memory": sum(one.memory_info().rss for one in processes),
    }


def leaks(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What is held for good: connections that wind down and threads of new processes take some descriptors."""
    slack = {"processes": 0, "descriptors": 30, "memory": _GROWTH}
    return [f"{name}: {before[name]:,} became {after[name]:,}" for name in before if after[name] > before[name] + slack[name]]


def run(seconds: float, seed: int) -> tuple[Traffic, Chaos, list[str]]:
    """Traffic and chaos for so long; what did not hold is in the last."""
    with terminate_as_exit(), small_disk() as (folder, disk), contextlib.ExitStack() as stack:
        repository = Repository(folder)
        repository.package("tiny")
        options = ("--frontends", str(_FRONT_ENDS), "--model-control-mode", "poll", "--repository-poll-secs", "0.5")
        service = headrace_service(repository.path, "", options=(*options, "--threads", "1", "--instances", "1"), trusted=True)
        server = stack.enter_context(Server(service, folder=folder, timeout_seconds=120))
        server.wait_ready()
        process = psutil.Process(server.ready["pid"])
        with Traffic(server.ready) as traffic:
            chaos = Chaos(process, traffic, repository, seed, disk=disk)
            time.sleep(3)
            before, end = held(process), time.monotonic() + seconds
            while time.monotonic() < end:
                chaos.once()
                time.sleep(1)
                server.check_alive()
            found = [] if _recovers(traffic) else ["after the chaos no thread of traffic got 20 right answers within 60 s"]
            time.sleep(3)
            after = held(process)
        found += traffic.wrong + leaks(before, after)
        if found:
            print(server.tail(), file=sys.stderr)
        return traffic, chaos, found


def _recovers(traffic: Traffic) -> bool:
    before, end = Counter(traffic.counted), time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.5)
        if all(
            traffic.counted[key] >= before[key] + 20
            for key in [(kind, "right") for kind in ("http", "classify", "grpc", "stream")]
        ):
            return True
    return False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.chaos", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a page, whose part it writes")
    chosen = parser.parse_args(arguments)
    if os.geteuid() != 0 and shutil.which("unshare"):
        command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.benchmarks.serving.chaos"]
        if subprocess.run([*command[:4], "true"], capture_output=True, check=False).returncode == 0:
            os.execvp(command[0], [*command, *arguments])
    traffic, chaos, found = run(chosen.seconds, chosen.seed)
    memory_seconds = max(15.0, chosen.seconds / 5)
    clients, lost = run_memory(memory_seconds, chosen.seed)
    found += lost
    kinds = sorted({kind for kind, _ in traffic.counted})
    acts = ", ".join(f"{name} {count} times" for name, count in sorted(chaos.done.items()))
    lines = [
        "## Chaos",
        "",
        f"`make chaos`, {datetime.now(UTC):%Y-%m-%d}, on {fingerprint().get('cpu', 'an unknown processor')}: {chosen.seconds:g}"
        f" s of mixed traffic to {_FRONT_ENDS} front ends and an engine, seed {chosen.seed}; meanwhile {acts}. "
        f"Load of the machine at the end: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores.",
        "",
        "| traffic | right answers | clear errors | connections that ended with their process |",
        "|---|---|---|---|",
        *(
            f"| {kind} | " + " | ".join(f"{traffic.counted[kind, what]:,}" for what in ("right", "told", "cut")) + " |"
            for kind in kinds
        ),
        "",
        f"Then {memory_seconds:g} s of clients of system shared memory, whose objects were "
        + ", ".join(f"{act} {count} times" for act, count in sorted(clients.done.items()))
        + f": {clients.counted['right']:,} right answers and {clients.counted['told']:,} clear errors.",
        "",
        f"Wrong, late or unclear answers, and what leaked: {'; '.join(found[:10]) or 'none'}.",
    ]
    print("\n".join(lines))
    if chosen.out is not None:
        write_part(chosen.out, "\n".join(lines))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
