"""The loss trace: original and migrated script really run, in the sandbox, and a difference in training is found."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.proving.loss_trace import STEPS, compare_losses, note_losses, of_all_ranks, rewritten_loops
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.verify import run_training
from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

NET = """\
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.drop(self.conv(x).relu().mean((2, 3))))
"""
TRAIN = """\
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from net import Net


class Noise(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        flip = random.random() < 0.5
        rng = np.random.default_rng(index)
        image = torch.from_numpy(rng.standard_normal((3, 8, 8), dtype=np.float32))
        return image.flip(2) if flip else image, index % 3


def train(net, loader, criterion, optimizer, epoch):
    net.train()
    for images, labels in loader:
        out = net(images)
        loss = criterion(out, labels)
        optimizer.zero_grad()
        loss.backward()  # größe
        optimizer.step()
    print(epoch, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1000)
    args = parser.parse_args()
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    loader = DataLoader(Noise(), batch_size=8, shuffle=True)
    for epoch in range(args.epochs):
        train(net, loader, nn.CrossEntropyLoss(), optimizer, epoch)
    open("trained.txt", "w").close()


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "net.py").write_text(NET)
    (root / "train.py").write_text(TRAIN)
    return root


def traced(repository: Path, scratch: Path, source: str, *, migrated: bool, argv: tuple[str, ...] = ()):
    surveyed = survey(repository)
    (script,) = surveyed.scripts
    loops = rewritten_loops(surveyed, script)
    sandbox = Sandbox(scratch=scratch, limits=Limits(timeout=120))
    sandbox.tree.mkdir(parents=True)
    (sandbox.tree / "net.py").write_text(NET)
    (sandbox.tree / "train.py").write_text(source)
    run = run_training(script, argv, sandbox, loops, migrated=migrated)
    assert run.done.ok, run.done.why
    return run, loops, sandbox.tree


def test_both_forms_take_the_same_steps_and_are_stopped(repository: Path, tmp_path: Path) -> None:
    (change,) = rewrite(survey(repository))
    original, loops, tree = traced(repository, tmp_path / "a", TRAIN, migrated=False)
    migrated, _, _ = traced(repository, tmp_path / "b", change.after.decode(), migrated=True)
    assert [len(losses) for losses in original.losses.values()] == [STEPS]
    assert len(set(next(iter(original.losses.values())))) == STEPS
    found = compare_losses(original.losses, migrated.losses, loops)
    steps, worst, tolerance, wrong = found.steps, found.max_relative, found.tolerance, found.wrong
    assert (steps, tolerance, wrong) == (STEPS, 1e-5, None)
    assert worst <= tolerance
    assert not (tree / "trained.txt").exists()


@pytest.mark.parametrize("skips", ["", "        if loss.item() > 1.1:\n            continue\n"])
def test_a_round_that_ends_before_its_backward_pass_is_a_step_of_both_forms(repository: Path, skips: str) -> None:
    (repository / "train.py").write_text(TRAIN.replace("        loss.backward()", f"{skips}        loss.backward()"))
    surveyed = survey(repository)
    (change,) = rewrite(surveyed)
    assert b"train_step(" in change.after
    (loop,) = rewritten_loops(surveyed, surveyed.scripts[0])
    ((statement, loss),) = loop.places
    assert (ast.unparse(statement), loss) == ("loss = criterion(out, labels)" if skips else "loss.backward()", "loss")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("lr=0.01", "lr=0.02", marks=pytest.mark.slow),
        ("criterion, optimizer)\n    for", "lambda o, y: 2 * criterion(o, y), optimizer)\n    for"),
    ],
)
def test_a_migrated_form_that_trains_otherwise_is_found(repository: Path, tmp_path: Path, old: str, new: str) -> None:
    (change,) = rewrite(survey(repository))
    source = change.after.decode()
    assert old in source
    original, loops, _ = traced(repository, tmp_path / "a", TRAIN, migrated=False)
    migrated, _, _ = traced(repository, tmp_path / "b", source.replace(old, new), migrated=True)
    found = compare_losses(original.losses, migrated.losses, loops)
    worst, tolerance, wrong = found.max_relative, found.tolerance, found.wrong
    assert worst > tolerance
    assert "the loss of step" in (wrong or "")


def test_a_script_that_ends_before_is_compared_as_far_as_it_goes(repository: Path, tmp_path: Path) -> None:
    run, _, tree = traced(repository, tmp_path / "a", TRAIN, migrated=False, argv=("--epochs", "1"))
    assert [len(losses) for losses in run.losses.values()] == [5]
    assert (tree / "trained.txt").exists()


def test_missing_steps_and_values_that_are_not_finite() -> None:
    before = {"a:f:1": np.array([1.0, np.nan, np.inf, 2.0])}
    same = compare_losses(before, before, [])
    assert (same.max_relative, same.tolerance, same.wrong) == (0.0, 1e-5, None)
    assert "took 0 steps" in (compare_losses(before, {}, []).wrong or "")
    after = {"a:f:1": np.array([1.0, np.nan, np.inf, np.nan])}
    assert compare_losses(before, after, []).wrong == "the loss of step 4 is nan instead of 2"


def test_losses_of_several_ranks_are_those_of_all_rows() -> None:
    ranks = [{"a:f:1": np.array([1.0, 2.0])}, {"a:f:1": np.array([3.0, 4.0])}]
    losses, wrong = of_all_ranks(ranks, whole=False)
    assert (losses["a:f:1"].tolist(), wrong) == ([2.0, 3.0], None)
    _, wrong = of_all_ranks(ranks, whole=True)  # which should be the same on each
    assert wrong == "the loss of step 1 at a:f:1 is that of all ranks' rows, and is 1 on rank 0 and 3 on rank 1"
    alike = [{"a:f:1": np.array([1.0, np.nan])}] * 2
    assert of_all_ranks(alike, whole=True)[1] is None
    _, wrong = of_all_ranks([alike[0], {}], whole=False)
    assert wrong == "the ranks took different numbers of steps in a:f:1: 2 on rank 0, 0 on rank 1"


def test_no_line_moves(repository: Path) -> None:
    surveyed = survey(repository)
    note_losses(repository, rewritten_loops(surveyed, surveyed.scripts[0]), migrated=False)
    noted = (repository / "train.py").read_text().splitlines()
    assert len(noted) == len(TRAIN.splitlines())
    (line,) = [line for line in noted if "note_loss" in line]
    assert line.startswith("        loss.backward(); ")
    assert line.endswith("  # größe")


@pytest.mark.slow
def test_the_report_says_that_random_numbers_cannot_be_compared(repository: Path, tmp_path: Path) -> None:
    """A script that seeds itself from the clock proves nothing either way."""
    text = TRAIN.replace("    net = Net()\n", "    torch.manual_seed(__import__('time').time_ns() % 2**31)\n    net = Net()\n")
    (repository / "train.py").write_text(text)
    report = headrace.migrate(repository, out=tmp_path / "migrated", input_size=(3, 8, 8), precision="fp32", tuning_seconds=1)
    (script,) = report.scripts
    assert (script.rules, script.executed, script.loss_trace) == (["PS301"], "not-run", None)
    assert "two runs of the original" in (script.why or "")
