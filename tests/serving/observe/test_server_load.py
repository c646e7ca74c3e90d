"""What the processes of a server take."""

import subprocess
import sys
import time

from headrace.serving.observe import server_load
from headrace.serving.observe.server_load import ServerLoad


def test_processes_below_count_too(monkeypatch):
    monkeypatch.setattr(server_load, "_FRESH_SECONDS", 0.0)
    load = ServerLoad(child=False)
    before = load.read()
    code = "import time; held = bytearray(80_000_000)\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        during = load.read()
        child.communicate(b"\n")
    assert during["processes"] > before["processes"]
    assert during["cpu_seconds"] - before["cpu_seconds"] >= 0.25
    assert during["memory_bytes"] - before["memory_bytes"] > 70_000_000
    assert during["uptime_seconds"] >= before["uptime_seconds"] > 0


def test_it_is_looked_up_once_a_moment():
    load = ServerLoad(child=False)
    assert load.read() is load.read()
    time.sleep(server_load._FRESH_SECONDS + 0.1)
    assert load.read()["machine_cores"] >= 1
