"""`headrace run`: the same script, arguments, folder, prints and errors, with graphs, and no byte changed on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.migrate.stages.zero_edit_child import compiled

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 3)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""
ENGINE = """
import sys

import torch


def evaluate(model, loader):
    model.eval()
    correct = 0
    if "fail" in sys.argv:  # before any graph is made, so that this is quick
        raise KeyError("a wrong label")
    with torch.no_grad():
        for images, targets in loader:
            outputs = model(images)
            correct += (outputs.argmax(1) == targets).sum().item()
    return correct
"""
MAIN = """
import os
import sys

import torch
from engine import evaluate
from net import Net


def main():
    torch.manual_seed(0)
    model = Net()
    loader = [(torch.rand(5, 3, 2, 2), torch.arange(5) % 3) for _ in range(2)]
    print("correct", evaluate(model, loader))
    print(sys.argv, os.getcwd(), __name__, os.path.basename(__file__), sys.path[0])
    print(type(sys.modules["__main__"].main).__name__, sys.stdin.read())
    print("compiled" if "headrace" in sys.modules else "plain", file=sys.stderr)
    if "status" in sys.argv:
        sys.exit(7)


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "tools").mkdir(parents=True)
    for name, text in (("net", NET), ("engine", ENGINE), ("main", MAIN)):
        (root / "tools" / f"{name}.py").write_text(text)
    (root / "requirements.txt").write_text("torch\n")
    return root


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, input="typed", capture_output=True, text=True, check=False, timeout=240
    )


def test_runs_as_python_would_but_with_graphs(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    plain = python("tools/main.py", "--flag", "status", cwd=root)
    graphs = python("-m", "headrace", "run", "--trust-repository", "tools/main.py", "--flag", "status", cwd=root)
    assert (plain.returncode, graphs.returncode) == (7, 7)
    assert graphs.stdout == plain.stdout
    assert "correct" in plain.stdout
    assert plain.stderr.splitlines()[-1] == "plain"
    assert graphs.stderr.splitlines()[-1] == "compiled", graphs.stderr
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


# That lines are those of the old source stands below, that it runs as Python would above.
@pytest.mark.slow
def test_a_traceback_shows_the_users_lines(root: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    plain = warm_python([root / "tools/main.py", "fail"], cwd=root)
    graphs = python("-m", "headrace", "run", "--trust-repository", "tools/main.py", "fail", cwd=root)
    assert graphs.returncode == plain.returncode == 1
    assert f'engine.py", line {ENGINE[: ENGINE.index("raise")].count(chr(10)) + 1}, in evaluate' in plain.stderr
    said, wanted = (
        [line for line in done.stderr.splitlines() if set(line) - set(" ~^") and "warm_python" not in line]
        for done in (graphs, plain)
    )
    first = next(number for number, line in enumerate(wanted) if 'main.py"' in line)  # after those of the fork
    assert said == [wanted[0], *wanted[first:]]


def test_where_nothing_can_be_rewritten_it_says_why_and_runs(
    root: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    source = (root / "tools/engine.py").read_text().replace("model(images)", "model(images, scale=[sys.maxsize])")
    (root / "tools/engine.py").write_text(source)
    (root / "tools/net.py").write_text(NET.replace("self, x)", "self, x, scale=())"))
    done = warm_python(["-m", "headrace", "run", "--trust-repository", "tools/main.py"], cwd=root, stdin="typed")
    assert done.returncode == 0, done.stderr
    assert "correct" in done.stdout
    assert "runs as it stands, without graphs" in done.stderr
    assert "tools/engine.py:14:" in done.stderr
    assert done.stderr.splitlines()[-1] == "plain"


@pytest.mark.slow
def test_verify_compares_both(root: Path) -> None:
    done = python("-m", "headrace", "run", "--verify", "main.py", cwd=root / "tools")
    assert done.returncode == 0, done.stderr
    assert "agrees: 10 recorded outputs" in done.stderr
    assert "correct" in done.stdout


@pytest.mark.slow
def test_verify_tells_what_differs(root: Path) -> None:
    source = (root / "tools/main.py").read_text()
    (root / "tools/main.py").write_text(source.replace("__name__,", '__name__, "headrace" in sys.modules,'))
    done = python("-m", "headrace", "run", "--verify", "tools/main.py", cwd=root)
    assert done.returncode == 4, done.stderr
    assert "differs: it printed" in done.stderr


@pytest.mark.slow
def test_verify_says_that_a_model_cannot_be_captured(root: Path) -> None:
    leaves = "        if x.sum() > 0:\n            return self.fc(x.flatten(1))\n        return 2 * self.fc"
    (root / "tools/net.py").write_text(NET.replace("        return self.fc", leaves))
    done = python("-m", "headrace", "run", "--verify", "tools/main.py", cwd=root)
    assert done.returncode == 1, done.stderr
    assert "the model cannot be captured, so the script's calls stay eager: tools/net.py:12: PG120" in done.stderr


def test_a_missing_script(tmp_path: Path) -> None:
    done = python("-m", "headrace", "run", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such script" in done.stderr


BEFORE = textwrap.dedent("""\
    import os


    def f(model, x):
        y = model(x); z = 1
        return (
            y +
            None
        )
    """)
AFTER = BEFORE.replace("import os\n", "import headrace\nimport os\n").replace(
    "    y = model(x)", "    graph = headrace(model)\n    y = graph(x)"
)


def test_line_numbers_are_those_of_the_old_source() -> None:
    code = compiled(BEFORE, AFTER, "somewhere.py")
    (function,) = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    assert function.co_firstlineno == 4
    assert {line for _, _, line in function.co_lines() if line is not None} <= set(range(4, 10))
    namespace = {"headrace": lambda model: model}
    namespace["__builtins__"] = __builtins__
    exec(compiled(BEFORE, AFTER.replace("import headrace\n", "headrace = lambda model: model\n"), "somewhere.py"), namespace)
    try:
        namespace["f"](lambda x: x, 1)
    except TypeError as error:
        frames = traceback.extract_tb(error.__traceback__)
    assert (frames[-1].lineno, frames[-1].name) == (7, "f")


def test_every_place_of_the_new_source_has_a_line_of_the_old(tmp_path: Path) -> None:
    long = "\n".join(f"a{n} = [\n    {n},\n]" for n in range(50)) + "\n"
    more = long.replace("a10 = [", "b = 2\na10 = [").replace("a49", "c = 3; a49") + "d = 4\n"
    code = compiled(long, more, "x.py")
    lines = [line for _, _, line in code.co_lines() if line]
    assert max(lines) <= long.count("\n")
    namespace: dict = {}
    exec(code, namespace)
    assert (namespace["a49"], namespace["b"], namespace["c"], namespace["d"]) == ([49], 2, 3, 4)


@pytest.mark.parametrize("more", [[], ["--verify"]])
def test_a_notebook_is_refused_with_what_to_do(root: Path, more: list[str]) -> None:
    (root / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    done = python("-m", "headrace", "run", *more, "a.ipynb", cwd=root)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "a.ipynb is a notebook" in said
    assert "headrace migrate" in said
    assert "Traceback" not in done.stderr
