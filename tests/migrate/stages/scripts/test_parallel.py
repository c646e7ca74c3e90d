"""Scripts of many processes really run on two ranks, before and after, and a rewrite that is wrong is found by its losses."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from headrace.migrate.stages.scripts.migrated import run_migrated
from headrace.migrate.stages.scripts.originals import run_originals
from tests.migrate.rewriting.parallel.styles import DATA, NET, STYLES
from tests.migrate.stages.scripts.conftest import migration_in

pytestmark = [pytest.mark.usefixtures("warm_sandbox"), pytest.mark.timeout(900)]  # processes that wait for each other


@pytest.fixture(scope="module")
def parallel(tmp_path_factory, warm_sandbox):
    """`parallel(style)`: a migration of a repository with that script, its changes, and the originals, which run once."""

    @cache
    def ran(style):
        root = tmp_path_factory.mktemp(style) / style
        root.mkdir()
        (root / "net.py").write_text(NET)
        (root / "data.py").write_text(DATA)
        (root / "train.py").write_text(STYLES[style])
        migration, changes = migration_in(root.parent / "scratch", root)
        return migration, changes, run_originals(migration, None)

    def migrated(style):
        migration, changes, originals = ran(style)
        return replace(migration, findings=list(migration.findings)), changes, originals

    return migrated


# One that is launched gets by its arguments what torchrun says in the environment, one that spawns by the function's:
# worker/ranks/test_launch and worker/rehearsal/edges/test_processes tell them so.
@pytest.mark.parametrize(
    "style", [pytest.param(style, marks=pytest.mark.slow) if style in ("launched", "spawned") else style for style in STYLES]
)
def test_every_style_trains_on_two_ranks_as_it_did(parallel, style):
    migration, changes, originals = parallel(style)
    assert originals.why_not == {}
    original = originals.runs["train.py"]
    assert original.processes.ranks == (1 if style == "replicated" else 2)
    outcome = run_migrated(migration, changes, originals)["train.py"]
    assert (outcome.status, outcome.why) == ("passed", None)
    assert outcome.loss_trace.ranks == 2
    assert outcome.loss_trace.steps >= 5
    assert outcome.loss_trace.max_relative < 1e-5
    (losses,) = outcome.losses
    assert len(set(losses.original)) == len(losses.original)


WHOLE = "headrace.parallel.to_global(model, placement, own_statistics=True)"
WRONG = [
    ("own_statistics=True", "own_statistics=False", "instead of"),  # SyncBatchNorm's statistics
    (WHOLE, "model", "on rank 0 and"),  # without an exchange of gradients each rank goes its own way
]
ALSO_WRONG = [
    ('batches="shares"', 'batches="whole"', "instead of"),  # rank 0's rows alone
    ("lr=0.05", "lr=0.051", "instead of"),
    ("    placement =", "    assert dist.get_rank() == 0\n    placement =", "AssertionError"),  # one rank stops
    ("        train(model,", "        if dist.get_rank() == 0: train(model,", "stopped after"),  # one waits for the other
]


def test_a_wrong_rewrite_is_found(parallel):
    """Mistakes that a rewrite could make; those of one script, since the original runs once for all."""
    check_wrong(parallel, WRONG)


@pytest.mark.slow
def test_every_other_wrong_rewrite_is_found(parallel):
    check_wrong(parallel, ALSO_WRONG)


def check_wrong(parallel, planted):
    migration, changes, originals = parallel("torchrun")
    for old, new, why in planted:
        outcome = run_migrated(migration, [_changed(change, old, new) for change in changes], originals)["train.py"]
        assert outcome.status == "failed", (old, outcome)
        assert why in outcome.why, outcome.why
        assert outcome.parity_failed == ("loss of step" in outcome.why)


def _changed(change, old, new):
    if change.path != "train.py":
        return change
    assert old.encode() in change.after
    return replace(change, after=change.after.replace(old.encode(), new.encode()))


def test_the_losses_of_an_original_are_those_of_all_ranks_rows(parallel):
    _, _, originals = parallel("torchrun")
    run = originals.runs["train.py"].run
    first, second = (next(iter(losses.values())) for losses in run.losses_of_ranks)
    assert not np.allclose(first, second)
    assert np.allclose(next(iter(run.losses.values())), (first + second) / 2)
