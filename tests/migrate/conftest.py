"""Repositories to migrate: copies of the examples, prepared and trained once."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.migrate.proving import confined_run
from headrace.migrate.reading.source import parse_source
from headrace.migrate.rewriting.rewrite import Change
from tests.migrate import probes
from tests.warm_python import WarmProcess, WarmPython

collect_ignore = ["corpus"]  # repositories to migrate, some with files called test.py
_CONSTRUCTION = re.compile(r"([\w.]+) = headrace\.(?:compile|evaluation_step)\(([\w.]+)\)")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where --write keeps its journal, in these tests and in the processes that they start."""
    folder = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def few_probes() -> Iterator[None]:
    """What tells preprocessings apart is in proving/test_trace_transform."""
    with pytest.MonkeyPatch.context() as patches:
        probes.take(probes.FEW, patches.setattr)
        yield


def copied(name: str, target: Path) -> Path:
    """The example as a newcomer clones it, without data and weights that may lie in the checkout."""
    ignored = shutil.ignore_patterns("data", "checkpoints", "weights", "runs", "__pycache__")
    return shutil.copytree(EXAMPLES / name, target / name, ignore=ignored)


def run_in(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def _forked(warm: WarmPython) -> Iterator[None]:
    class Subprocess:
        PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

        @staticmethod
        def Popen(command: list[str], **options: Any) -> WarmProcess:
            return warm.popen(command[1:], execs=True, **options)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(confined_run, "subprocess", Subprocess)
        yield


@pytest.fixture(scope="module")
def warm_sandbox(warm_torch: WarmPython) -> Iterator[None]:
    """Python in the sandbox is a fork of a process that has torch imported: for tests of what friendly code answers.

    The namespaces and limits are there; the capabilities are not dropped, for only an exec does that.
    """
    with _forked(warm_torch):
        yield


@pytest.fixture(scope="session")
def warm_pillow() -> Iterator[WarmPython]:
    warm = WarmPython(("numpy", "PIL.Image", "headrace.runtime.images.preprocessing"))
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def light_sandbox(warm_pillow: WarmPython) -> Iterator[None]:
    """As `warm_sandbox`, for programs that need no torch: the smaller process forks in a quarter of the time."""
    with _forked(warm_pillow):
        yield


@pytest.fixture
def torch_sandbox(warm_torch: WarmPython) -> Iterator[None]:
    """As `warm_sandbox`, for one test among those of `light_sandbox`."""
    with _forked(warm_torch):
        yield


@pytest.fixture
def in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A script is rehearsed once, without a fork, in a folder of its own; what it adds to the search path is taken back."""
    monkeypatch.setattr("headrace.migrate.worker.live.model.ATTEMPTS", 1)
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path / "made")
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture(scope="session")
def digits(once: Callable[..., Any]) -> Path:
    """examples/digits, with its data and a checkpoint of a few epochs."""
    return once("migrate-digits", _digits)


def _digits(folder: Path) -> Path:
    root = copied("digits", folder)
    run_in(root, "prepare.py")
    run_in(root, "train.py", "--epochs", "2")
    return root


@pytest.fixture(scope="session")
def photos(once: Callable[..., Any]) -> Path:
    """examples/photos with a ResNet-18 and few photos."""
    return once("migrate-photos", _photos)


def _photos(folder: Path) -> Path:
    root = copied("photos", folder)
    run_in(root, "prepare.py", "--arch", "resnet18", "--per-class", "2", "--test-per-class", "2")
    return root


@pytest.fixture(scope="session")
def taken_back() -> Callable[[Change], bytes]:
    """Undoes the edits of the evaluation rules: what is left must be the file that was, byte for byte."""
    return _taken_back


def _taken_back(change: Change) -> bytes:
    """The file with the rules' edits undone: their lines dropped, their graphs called by the models' names again."""
    file = parse_source(change.path, change.after)
    lines: list[str] = []
    made: dict[str, str] = {}
    for line in file.lines:
        if (construction := _CONSTRUCTION.fullmatch(line.strip())) is not None:
            made[construction[1]] = construction[2]
        elif line.strip() != "import headrace":
            lines.append(line)
    text = "".join(lines)
    before = parse_source(change.path, change.before).text or ""
    if not before.endswith(("\n", "\r")):  # a line added at the very end needs an ending above it
        text = text.rstrip("\r\n")
    for graph, model in made.items():
        text = re.sub(rf"(?<!def )(?<![\w.]){re.escape(graph)}\(", f"{model}(", text)
    return file.encode(text)
