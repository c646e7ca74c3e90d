"""What runs a repository's code without walls does so by word only; what stands beside a compiled model is out of its reach."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.trust import REMEDY, VARIABLE
from tests.warm_python import WarmPython

SCRIPT = """
import torch
open(__file__ + ".ran", "w")
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    root.mkdir()
    (root / "evaluate.py").write_text(SCRIPT)
    return root


def kept() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def headrace(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, arguments)],
        cwd=cwd, env={**kept(), **environment}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.replace("│", " ").split())


def test_a_script_is_run_as_python_would_by_word_only(clone: Path) -> None:
    done = headrace("run", "evaluate.py", cwd=clone)
    assert done.returncode == 2
    assert REMEDY in said(done)
    assert not (clone / "evaluate.py.ran").exists()
    (clone / "evaluate.py").write_text(SCRIPT.replace("import torch", "if 0:\n    import torch"))  # which takes long
    done = headrace("run", "evaluate.py", cwd=clone, **{VARIABLE: "1"})
    assert done.returncode == 0, done.stderr
    assert (clone / "evaluate.py.ran").exists()


@pytest.mark.parametrize("baseline", [True, False])
def test_the_original_is_measured_by_word_only(clone: Path, tmp_path: Path, baseline: bool) -> None:
    (clone / "evaluate.py").write_text(
        f"{SCRIPT}\nmodel = torch.nn.Linear(3, 2)\nmodel.eval()\nprint(model(torch.ones(1, 3)))\n"
    )
    (tmp_path / "models/net/1").mkdir(parents=True)
    (tmp_path / "models/net/1/headrace.json").write_text("{}")
    subject = [tmp_path / "models", "--baseline", clone] if baseline else [clone]
    done = headrace("bench", *subject, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2
    assert REMEDY in said(done)
    assert not (clone / "evaluate.py.ran").exists()


HOSTILE = """
import os, sys
for path in (sys.argv + {places!r}):
    try:
        open(path, "a").write("planted")
    except OSError:
        pass
os._exit(0)
"""


def test_code_that_is_compiled_reaches_no_other_model(tmp_path: Path, warm_torch: WarmPython) -> None:
    """The folder of --out may hold other models, and their configs say what runs them."""
    other = tmp_path / "models/other/config.pbtxt"
    other.parent.mkdir(parents=True)
    other.write_text('name: "other"\n')
    places = [str(other), str(tmp_path / "models/planted"), str(tmp_path / "models/other/1/model.py")]
    (tmp_path / "net.py").write_text(HOSTILE.format(places=places))
    done = warm_torch.python(["-m", "headrace", "compile", "net.py:model", "--out", "models"], cwd=tmp_path, env=kept())
    assert done.returncode == 2, done.stderr
    assert other.read_text() == 'name: "other"\n'
    assert sorted(path.name for path in (tmp_path / "models").rglob("*")) == ["config.pbtxt", "other"]
