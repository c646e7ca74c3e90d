"""Many requests to the worker in one sandbox: each in its own process, none harmed by another."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.worker_pool import RUNNING, WorkerPool
from headrace.migrate.proving.worker_protocol import Failed, Inspected
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.stages.worker_client import inspect

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.fc = nn.Linear(48, classes)
    def forward(self, x):
        return self.fc(x.flatten(1))
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    tree = tmp_path / "repository"
    tree.mkdir()
    (tree / "net.py").write_text(NET)
    (tree / "script.py").write_text("")
    return Sandbox(scratch=tmp_path, limits=Limits(timeout=30, memory_bytes=3 * 10**9))


def ask(sandbox: Sandbox, pool: WorkerPool, source: str) -> Inspected | Failed:
    recipe = Recipe(root=str(sandbox.tree), script="script.py", source=source, expression="model")
    return inspect(recipe, (3, 4, 4), pool.sandbox)


@pytest.mark.usefixtures("torch_sandbox")
def test_answers_one_after_the_other_in_processes_of_their_own(sandbox: Sandbox) -> None:
    build = "from net import Net\nimport os, torch\nmodel = Net()\nmodel.fc.bias.data.fill_(os.getpid())\n"
    spoil = build + "import builtins, net\nnet.Net = builtins.dict = None\nos.environ['SPOILT'] = '1'\nos.chdir('/')\n"
    check = build.replace("import os", "import net, os") + "assert net.Net and dict and 'SPOILT' not in os.environ\n"
    running = set(psutil.Process().children(recursive=True))  # servers of other tests in this process
    with WorkerPool(sandbox) as pool:
        answers = [ask(sandbox, pool, source) for source in (build, spoil, check)]
        assert all(isinstance(answer, Inspected) for answer in answers), answers
        assert answers[0].classes == 3
    assert set(psutil.Process().children(recursive=True)) <= running


@pytest.mark.usefixtures("torch_sandbox")
def test_what_lies_beside_the_script_comes_before_what_the_server_loaded(sandbox: Sandbox) -> None:
    (sandbox.tree / "onnx.py").write_text("MINE = 1\n")
    try:
        with WorkerPool(sandbox) as pool:
            answer = ask(sandbox, pool, "import onnx\nfrom net import Net\nassert onnx.MINE\nmodel = Net()\n")
            assert isinstance(answer, Inspected), answer
    finally:
        (sandbox.tree / "onnx.py").unlink()


@pytest.mark.usefixtures("torch_sandbox")
def test_a_worker_that_dies_hangs_or_takes_all_memory_stops_no_other(sandbox: Sandbox) -> None:
    bounded = Sandbox(scratch=sandbox.scratch, limits=Limits(timeout=10, memory_bytes=10**9))
    build = "from net import Net\nmodel = Net()\n"
    with WorkerPool(bounded) as pool:
        assert "ended with status -9" in ask(bounded, pool, "import os\nos.kill(os.getpid(), 9)\n").error
        assert "time limit" in ask(bounded, pool, "import time\ntime.sleep(100)\n").error
        assert isinstance(ask(bounded, pool, build), Inspected)
        assert "emory" in ask(bounded, pool, "x = [bytearray(b'1' * 200_000_000) for _ in range(1000)]\n").error
        assert isinstance(ask(bounded, pool, build), Inspected)


def test_what_a_worker_leaves_behind_is_ended(sandbox: Sandbox) -> None:
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True"
    child = f"import subprocess, sys\np = subprocess.Popen({sleeper})\n"
    with WorkerPool(sandbox, ("torch",)) as pool:
        assert isinstance(ask(sandbox, pool, child + "from net import Net\nmodel = Net()\n"), Inspected)
        running = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # it has ended
                running.append(process.cmdline())
        assert not any("time.sleep(600)" in " ".join(line) for line in running)
        assert any("headrace.migrate.worker.server" in line for line in running)


@pytest.mark.usefixtures("torch_sandbox")
def test_forged_answers_are_not_taken_for_the_worker_s(sandbox: Sandbox) -> None:
    forged = "print('ANSWERED 0 0', flush=True)\nfrom net import Net\nmodel = Net()\n"
    with WorkerPool(sandbox) as pool:
        answer = ask(sandbox, pool, forged)
        assert isinstance(answer, Inspected), answer


@pytest.mark.usefixtures("torch_sandbox")
def test_requests_that_are_apart_have_a_home_of_their_own(sandbox: Sandbox) -> None:
    home = "import os, tempfile, pathlib\nhome, tmp = pathlib.Path.home(), pathlib.Path(tempfile.gettempdir())\n"
    leave = home + "(home / 'left').write_text('')\n(tmp / 'left').write_text('')\nfrom net import Net\nmodel = Net()\n"
    look = home + "assert not (home / 'left').exists() and not (tmp / 'left').exists()\nfrom net import Net\nmodel = Net()\n"
    with WorkerPool(sandbox, RUNNING, apart=True) as pool:
        answers = [ask(sandbox, pool, source) for source in (leave, look, look)]
        assert all(isinstance(answer, Inspected) for answer in answers), answers


def test_a_pool_answers_for_what_is_within_its_bounds(sandbox: Sandbox, tmp_path: Path) -> None:
    pool = WorkerPool(sandbox)
    assert pool.answers_for(replace(sandbox, limits=Limits(timeout=3)))
    assert not pool.answers_for(replace(sandbox, readable=(tmp_path,)))
    assert not pool.answers_for(replace(sandbox, trusted=True))


def test_a_pool_that_is_closed_as_it_starts_leaves_nothing(sandbox: Sandbox) -> None:
    """As where reading the sources finds that there is nothing to run."""
    running = set(psutil.Process().children(recursive=True))
    for _ in range(8):
        with WorkerPool(sandbox, RUNNING) as pool:
            pool.start()
    assert set(psutil.Process().children(recursive=True)) <= running
