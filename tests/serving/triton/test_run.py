"""Starting and ending Triton: what keeps it from starting is said, and nothing of it stays behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import TritonError
from headrace.serving.triton.config import RunSettings
from headrace.serving.triton.install import Installed
from headrace.serving.triton.run import TritonServer
from tests.serving.triton.broken_models import BROKEN

FREE = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
SHARED_MEMORY = Path("/dev/shm")

# Stands in for a tritonserver that cannot be had here: an old one, one of a later age.
FAKE = """#!{python}
import http.server, json, sys
port = next(int(a.split("=")[1]) for a in sys.argv if a.startswith("--http-port="))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"version": "{version}"}}).encode()
        self.send_response(200), self.send_header("Content-Length", str(len(body))), self.end_headers(), self.wfile.write(body)
    def do_POST(self):
        body = json.dumps([{{"name": "tiny", "state": "{state}", "reason": "{reason}"}}]).encode()
        self.send_response(200), self.send_header("Content-Length", str(len(body))), self.end_headers(), self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def fake(tmp_path):
    def make(text=None, *, version="2.51.0", state="READY", reason=""):
        path = tmp_path / "tritonserver"
        path.write_text(text or FAKE.format(python=sys.executable, version=version, state=state, reason=reason))
        path.chmod(0o755)
        return Installed(binary=path)

    return make


def enter(installed, models, tmp_path, **settings):
    with TritonServer(installed, models, tmp_path / "log", RunSettings(**{**FREE, **settings})) as server:
        return server.version


def test_another_triton_may_be_used(fake, models, tmp_path):
    assert enter(fake(), models, tmp_path) == "2.51.0"


@pytest.mark.parametrize("version", ["2.10.0", "3.0.1"])
def test_versions_that_are_not_known(fake, models, tmp_path, version):
    with pytest.raises(TritonError, match=f"is Triton {version}; versions from 2.40 to below 3.0"):
        enter(fake(version=version), models, tmp_path)


def test_options_that_it_does_not_know(fake, models, tmp_path):
    old = fake("#!/bin/sh\necho \"tritonserver: unrecognized option '--load-model=*'\" >&2; exit 1\n")
    with pytest.raises(TritonError, match=r"older than 2\.40") as caught:
        enter(old, models, tmp_path)
    assert "--load-model=*" in str(caught.value)


def test_one_that_ends_or_hangs(fake, models, tmp_path):
    with pytest.raises(TritonError, match=r"ended with status 3 .*\n.*E1 no reason"):
        enter(fake("#!/bin/sh\necho E1 no reason; exit 3\n"), models, tmp_path)
    with pytest.raises(TritonError, match="misses a library"):
        enter(fake("#!/bin/sh\necho error while loading shared libraries: libx.so; exit 127\n"), models, tmp_path)
    with pytest.raises(TritonError, match="--start-timeout"):
        enter(fake("#!/bin/sh\nexec sleep 60\n"), models, tmp_path, start_timeout=0.3)
    assert not [child for child in psutil.Process().children() if child.name() == "sleep"]


def test_no_model_that_serves(fake, models, tmp_path):
    with pytest.raises(TritonError, match="tiny: no graph"):
        enter(fake(state="UNAVAILABLE", reason="no graph"), models, tmp_path)


def test_a_port_that_is_taken(fake, models, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TritonError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use; .*--grpc-port"):
            enter(fake(), models, tmp_path, grpc_port=port)


def test_the_command_refuses_what_lint_refuses(monkeypatch, fake, repository, tmp_path):
    fake()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    repository.package("tiny")
    BROKEN["no model.py"].edit(repository.path)
    answer = CliRunner().invoke(app, ["triton", "run", str(repository.path), "--installed-in", str(tmp_path)])
    assert answer.exit_code != 0
    assert "TR005" in str(answer.exception)


def left_behind(owner=None):
    """Shared memory of the Tritons that a process started, by default this one."""
    return [path.name for path in SHARED_MEMORY.glob(f"headrace_triton_{owner or os.getpid()}_*")]


def ended(family):
    return not [one for one in psutil.wait_procs(family, timeout=40)[1] if one.status() != psutil.STATUS_ZOMBIE]


def test_the_real_one_serves_and_leaves_nothing(run_triton, models):
    with run_triton(models) as server:
        states = {row["name"]: row["state"] for row in server.index()}
        assert states["tiny"] == states["tiny_classify"] == states["tiny_decode"] == "READY"
        assert left_behind()
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert family
    assert left_behind() == []
    assert ended(family)


def test_a_killed_triton_leaves_nothing_either(run_triton, models):
    with run_triton(models) as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        assert server.wait() == -signal.SIGKILL
    assert left_behind() == []
    assert ended(family)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_ends_it(triton, models, tmp_path, ending):
    """Also when the command itself is killed: then Triton ends by itself, in order."""
    command = [sys.executable, "-m", "headrace", "triton", "run", str(models), "--http-port", "0", "--grpc-port", "0"]
    command += ["--metrics-port", "0", "--installed-in", str(triton.path[0].parents[1]), "--log", str(tmp_path / "log")]
    sound = tmp_path / "sound"
    sound.mkdir()
    for name in ("tiny", "tiny_decode", "tiny_classify"):  # not the damaged one, which lint refuses
        (sound / name).symlink_to(models / name)
    command[5] = str(sound)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert "Triton 2." in process.stdout.readline()
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(ending)
        assert process.wait(60) == (0 if ending != signal.SIGKILL else -signal.SIGKILL)
    assert ended(family)
    assert left_behind(process.pid) == []
