"""The server of many requests by itself; with requests it is tested in tests/migrate/proving/test_worker_pool.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headrace.migrate.worker import server


def test_a_library_that_breaks_as_it_is_loaded_ends_no_server(tmp_path: Path) -> None:
    """The request that imports it says so."""
    (tmp_path / "broken.py").write_text("raise RuntimeError('operator broken::nms does not exist')\n")
    (tmp_path / "requests").write_text("")
    command = [sys.executable, "-m", "headrace.migrate.worker.server", str(tmp_path / "requests"), "5", "broken", "missing"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_usage() -> None:
    assert server.main(["requests"]) == 2
