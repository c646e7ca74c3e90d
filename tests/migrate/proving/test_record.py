"""What the recorder does inside of a script, beyond the calls that it notes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.migrate.proving.instrument import RECORDER

SERVICE = """
import sys
sys.path.insert(0, {folder!r})
import record
record.seed()
{serve}
print("went on")
"""


@pytest.mark.parametrize(
    ("serve", "ends"),
    [
        ("from http.server import HTTPServer; HTTPServer(('127.0.0.1', 0), None).serve_forever()", True),
        ("import asyncio; asyncio.run(asyncio.start_server(print, '::1', 0))", True),
        ("import socket; socket.create_server(('127.0.0.1', 0)).accept()", True),
        ("from multiprocessing import Manager; Manager().dict()", False),
        ("import socket; socket.socketpair()", False),
    ],
)
def test_a_service_ends_where_it_begins_to_wait(tmp_path: Path, serve: str, ends: bool) -> None:
    script = tmp_path / "service.py"
    script.write_text(SERVICE.format(folder=str(RECORDER.parent), serve=serve))
    environment = {**os.environ, "HEADRACE_RECORD": str(tmp_path / "record.npz")}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "went on" in done.stdout) == ((1, False) if ends else (0, True)), done.stderr
    assert ends == done.stderr.endswith("it is a service, which waits for requests\n")
