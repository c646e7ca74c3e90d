"""What the server reports to whoever started it: lines on stdout and stderr, and a file with its ports."""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import queue
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from .config import ServeConfig

_PATHS = {"metrics": "/metrics"}


# Lines that wait to be written before others are lost, and how long a process that ends waits for them.
_MAX_LINES, _CLOSE_SECONDS = 10_000, 1.0


class LineWriter:
    """Lines to a stream, written by a thread of their own: whoever has one neither waits nor fails.

    What reads them may be slow, stand still or be gone, and a disk may be full. Lines are lost then, and counted.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name="headrace-lines", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Write one line, without its end, soon."""
        if self._waiting.qsize() < _MAX_LINES:
            self._waiting.put(line)
        else:
            self._lost += 1

    def close(self) -> None:
        """Write what waits, if that is soon done, and no more."""
        self._waiting.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _work(self) -> None:
        while (line := self._waiting.get()) is not None:
            lost, self._lost = self._lost, 0
            try:
                self._put(f"{line}\n" if not lost else f"{line}\n{lost} lines could not be written and are lost\n")
            except (OSError, ValueError):
                self._lost += lost + 1

    def _put(self, text: str) -> None:
        try:
            descriptor = self._stream.fileno()
        except (OSError, AttributeError):  # one that is no file
            self._stream.write(text)
            return
        # Not through the stream: a thread that waits there holds its lock, and so the process when that ends.
        left = text.encode("utf-8", "backslashreplace")
        while left:
            left = left[os.write(descriptor, left) :]


@functools.cache
def _stdout() -> LineWriter:
    writer = LineWriter(sys.stdout)
    atexit.register(writer.close)
    return writer


def report(line: str) -> None:
    """One line on stdout."""
    _stdout().write(line)


def serving_line(models: Iterable[str], config: ServeConfig, ports: Mapping[str, int]) -> str:
    """Which models are served where. `ports` has "http" first."""
    host = f"[{config.addresses.host}]" if ":" in config.addresses.host else config.addresses.host
    scheme = "http" if config.security.tls_cert is None else "https"
    schemes = {"http": f"{scheme}://", "metrics": f"metrics {scheme}://", "grpc": "gRPC "}
    where = [f"{schemes[name]}{host}:{port}{_PATHS.get(name, '')}" for name, port in ports.items()]
    names = ", ".join(dict.fromkeys(models)) or "no model yet"
    return f"serving {names} at {', '.join(where)}; open {where[0]}/ in a browser"


def announce(models: Iterable[str], config: ServeConfig, ports: Mapping[str, int]) -> None:
    """That these models are served, as a line and in the file that was asked for. From here on a collection of garbage, which
    holds up requests, passes by what is there already."""
    gc.freeze()
    gc.enable()
    report(serving_line(models, config, ports))
    if config.addresses.ready_file is not None:
        write_ready(config.addresses.ready_file, {**ports, "pid": os.getpid()})


def write_ready(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all, as somebody waits for this file to appear."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(dict(content)), encoding="utf-8")
    aside.replace(path)
