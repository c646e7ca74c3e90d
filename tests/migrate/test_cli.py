"""The migrator's commands as a user meets them: flags, formats, exit bits, in place and back, killed at any moment."""

import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest

from headrace.runtime.base.session import visible_gpus
from tests.warm_python import FORKED

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""
SCRIPT = """
import torch
from model import Net

torch.manual_seed(0)
net = Net()
net.eval()
loader = [(torch.rand(5, 3, 2, 2), torch.arange(5) % 3)]
with torch.no_grad():
    for images, targets in loader:
        outputs = net(images)
        print("correct", (outputs.argmax(1) == targets).sum().item())
"""
PREDICT = """
import torch
from model import Net

model = Net()
model.eval()


def predict(image):
    with torch.no_grad():
        return model(image).argmax(1)


if __name__ == "__main__":
    print(predict(torch.rand(1, 3, 2, 2)).shape)
"""


@pytest.fixture
def headrace(warm_headrace):
    return warm_headrace


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in (("model", MODEL), ("evaluate", SCRIPT), ("predict", PREDICT)):
        (root / f"{name}.py").write_text(text)
    return root


def tree(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def codes(done):
    return {finding["code"] for finding in json.loads(done.stdout)["findings"]}


def test_check_exits_1_where_something_would_change_and_writes_nothing(headrace, root):
    before = tree(root)
    done = headrace("migrate", root, "--check", "--entry", "evaluate.py")
    assert done.returncode == 1, done.stderr
    assert "+    import headrace" in done.stdout or "+import headrace" in done.stdout
    assert tree(root) == before


def test_select_and_ignore_are_comma_separated_and_repeatable(headrace, root):
    base = ["migrate", root, "--check", "--entry", "evaluate.py", "--format", "json"]
    assert {"PS201", "PS202"} <= codes(headrace(*base))
    assert "PS202" not in codes(headrace(*base, "--select", "PS201"))
    assert {"PS201", "PS202"} <= codes(headrace(*base, "--select", "PS201,PS202"))
    assert not {"PS201", "PS202"} & codes(headrace(*base, "--ignore", "PS201", "--ignore", "PS202"))
    done = headrace(*base, "--select", "PS201,XX9")
    assert done.returncode == 2
    assert "'XX9'" in done.stderr
    (root / "pyproject.toml").write_text('[tool.headrace]\nignore = ["PS202"]\n')
    assert "PS202" not in codes(headrace(*base))


def test_unsafe_makes_what_is_only_offered(headrace, root):
    (root / "model.py").write_text(MODEL.replace("nn.Linear(12, num_classes)", "nn.Sequential(nn.Dropout(), nn.Linear(12, 3))"))
    (root / "evaluate.py").write_text(SCRIPT.replace("net.eval()\n", ""))
    base = ["migrate", root, "--check", "--entry", "evaluate.py", "--select", "PS201", "--format", "json"]
    assert [item["fix"] for item in json.loads(headrace(*base).stdout)["findings"] if item["code"] == "PS201"] == ["unsafe"]
    unsafe = json.loads(headrace(*base, "--unsafe").stdout)
    assert [item["fix"] for item in unsafe["findings"] if item["code"] == "PS201"] == ["applied"]


def test_exit_bits_add_up(headrace, root):
    (root / "broken.py").write_text("def f(:\n")
    done = headrace("migrate", root, "--check", "--entry", "evaluate.py", "--format", "json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["exit_status"] == 3


@pytest.mark.slow
def test_parity_that_failed_is_bit_4_and_nothing_is_written_in_place(headrace, root):
    # This script prints something else as soon as a graph runs in it, which no rewriting could help.
    (root / "evaluate.py").write_text(SCRIPT + '\nimport sys\nprint("headrace" in sys.modules)\n')
    before = tree(root)
    options = ["--entry", "evaluate.py", "--input-size", "3,2,2", "--precision", "fp32", "--select", "PS201"]
    options += ["--random-weights"]
    done = headrace("migrate", root, "--write", *options, "--report", root.parent / "r.md")
    assert done.returncode & 4, done.stdout + done.stderr
    assert done.returncode & 2
    assert "Nothing was written in place, because the migrated form of evaluate.py" in " ".join(done.stdout.split())
    assert tree(root) == before
    assert "Not written in place" in (root.parent / "r.md").read_text()


@pytest.mark.slow  # writing and undoing: stages/test_in_place and test_journal; the reports: reporting/
def test_write_and_undo_with_every_report(headrace, root, tmp_path):
    before = tree(root)
    options = ["--entry", "evaluate.py", "--input-size", "3,2,2", "--precision", "fp32", "--select", "PS201"]
    options += ["--random-weights"]
    done = headrace("migrate", root, "--write", *options, "--format", "sarif", "--report", tmp_path / "report.md")
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["version"] == "2.1.0"
    page = (tmp_path / "report.md").read_text()
    assert "1 file changed in place" in page
    assert "## Same answers" in page, "the outputs of both runs are compared"
    assert "headrace.compile(net)" in (root / "evaluate.py").read_text()
    model = json.loads((root / ".headrace/models/Net/1/headrace.json").read_text())
    assert model["parity"]["status"] == "passed"
    again = headrace("migrate", root, "--check", "--entry", "evaluate.py", "--select", "PS201", "--format", "json")
    assert "PS201" not in codes(again), "a second run has nothing to do"
    changed = (root / "evaluate.py").read_bytes()
    (root / "evaluate.py").write_bytes(changed + b"# mine\n")
    refused = headrace("undo", root)
    assert refused.returncode == 2
    assert "evaluate.py" in refused.stderr
    (root / "evaluate.py").write_bytes(changed)
    undone = headrace("undo", root)
    assert undone.returncode == 0, undone.stderr
    assert undone.stdout == "restored evaluate.py\n"
    assert tree(root) == before


# At every moment of a write it is killed in stages/test_journal.
@pytest.mark.slow
def test_killed_while_it_runs_the_tree_is_old_or_new(headrace, warm_torch, root):
    before = tree(root)
    after = None
    rng = random.Random(0)
    command = ["-P", FORKED, "migrate", str(root), "--write", "--no-verify", "--entry", "evaluate.py"]
    command += ["--input-size", "3,2,2", "--precision", "fp32", "--select", "PS201"]
    scratch = root.parent / "scratch"  # what is killed leaves it
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    for sent in (signal.SIGKILL, signal.SIGINT) * 2:
        process = warm_torch.popen(
            command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True,
            shares=True,
        )  # fmt: skip
        time.sleep(rng.uniform(0.2, 2.5))
        process.send_signal(sent)
        process.wait(120)
        now = {path: data for path, data in tree(root).items() if not path.startswith(".headrace/")}
        assert now.keys() == before.keys()
        changed = [path for path in now if now[path] != before[path]]
        assert changed in ([], ["evaluate.py"])
        if changed:
            after = now
            assert headrace("undo", root).returncode == 0
            assert tree(root) == before
    assert after is None or b"headrace.compile" in after["evaluate.py"]


# One handler hears both.
@pytest.mark.parametrize("ended_by", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_ended_in_order_it_leaves_no_temporary_files(root, ended_by):
    scratch = root.parent / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "headrace", "migrate", str(root), "--entry", "evaluate.py", "--input-size", "3,2,2"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        end = time.monotonic() + 120
        while not any(scratch.glob("headrace-*/*/repository")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert process.poll() is None
        process.send_signal(ended_by)
        assert process.wait(120) == 128 + ended_by
    finally:
        process.kill()
    assert list(scratch.glob("headrace-*")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "copy", "--write"], "--out"),
        (["--check", "--write"], "--write"),
        (["--format", "xml"], "text, json or sarif"),
        (["--report", "nowhere/r.md"], "nowhere"),
        (["--rules", "nowhere.py"], "no such file"),
        (["--device", "tpu"], "auto, cpu or cuda"),
        (["--max-tuning-seconds", "0"], "more than 0"),
        pytest.param(
            ["--device", "cuda"],
            "no NVIDIA GPU for --device cuda",
            marks=pytest.mark.skipif(visible_gpus() > 0, reason="this machine has a GPU"),
        ),
    ],
)
def test_mistakes_get_a_message_and_status_2(headrace, root, options, message):
    done = headrace("migrate", root, *options, cwd=root.parent)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_undo_where_nothing_was_written(headrace, root):
    done = headrace("undo", root)
    assert done.returncode == 2
    assert "nothing to undo" in done.stderr


def test_help_names_every_flag(headrace):
    shown = headrace("migrate", "--help").stdout
    for flag in (
        "--out", "--write", "--check", "--select", "--ignore", "--unsafe", "--no-verify", "--format", "--report", "--entry",
        "--model", "--input-size", "--checkpoint", "--random-weights", "--data", "--trust-checkpoint", "--rules",
        "--trust-rules",
    ):  # fmt: skip
        assert flag in shown, flag
    for words in ("sarif", "1 findings", "2 errors", "4 parity failed", "pyproject.toml"):
        assert words in " ".join(shown.split()), words


def test_rules_are_listed_shown_and_tested(headrace, tmp_path):
    listed = headrace("rules")
    assert listed.returncode == 0
    assert "PS201" in listed.stdout
    page = headrace("rules", "PS201").stdout
    assert page.startswith("# PS201 evaluation-loop")
    assert "```diff" in page
    unknown = headrace("rules", "XX1")
    assert unknown.returncode == 2
    assert "headrace rules lists them" in unknown.stderr
    (tmp_path / "mine.py").write_text("x = 1\n")
    refused = headrace("rules", "--test", tmp_path / "mine.py")
    assert refused.returncode == 2
    assert "holds no rule" in refused.stderr


OTHER = SCRIPT.replace("import Net", "import Wide").replace("Net()", "Wide()")


def test_a_preview_shows_what_does_not_depend_on_a_wrong_choice(forked_headrace, root):
    headrace = forked_headrace
    (root / "model.py").write_text(MODEL + MODEL.replace("Net", "Wide"))
    (root / "other.py").write_text(OTHER)
    (root / "predict.py").unlink()
    done = headrace("migrate", root, "--model", "Gone")
    assert done.returncode == 3
    assert "+import headrace" in done.stdout
    assert "choose one with --model:\n  --model Net\n  --model Wide" in done.stderr
    report = json.loads(headrace("migrate", root, "--model", "Gone", "--check", "--format", "json").stdout)
    assert report["exit_status"] == 3
    assert {model["name"] for model in report["models"]} == {"Net", "Wide"}
    assert any(finding["code"] == "PS500" and "Net, Wide" in finding["message"] for finding in report["findings"])
    written = headrace("migrate", root, "--model", "Gone", "--out", root.parent / "out")
    assert (written.returncode, "+import headrace" in written.stdout) == (3, False)
    assert "Nothing was written, because there is a choice to make." in written.stdout
    assert not (root.parent / "out").exists()


def test_a_choice_in_the_middle_of_a_run_does_not_hide_what_was_found_before_it(forked_headrace, root):
    """Why there is a choice at all: the script that would have shown the size stopped, since a submodule is not checked out."""
    (root / ".gitmodules").write_text('[submodule "engine"]\n\tpath = engine\n\turl = https://example.org/engine.git\n')
    (root / "model.py").write_text(MODEL.replace("nn.Linear(12", "nn.Linear(3").replace("x.flatten(1)", "x.mean((2, 3))"))
    (root / "predict.py").unlink()
    (root / "evaluate.py").write_text("import model\nraise RuntimeError('no engine')\n")
    options = ["--out", root.parent / "out", "--model", "Net", "--random-weights", "--format", "json"]
    done = forked_headrace("migrate", root, *options)
    found = {finding["code"]: finding["message"] for finding in json.loads(done.stdout)["findings"]}
    assert "git submodule update" in found["PS017"]
    assert "several sizes" in found["PS500"]
    assert "--input-size 3,224,224" in done.stderr
    assert done.returncode == 3
    assert not (root.parent / "out").exists()


def test_the_printed_diff_is_a_patch(headrace, root):
    long = '    note = "' + "a line that no terminal is wide enough to show whole, " * 4 + '"   \n'
    (root / "evaluate.py").write_text(SCRIPT.replace("    for images", f"{long}    for images"))
    patch = headrace("migrate", root, "--check", "--entry", "evaluate.py").stdout.partition("How the model is built")[0]
    assert " " + long in patch
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=root, check=True)
    assert "graph = headrace.compile(net)" in (root / "evaluate.py").read_text()


def test_the_command_to_go_on_with_asks_for_the_same(headrace, root):
    spaced = root.rename(root.parent / "my own repository")
    asked = [
        "--entry",
        "evaluate.py --epochs 1",
        "--random-weights",
        "--select",
        "PS2,PS1",
        "--select",
        "PS3",
        "--budget",
        "0.5",
    ]
    last = headrace("migrate", spaced, *asked, "--check").stdout.splitlines()[-1]
    command = last.removeprefix("Nothing was written.").removesuffix("writes the migrated copy with its models").strip()
    program, name, place, *options = shlex.split(command)
    assert (program, name, place, options[-2:]) == ("headrace", "migrate", str(spaced), ["--out", "DIR"])
    pairs = {("--entry", "evaluate.py --epochs 1"), ("--select", "PS2,PS1"), ("--select", "PS3"), ("--budget", "0.5")}
    assert pairs <= set(itertools.pairwise(options))
    assert "--random-weights" in options
    assert len(options) == len(asked) + 2
