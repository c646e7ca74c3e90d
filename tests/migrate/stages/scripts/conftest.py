"""A repository of which one script lacks all it needs, and migrations."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.rewriting.rewrite import rewrite_all
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.scripts.originals import Originals, run_originals
from headrace.migrate.survey.survey import survey

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
SCRIPT = """
import argparse
import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from model import Net


class Photos(Dataset):
    def __init__(self, root):
        self.items = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(sorted(os.listdir(root)))
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        image = Image.open(path).convert("RGB").resize((32, 32))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="the folder of the photos")
    parser.add_argument("--checkpoint", required=True)
    args = parser.parse_args()
    loader = DataLoader(Photos(args.data), batch_size=64, num_workers=2, pin_memory=True)
    model = Net().cuda()
    model.load_state_dict(torch.load(args.checkpoint)["state_dict"])
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            outputs = model(images.cuda())
            correct += (outputs.argmax(1) == labels.cuda()).sum().item()
            total += len(labels)
    print(f"accuracy {100 * correct / total:.2f} of {total}")


if __name__ == "__main__":
    main()
"""


def migration_in(scratch: Path, root: Path, **options) -> tuple[Migration, list]:
    scratch.mkdir()
    surveyed = survey(root)
    rewritten = rewrite_all(surveyed, rules=all_rules(), unsafe=False)
    changed = [change for change in rewritten.changes if change.changed]
    rules = {change.path: change.rules for change in changed}
    assert rules
    migration = Migration(
        scratch=scratch, surveyed=rewritten.survey, stages=Stages(None), rewritten=rules,
        options=Options(limits=Limits(timeout=240), **options),
    )  # fmt: skip
    migration.fresh_tree("copy")
    return migration, list(rewritten.changes)


@pytest.fixture
def migration_of(tmp_path: Path) -> Callable[..., tuple[Migration, list]]:
    """`migration_of(root, **options)`: a migration of a repository that rules change, and its changes."""
    return partial(migration_in, tmp_path / "scratch")


def repository_in(folder: Path) -> Path:
    root = folder / "thing"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text(SCRIPT)
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return repository_in(tmp_path)


Ran = tuple[Migration, list, Originals]


@pytest.fixture(scope="module")
def ran_with(tmp_path_factory: pytest.TempPathFactory, warm_sandbox: None) -> Callable[..., Ran]:
    """`ran_with((old, new), ...)`: a migration of `repository` whose script has these edits, its changes, and the scripts as
    they ran: once for all tests of a file."""

    @cache
    def run_before(*edits: tuple[str, str]) -> Ran:
        folder = tmp_path_factory.mktemp("ran")
        root = repository_in(folder)
        for old, new in edits:
            text = (root / "evaluate.py").read_text()
            assert old in text
            (root / "evaluate.py").write_text(text.replace(old, new))
        migration, changes = migration_in(folder / "scratch", root)
        return migration, changes, run_originals(migration, None)

    def ran(*edits: tuple[str, str]) -> Ran:
        migration, changes, originals = run_before(*edits)
        return replace(migration, findings=list(migration.findings)), changes, originals

    return ran


@pytest.fixture
def ran(ran_with: Callable[..., Ran]) -> Ran:
    return ran_with()


@pytest.fixture
def model_text() -> str:
    return MODEL
