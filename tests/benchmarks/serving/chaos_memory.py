"""Clients of system shared memory that are killed, and whose objects are unlinked or cut short while requests use them."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO

import psutil

from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service
from tests.serving.conftest import Repository

from .memory_client import FOLDER

_CLIENTS = 3


class Clients:
    """So many at a time; each is ended within seconds, and another takes its place."""

    def __init__(self, address: str, seed: int) -> None:
        self.counted: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._address, self._draw = address, random.Random(seed)
        self._number = 0
        self._answered: set[str] = set()
        self._running: list[tuple[subprocess.Popen[str], Path]] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Clients:
        for _ in range(_CLIENTS):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for process, path in self._running:
            self._end(process, path)
        for reader in self._readers:
            reader.join()

    def once(self) -> None:
        """Something is done to one of them that has been answered, if there is one."""
        able = [index for index, (_, path) in enumerate(self._running) if path.name in self._answered]
        if not able:
            return
        index = self._draw.choice(able)
        process, path = self._running[index]
        act = self._draw.choice(("killed", "unlinked", "cut short", "unlinked and killed"))
        with contextlib.suppress(OSError):
            if act == "cut short":
                os.truncate(path, self._draw.choice((0, 1, 4096, 20_000, 24_700)))
            elif act != "killed":
                path.unlink()
        time.sleep(self._draw.random() * (2.0 if act == "cut short" else 0.2))  # for requests that find it so
        self.done[act] += 1
        self._end(process, path)
        del self._running[index]
        self._start()

    def _start(self) -> None:
        self._number += 1
        name = f"chaos-{os.getpid()}-{self._number}"
        command = [sys.executable, "-m", "tests.benchmarks.serving.memory_client", self._address, name, str(self._number)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None, "it is a pipe"
        reader = threading.Thread(target=self._read, args=(process.stdout, name))
        reader.start()
        self._readers.append(reader)
        self._running.append((process, FOLDER / name))

    def _read(self, lines: IO[str], name: str) -> None:
        for line in lines:
            self._answered.add(name)
            if line.startswith("wrong"):
                self.wrong.append(f"shared memory: {line.strip()}")
            else:
                self.counted[line.strip()] += 1

    def _end(self, process: subprocess.Popen[str], path: Path) -> None:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def run_memory(seconds: float, seed: int) -> tuple[Clients, list[str]]:
    """So many seconds of it; what did not hold is in the last. The server goes on, and holds nothing once all is forgotten."""
    with terminate_as_exit(), tempfile.TemporaryDirectory(prefix="headrace-chaos-") as name, contextlib.ExitStack() as stack:
        repository = Repository(Path(name))
        repository.package("tiny")
        service = headrace_service(
            repository.path, "", options=("--shared-memory", "--threads", "1", "--instances", "1"), trusted=True
        )
        server = stack.enter_context(Server(service, folder=Path(name), timeout_seconds=120))
        server.wait_ready()
        process, address = psutil.Process(server.ready["pid"]), f"127.0.0.1:{server.ready['http']}"
        before = process.num_fds()
        with Clients(address, seed) as clients:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.5 + 0.5 * clients._draw.random())
                clients.once()
                server.check_alive()
        found = list(clients.wrong)
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("POST", "/v2/systemsharedmemory/unregister")
        if (status := connection.getresponse().status) != 200:
            found.append(f"shared memory: forgetting every region was answered with {status}")
        connection.close()
        time.sleep(2)
        if (after := process.num_fds()) > before + 3:
            found.append(f"shared memory: {before} descriptors became {after}")
        if found:
            print(server.tail(), file=sys.stderr)
        return clients, found
