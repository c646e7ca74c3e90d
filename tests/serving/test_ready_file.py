"""Lines to a stream whose reader may be gone: nobody waits, and what was lost is counted."""

import gc
import json
import os
import threading
import time
from pathlib import Path

from headrace.serving import ready_file
from headrace.serving.config import Addresses, ServeConfig
from headrace.serving.ready_file import LineWriter


def test_lines_come_out_in_order_and_whole(tmp_path):
    path = tmp_path / "lines"
    with path.open("w") as stream:
        writer = LineWriter(stream)
        threads = [
            threading.Thread(target=lambda name=name: [writer.write(f"{name} {n}") for n in range(500)]) for name in "abc"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
    lines = path.read_text().splitlines()
    for name in "abc":
        assert [line for line in lines if line[0] == name] == [f"{name} {n}" for n in range(500)]


def test_lines_that_nobody_takes_are_lost_and_counted(monkeypatch):
    monkeypatch.setattr(ready_file, "_MAX_LINES", 100)
    monkeypatch.setattr(ready_file, "_CLOSE_SECONDS", 0.2)
    reader, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reader, "rb", buffering=0) as taken:
        writer = LineWriter(stream)
        begin = time.monotonic()
        for _ in range(5000):
            writer.write("x" * 1000)
        writer.close()
        assert time.monotonic() - begin < 60
        received = b""
        while b"are lost" not in received:
            received += taken.read(1 << 16)
    lines = received.decode().splitlines()
    (lost,) = [int(line.split()[0]) for line in lines if line.endswith("are lost")]
    assert lost + lines.count("x" * 1000) <= 5000
    assert lost > 4500


def test_garbage_is_collected_once_it_serves(tmp_path):
    """`headrace serve` starts without."""
    gc.disable()
    try:
        config = ServeConfig(models=Path("models"), addresses=Addresses(ready_file=tmp_path / "ready.json"))
        ready_file.announce(["tiny"], config, {"http": 1})
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert json.loads((tmp_path / "ready.json").read_text()) == {"http": 1, "pid": os.getpid()}
    finally:
        gc.enable()
