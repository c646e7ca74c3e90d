"""A stage in an empty repository, with the patches of its edges taken back after each test; and whole rehearsals."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.migrate.proving.rehearsal_protocol import Rehearsal, RehearsalReport
from headrace.migrate.worker.rehearsal import Stage
from headrace.migrate.worker.rehearsal.imports import watched_imports
from headrace.migrate.worker.rehearsal.source import compiler


@dataclass
class Done:
    report: RehearsalReport
    stdout: str
    stderr: str
    status: int
    root: Path

    def standins(self, edge):
        return [item for item in self.report.standins if item.edge == edge]


COUNTED = """
import sys
from headrace.migrate.worker.rehearsal import Rehearsal
from headrace.migrate.worker.rehearsal.rehearse import rehearse
rehearse(Rehearsal.from_json(open(sys.argv[1]).read()), seen=lambda: hasattr(sys.modules["__main__"], "done"))
"""


@pytest.fixture
def rehearsed(tmp_path, warm_python):
    """Write the files, rehearse the script in a process of its own, and give what came of it. One that is `counted` has
    done what it is rehearsed for once it has a name `done`.

    The process is a fork of one that has torch imported; as the migrator starts it, it is in stages/test_rehearse_model.py.
    """

    def run(files, *argv, script="main.py", made=None, counted=False, **fields):
        root = tmp_path / "repository"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        report = tmp_path / "report.json"
        request = Rehearsal(
            root=str(root), script=script, argv=argv, made=str(made or tmp_path / "made"), report=str(report), **fields
        )
        (tmp_path / "request.json").write_text(request.to_json())
        environment = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        (tmp_path / "home").mkdir(exist_ok=True)
        environment |= {"HOME": str(tmp_path / "home"), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
        (tmp_path / "counted.py").write_text(COUNTED)
        module = [tmp_path / "counted.py"] if counted else ["-m", "headrace.migrate.worker.rehearsal"]
        command = [*module, tmp_path / "request.json"]
        done = warm_python(command, cwd=tmp_path, env=environment)
        assert report.exists(), done.stderr
        return Done(RehearsalReport.from_json(report.read_text()), done.stdout, done.stderr, done.returncode, root)

    return run


@dataclass
class Set:
    """A stage, and `play(text)`: the names of a user's script that was run on it in this process."""

    stage: Stage
    root: Path

    def play(self, text, name="main.py"):
        path = self.root / name
        path.write_text(text)
        names = {"__name__": "__main__", "__file__": str(path)}
        exec(compiler(self.stage)(path.read_bytes(), str(path)), names)
        return names

    def stopped(self, text):
        """What stopped such a script."""
        with pytest.raises((Exception, SystemExit)) as caught:
            self.play(text)
        return caught.value

    def said(self, edge):
        return [item.what for item in self.stage.standins if item.edge == edge]


@pytest.fixture
def on_stage(tmp_path, monkeypatch):
    """`on_stage(edge, ...)`: these edges' stand-ins hold until the test ends."""
    with contextlib.ExitStack() as stack:

        def enter(*edges, learned=None, files=None, **fields):
            root = tmp_path / "repository"
            root.mkdir()
            for name, text in (files or {}).items():
                (root / name).write_text(text)
            made = tmp_path / "made"
            made.mkdir()
            (made / "learned.json").write_text(json.dumps(learned or {}))
            stage = Stage(Rehearsal(root=str(root), script="main.py", made=str(made), **fields))
            monkeypatch.chdir(root)
            stack.enter_context(stage.patched())
            stack.enter_context(watched_imports(stage.imports, stage.root, compiler(stage)))
            for edge in edges:
                stack.enter_context(edge.stand_in(stage))
            return Set(stage, root)

        yield enter
