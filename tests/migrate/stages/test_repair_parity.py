"""Repaired sources against the sources as they came: built with the same weights, compared, refused where they differ."""

import dataclasses

import numpy as np
import pytest

from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import Change, rewrite_all
from headrace.migrate.stages.all_models import package_all
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.repair_parity import _difference, compare_with_unrepaired
from headrace.migrate.stages.scripts.originals import Originals
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

SWIN = """
import torch
from torch import nn
from torch.autograd import Variable


def window_partition(x, window_size):
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)


def window_reverse(windows, window_size, H, W):
    B = int(windows.shape[0] / (H * W / window_size / window_size))
    x = windows.view(B, H // window_size, W // window_size, window_size, window_size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class Block(nn.Module):
    def __init__(self, dim, window, shift):
        super().__init__()
        self.window, self.shift = window, shift
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, H, W, C = x.shape
        shifted = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        windows = window_partition(shifted, self.window).view(-1, self.window**2, C)
        q, k, v = self.qkv(windows).chunk(3, -1)
        windows = self.proj((q @ k.transpose(1, 2) / C**0.5).softmax(-1) @ v)
        merged = window_reverse(windows.view(-1, self.window, self.window, C), self.window, H, W)
        return x + torch.roll(merged, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(Block(8, 4, 0), Block(8, 4, 2))
        self.head = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.embed(Variable(x)).permute(0, 2, 3, 1)
        return self.head(self.blocks(x).mean((1, 2)))
"""
SCRIPT = """
import torch
from swin import Swin


def main():
    torch.manual_seed(0)
    model = Swin()
    model.eval()
    loader = [(torch.rand(5, 3, 32, 32), torch.arange(5)) for _ in range(2)]
    with torch.no_grad():
        for images, targets in loader:
            print(model(images).shape)


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def migration(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    (root / "swin.py").write_text(SWIN)
    (root / "main.py").write_text(SCRIPT)
    unrepaired = survey(root)
    rewritten = rewrite_all(unrepaired)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = Options(input_size=(3, 32, 32), tuning_seconds=0.2, random_weights=True)
    with Stages(None) as stages:
        yield Migration(
            scratch=scratch,
            surveyed=rewritten.survey,
            options=options,
            stages=stages,
            repairs=rewritten.repairs,
            unrepaired=resolve(unrepaired),
        )


@pytest.mark.slow
def test_a_repaired_swin_is_packaged_and_computes_what_it_did(migration):
    (repair,) = migration.repairs
    assert repair.rules == ["PS110", "PS801"]
    migration.fresh_tree()
    assert b"int(windows" not in (migration.tree / "swin.py").read_bytes()
    resolved = dataclasses.replace(resolve(migration.surveyed), loop=None)
    (outcome,) = package_all(migration, [resolved], Originals(), "models")
    assert outcome.packaged, migration.findings
    model = outcome.model
    assert (model.captured, model.parity.status, model.served) == (True, "passed", True)
    assert {1, 2, 5} <= set(model.parity.batches)
    (finding,) = [finding for finding in migration.findings if finding.code == "PS512"]
    assert "computes what it did: max abs 0" in finding.message


def test_a_repair_that_changes_the_model_is_refused(migration):
    (repair,) = migration.repairs
    wrong = repair.after.replace(b"x + torch.roll(", b"x - torch.roll(")
    assert wrong != repair.after
    migration = dataclasses.replace(migration, repairs=[Change(repair.path, repair.before, wrong, repair.rules, [])])
    migration.fresh_tree()
    recipe = resolve(migration.surveyed).recipe.in_copy(migration.tree)
    found = compare_with_unrepaired(migration, "Swin", recipe, (3, 32, 32), fresh=True)
    assert "the model differs" in (found.differs or "")
    assert [finding.code for finding in migration.findings if finding.severity == "error"] == ["PS513"]


def test_a_repaired_model_that_cannot_be_built_is_not_said_to_differ(migration):
    (repair,) = migration.repairs
    wrong = repair.after.replace(b"from torch import nn", b"from torch import nn, gone")
    migration = dataclasses.replace(migration, repairs=[Change(repair.path, repair.before, wrong, repair.rules, [])])
    migration.fresh_tree()
    recipe = resolve(migration.surveyed).recipe.in_copy(migration.tree)
    found = compare_with_unrepaired(migration, "Swin", recipe, (3, 32, 32), fresh=True)
    assert "the repaired one cannot: " in (found.differs or "")
    assert "differs" not in found.differs
    assert [finding.code for finding in migration.findings if finding.severity == "error"] == ["PS513"]


def test_a_model_that_builds_only_once_tells_nothing_of_the_repairs(migration):
    """Files that one run leaves and the next does not find are no difference that a repair makes."""
    cache = migration.scratch / "cache"
    cache.mkdir(exist_ok=True)
    source = migration.surveyed.root / "swin.py"
    source.write_text(f"import os\nos.mkdir({str(cache / 'once')!r})\n" + SWIN)
    found = rewrite_all(survey(migration.surveyed.root))
    migration = dataclasses.replace(migration, surveyed=found.survey, repairs=found.repairs, unrepaired=None)
    migration.fresh_tree()
    recipe = resolve(migration.surveyed).recipe.in_copy(migration.tree)
    assert compare_with_unrepaired(migration, "Swin", recipe, (3, 32, 32), fresh=True).differs is None
    assert "built once and not again" in migration.findings[-1].message


def test_where_the_original_does_not_build_the_report_says_so(migration):
    (migration.surveyed.root / "swin.py").write_text(SWIN.replace("from torch.autograd", "from torch.gone"))
    migration.fresh_tree()
    recipe = resolve(migration.surveyed).recipe.in_copy(migration.tree)
    assert compare_with_unrepaired(migration, "Swin", recipe, (3, 32, 32), fresh=True).differs is None
    (finding,) = [finding for finding in migration.findings if finding.code == "PS512"]
    assert "could not be checked" in finding.message
    assert "torch.gone" in finding.message


def test_a_repaired_script_is_compared_with_its_own_construction(migration):
    """Where the script that builds the model was repaired, the recipe of the repaired one would compare it with itself."""
    repairs = [*migration.repairs, Change("main.py", SCRIPT.encode(), SCRIPT.encode() + b"\n", ["PS101"], [])]
    migration = dataclasses.replace(migration, repairs=repairs, unrepaired=None)
    migration.fresh_tree()
    recipe = resolve(migration.surveyed).recipe.in_copy(migration.tree)
    assert compare_with_unrepaired(migration, "Swin", recipe, (3, 32, 32), fresh=True).differs is None
    assert "cannot be read from the script" in migration.findings[-1].message


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, np.inf], [1.0, np.inf], True),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.inf], [1.0, np.nan], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, np.inf], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
    ],
)
def test_what_is_not_finite_must_be_the_same(tmp_path, one, other, same):
    paths = [tmp_path / "one.npz", tmp_path / "other.npz"]
    for path, values in zip(paths, (one, other), strict=True):
        np.savez(path, scores=np.array(values))
    assert (_difference(*paths) == 0.0) is same
