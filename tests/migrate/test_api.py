"""Broken and hostile repositories: a clear answer, nothing else stopped, and nothing outside the scratch copy changed."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

import headrace
from headrace.errors import MigrateError, NothingToMigrateError
from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.reporting.report import Report
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.scripts.originals import run_originals
from headrace.migrate.survey.survey import survey
from headrace.runtime.base.session import visible_gpus

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
"""
EVALUATE = """
{first}
import torch
from model import Net

def main():
    torch.manual_seed(0)
    model = Net()
    model.eval()
    loader = [(torch.rand(5, 3, 16, 16), torch.arange(5) % 4) for _ in range(2)]
    correct = 0
    with torch.no_grad():
        for images, targets in loader:
            {inside}
            outputs = model(images)
            correct += (outputs.argmax(1) == targets).sum().item()
    print("correct", correct)


if __name__ == "__main__":
    main()
"""


def repository(tmp_path: Path, *, first: str = "", inside: str = "pass", **files: str) -> Path:
    root = tmp_path / "place" / "repository"
    root.mkdir(parents=True)
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text(EVALUATE.format(first=first, inside=inside))
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return root


def test_an_empty_folder_a_missing_one_and_one_without_pytorch(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NothingToMigrateError, match="empty"):
        headrace.migrate(empty)
    with pytest.raises(MigrateError, match="nowhere"):
        headrace.migrate(tmp_path / "nowhere")
    (empty / "app.py").write_text("import flask\n")
    with pytest.raises(NothingToMigrateError):
        headrace.migrate(empty, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_syntax_error_in_one_file_stops_nothing_else(tmp_path: Path) -> None:
    root = repository(tmp_path, broken="def f(:\n    pass\n", old="print 'python 2'\n")
    out = tmp_path / "out"
    report = headrace.migrate(root, out=out, input_size=(3, 16, 16), random_weights=True, precision="fp32", tuning_seconds=1)
    assert {finding.path for finding in report.findings if finding.severity == "error"} == {"broken.py", "old.py"}
    assert report.exit_status & 2
    assert [script.executed for script in report.scripts] == ["passed"]
    assert report.models[0].served
    assert (out / "broken.py").read_text() == "def f(:\n    pass\n"
    assert "headrace.compile" in (out / "evaluate.py").read_text()


HOSTILE = {
    "loops for ever": ({"inside": "exec('import time\\nwhile True: time.sleep(0.1)')"}, "time limit"),
    "waits for input": ({"first": "input('continue? ')"}, "EOFError"),
    "allocates without end": ({"inside": "exec('x = []\\nwhile True: x.append(bytearray(b\"1\" * 100_000_000))')"}, "emory"),
    "prints without end": ({"first": "exec('while True: print(\"spam\" * 1000)')"}, "printed without end"),
    "forks without end": ({"first": "exec('import os\\nwhile True: os.fork()')"}, "processes"),
    "deletes its parent folder": ({"inside": "__import__('shutil').rmtree('..')"}, ""),
    "deletes the original": ({"inside": "__import__('shutil').rmtree({place!r})"}, ""),
    "reads the environment": ({"first": "print(__import__('os').environ['HEADRACE_TEST_SECRET'])"}, "KeyError"),
    "writes to its home": (
        {"first": "raise OSError(__import__('pathlib').Path('~/.bashrc').expanduser().write_text('alias ls=rm'))"},
        "OSError: 11",
    ),
    "writes where the home is": (
        {"first": "__import__('pathlib').Path({place!r}, '.bashrc').write_text('alias ls=rm')"},
        "No such file or directory",
    ),
    "ends at once and says all is well": ({"first": "raise SystemExit(0)"}, "without calling the model"),
    "is killed by its own hand": ({"first": "__import__('os').kill(__import__('os').getpid(), 9)"}, "137"),
    "replaces the modules it was given": (
        {"first": "import sys\nsys.modules['torch'] = sys.modules['json'] = None", "inside": "import json"},
        "halted",
    ),
    "fills the disk": ({"first": 'exec(\'f = open("big", "wb")\\nwhile True: f.write(bytes(10**7))\')'}, "File too large"),
    "fills the disk with many files": (
        {"first": "exec('for i in range(4000): open(str(i), \"wb\").write(bytes(10**6))')"},
        "wrote more to disk",
    ),
    "leaves a process behind": (
        {"first": "__import__('subprocess').Popen(['sleep', '87654'], start_new_session=True); raise OSError('left it')"},
        "left it",
    ),
    "calls home": ({"first": "__import__('socket').create_connection(('192.0.2.1', 80), 5)"}, "nreachable"),
}


# These go on where they are rehearsed: the question is answered, and what is written or deleted is among what is made for
# the script.
ANSWERED = {"deletes the original", "reads the environment", "waits for input", "writes where the home is"}
# What these do needs no rights, so forks of a process that has torch imported do it; all others begin as a user's scripts do.
# The walls that those meet without rights attacks/test_sandbox holds.
HARMLESS = (
    "loops for ever", "waits for input", "prints without end", "ends at once and says all is well", "reads the environment",
    "is killed by its own hand", "replaces the modules it was given", "leaves a process behind", "calls home",
    "deletes the original", "fills the disk", "writes where the home is",
)  # fmt: skip
# What these break is a limit or a wall of the sandbox, each of which proving/test_confined_run and attacks/test_sandbox hold;
# what becomes of a script that was stopped, and of its neighbors, the other cases hold. A storm of forks takes the machine
# from all other tests, too.
_ELSEWHERE = (
    "allocates without end", "deletes its parent folder", "fills the disk with many files", "forks without end",
    "loops for ever", "prints without end",
)  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in _ELSEWHERE else case for case in HOSTILE]
)
def test_hostile_scripts_are_stopped_and_harm_nothing(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if case in HARMLESS:
        request.getfixturevalue("torch_sandbox")
    monkeypatch.setenv("HEADRACE_TEST_SECRET", "hunter2")
    code, reason = HOSTILE[case]
    place = tmp_path / "place"
    root = repository(tmp_path, **{where: text.replace("{place!r}", repr(str(place))) for where, text in code.items()})
    neighbor = place / "thesis.tex"
    neighbor.write_text("precious")
    running = set(psutil.Process().children(recursive=True))  # servers of other tests in this process
    home = Path("~/.bashrc").expanduser()
    at_home = home.read_bytes() if home.exists() else None
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    limit = 5.0 if "loops" in case else 60.0
    surveyed = survey(root)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = Options(limits=Limits(timeout=limit, memory_bytes=15 * 10**8, file_bytes=10**8, disk_bytes=2 * 10**8))
    rewritten = {"evaluate.py": ["PS201"]}
    migration = Migration(scratch=scratch, surveyed=surveyed, options=options, stages=Stages(None), rewritten=rewritten)
    migration.fresh_tree("copy")
    started = time.monotonic()
    originals = run_originals(migration, None)
    answered = case in ANSWERED
    assert {path: run.made is not None for path, run in originals.runs.items()} == ({"evaluate.py": True} if answered else {})
    assert time.monotonic() - started < limit + 200  # what has no end would run into the time that pytest gives a test
    assert neighbor.read_text() == "precious"
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before
    assert answered or reason in originals.why_not["evaluate.py"]
    assert not any("hunter2" in run.run.done.stdout + run.run.done.stderr for run in originals.runs.values())
    assert Report(repository=str(root), findings=migration.findings).exit_status == (0 if answered else 1)
    assert set(psutil.Process().children(recursive=True)) <= running
    assert sorted(path.name for path in place.iterdir()) == ["repository", "thesis.tex"]
    assert (home.read_bytes() if home.exists() else None) == at_home
    left = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not any("87654" in words for words in left)


def test_an_output_folder_of_somebody_else_is_refused_before_anything_runs(tmp_path: Path) -> None:
    root = repository(tmp_path, first="raise SystemExit('must not run')")
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(MigrateError, match="not written by headrace"):
        headrace.migrate(root, out=out)
    assert (out / "thesis.tex").read_text() == "precious"


@pytest.mark.usefixtures("torch_sandbox")
def test_a_checkpoint_that_runs_code_is_not_loaded_without_trust(tmp_path: Path) -> None:
    """Unpickling writes a file into the folder where the script runs; only --trust-checkpoint lets it."""
    import torch

    root = repository(tmp_path, inside="print('owned' in __import__('os').listdir('.'))")
    source = (root / "evaluate.py").read_text()
    loading = "model = Net()\n    torch.load('net.pth', weights_only=False)"
    (root / "evaluate.py").write_text(source.replace("model = Net()", loading))
    torch.save({"net": Malicious()}, root / "net.pth")
    for trusted in (False, True):
        scratch = tmp_path / f"scratch-{trusted}"
        scratch.mkdir()
        options = Options(trusted=trusted, limits=Limits(timeout=60))
        rewritten = {"evaluate.py": ["PS201"]}
        migration = Migration(scratch=scratch, surveyed=survey(root), options=options, stages=Stages(None), rewritten=rewritten)
        migration.fresh_tree("copy")
        originals = run_originals(migration, None)
        assert not (root / "owned").exists()
        if trusted:
            assert originals.runs["evaluate.py"].run.done.stdout.startswith("True\n")
        else:
            assert originals.runs == {}
            assert "eights" in originals.why_not["evaluate.py"], originals.why_not


class Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return open, ("owned", "w")


CHOOSING = """
import argparse
import torch
import model as models

names = sorted(name for name in dir(models) if name.startswith({first!r}))
parser = argparse.ArgumentParser()
parser.add_argument("--arch", default={default!r}, choices=names)


def main():
    args = parser.parse_args()
    net = getattr(models, args.arch)()
    net.eval()
    loader = [(torch.rand(5, 3, 16, 16), torch.arange(5) % 4) for _ in range(2)]
    with torch.no_grad():
        for images, targets in loader:
            outputs = net(images)
            print(args.arch, (outputs.argmax(1) == targets).sum().item())


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_scripts_run_with_the_chosen_model_where_they_know_it(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root / "model.py").write_text(MODEL + "\n\nclass Net2(Net):\n    pass\n\n\ndef wide():\n    return Net()\n")
    (root / "evaluate.py").write_text(CHOOSING.format(first="Net", default="Net"))
    (root / "other.py").write_text(CHOOSING.format(first="w", default="wide"))
    report = headrace.migrate(
        root,
        out=tmp_path / "out",
        entry="evaluate.py",
        model="Net2",
        input_size=(3, 16, 16),
        precision="fp32",
        tuning_seconds=1,
    )
    assert {script.path: (script.executed, script.why) for script in report.scripts} == {
        "evaluate.py": ("passed", None),
        "other.py": ("passed", None),
    }


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has a GPU")
def test_a_plan_for_a_device_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    options = {"input_size": (3, 16, 16), "precision": "fp32", "tuning_seconds": 1, "verify": False, "random_weights": True}
    report = headrace.migrate(repository(tmp_path), out=tmp_path / "out", device="cuda", **options)
    (finding,) = [one for one in report.findings if "CUDA" in one.message]
    assert "torch finds no usable CUDA device on this machine" in finding.message
    assert report.models[0].artifact is None
