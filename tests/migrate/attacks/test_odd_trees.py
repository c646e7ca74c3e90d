"""Trees as no editor makes them: pipes and devices for files, names that are no text, links in loops, files that go away."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.migrate.stages.copy_tree import copy_tree
from headrace.scratch import remove_tree
from tests.warm_python import WarmPython

EVALUATE = b"""import torch
from net import Net

net = Net()
net.load_state_dict(torch.load("net.pt"))
net.eval()
with torch.no_grad():
    for images, labels in loader:
        print(net(images).argmax(1) == labels)
"""
NET = b"""import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3072, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""
# Every name by which something is read that is no source.
READ = (
    "README.md", "pyproject.toml", "setup.py", "setup.cfg", ".gitmodules", ".gitattributes", ".vscode/launch.json", "run.sh",
    "config.yaml", "config.json", "MAR-INF/MANIFEST.json", "docs/usage.rst", "note.ipynb", "net.pt", "labels.txt", "more.py",
)  # fmt: skip
ODD = (
    b"caf\xe9.py", b"new\nline.py", b"bell\x07\x1b[31mred.py", b"\x1b]0;title\x07.py", b"rtl\xe2\x80\xaefdp.py", b"-rf.py",
    b"[bold]x.py", b"quote\'\".py", b"back\\slash.py", b"a b.py", b"tab\t.py", b"c1\xc2\x9b31m.py", b"folder\xff/\xf0.py",
)  # fmt: skip

BOUNDED = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32)); from headrace.cli import main; main()"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "evaluate.py").write_bytes(EVALUATE)
    (root / "net.py").write_bytes(NET)
    return root


def checked(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`headrace migrate --check` in a process that may be ended, where it waits for a pipe, and takes no more than 4 GiB."""
    return subprocess.run(
        [sys.executable, "-c", BOUNDED, "migrate", str(root), "--check", *options],
        capture_output=True, text=True, check=False, timeout=200, errors="surrogateescape",
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "socket", "zeros", "sparse", "loop"])
def test_nothing_is_waited_for_or_read_without_end(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch, warm_commands: WarmPython
) -> None:
    for name in READ:
        place = root / name
        place.parent.mkdir(exist_ok=True)
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "socket":
            monkeypatch.chdir(place.parent)  # a socket's path is short
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(place.name)
        elif kind == "sparse":
            with place.open("wb") as file:
                file.truncate(2**36)
        else:
            place.symlink_to("/dev/zero" if kind == "zeros" else place.name)
    done = warm_commands.python(["-c", BOUNDED, "migrate", root, "--check", "--format", "json"], cwd=root, timeout=200)
    assert done.returncode in (1, 3), done.stderr
    assert json.loads(done.stdout)["scripts"][0]["path"] == "evaluate.py"


def test_the_copy_holds_nothing_that_could_be_waited_for(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "pipe.py")
    for name, target in (
        ("zeros.pt", "/dev/zero"),
        ("led.py", "pipe.py"),
        ("none", "nowhere"),
        ("self", "self"),
        ("etc", "/etc"),
    ):
        (root / name).symlink_to(target)
    done = copy_tree(root, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path / "copy")) == ["etc", "evaluate.py", "net.py", "none", "self"]
    assert sorted(done.left_out) == ["led.py", "pipe.py", "zeros.pt"]


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_names_that_are_no_text_are_told_and_steer_nothing(root: Path, tmp_path: Path, form: str) -> None:
    for name in ODD:
        place = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(EVALUATE)
    done = checked(root, "--format", form, "--report", str(tmp_path / "report.md"))
    assert done.returncode in (1, 3), done.stderr
    for said in (done.stdout, done.stderr, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert not [c for c in said if (c < " " and c not in "\t\n") or "\x7f" <= c < "\xa0" or c in "\u202e\u2028"], said
    if form == "json":
        told = {one["path"] for one in json.loads(done.stdout)["scripts"]}
        assert {"caf\udce9.py", "folder\udcff/\udcf0.py", "new\nline.py"} <= told


def test_what_goes_away_while_it_is_copied_is_left_out(root: Path, tmp_path: Path) -> None:
    """As the temporary files of a training that runs there."""
    over = threading.Event()

    def comes_and_goes() -> None:
        while not over.is_set():
            for number in range(50):
                folder = root / f"run{number}"
                folder.mkdir()
                (folder / "log").write_text("x")
            for number in range(50):
                (root / f"run{number}" / "log").unlink()
                (root / f"run{number}").rmdir()

    thread = threading.Thread(target=comes_and_goes)
    thread.start()
    try:
        for number in range(20):
            copy_tree(root, tmp_path / f"copy{number}")
            assert (tmp_path / f"copy{number}" / "evaluate.py").read_bytes() == EVALUATE
    finally:
        over.set()
        thread.join()


def test_a_tree_deeper_than_python_recurses(root: Path, tmp_path: Path, warm_commands: WarmPython) -> None:
    deep, limit = str(root), sys.getrecursionlimit()
    for _ in range(450):
        deep += "/d"
        os.mkdir(deep)
    Path(deep, "deep.py").write_bytes(EVALUATE)
    code = f"import sys; sys.setrecursionlimit(400); {BOUNDED}"
    try:
        done = warm_commands.python(["-c", code, "migrate", root, "--check"], cwd=root, timeout=200)
        assert done.returncode in (1, 3), done.stderr
        sys.setrecursionlimit(400)
        copy_tree(root, tmp_path / "copy")
        assert (tmp_path / "copy" / "evaluate.py").read_bytes() == EVALUATE
        assert os.path.isfile(deep.replace(str(root), str(tmp_path / "copy"), 1) + "/deep.py")
    finally:  # pytest's own removal recurses
        remove_tree(root)
        remove_tree(tmp_path / "copy")
        sys.setrecursionlimit(limit)
