"""Images that a script makes of its model's answers, as an attack does: what rounding decides there accuses nobody, and a
difference does."""

from __future__ import annotations

import re

import pytest

from headrace.migrate.stages.scripts import migrated
from headrace.migrate.stages.scripts.migrated import run_migrated
from headrace.migrate.stages.scripts.originals import run_originals

pytestmark = pytest.mark.usefixtures("warm_sandbox")

CALL = "outputs = model(images.cuda())\n"
LOWER = """with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = model(images.cuda())
            print("the largest is", outputs.float().max().item())
"""
HIGHER = ("evaluate.py", "dtype=torch.bfloat16", "enabled=False")
"""What a graph makes of a call, which computes in the precision of its plan."""
UNSTEADY, STEADY = "torch.sin(1e6 * outputs[:, :3])", "outputs[:, :3]"
ATTACK = """
            images = images.cuda() + 0.03 * torch.sign({by})[:, :, None, None]
            attacked = model(images.clamp(0, 1))
            correct += attacked.argmax(1).sum().item()
"""
ROUNDING = ("model.py", "self.fc(", "1e-6 + self.fc(")
"""The outputs, changed by as little as a graph does."""


def outcome_of(ran_with, by, *edits):
    """What is said of a script that makes images by that where the migrated one differs by these edits, and the findings."""
    after = "            total += len(labels)\n"
    return judged(ran_with, (after, after + ATTACK.format(by=by).lstrip("\n")), *edits)


def judged(ran_with, edit, *edits):
    """The same for a script that has this edit before it is migrated."""
    migration, _, originals = ran_with(edit)
    assert originals.why_not == {}
    fresh, done = migration.fresh_tree, []

    def broken(title=None):
        fresh(title)
        for name, old, new in edits if not done else ():
            path = migration.tree / name
            assert old in path.read_text()
            path.write_text(path.read_text().replace(old, new))
        done.append(title)

    object.__setattr__(migration, "fresh_tree", broken)
    return run_migrated(migration, [], originals)["evaluate.py"], {finding.code for finding in migration.findings}


def test_images_of_an_attack_that_rounding_decides_are_not_compared(ran_with):
    outcome, codes = outcome_of(ran_with, UNSTEADY, ROUNDING)
    assert (outcome.status, outcome.parity_failed) == ("not-run", False)
    assert "PS409" in codes
    assert "PS401" not in codes
    assert re.search(
        r"not compared from evaluate\.py:\d+ on, where rounding decides .* before agrees within 1\.\de-06", outcome.why
    )


def test_a_script_under_autocast_is_held_to_what_its_model_gives_without(ran_with):
    outcome, codes = judged(ran_with, (CALL, LOWER), HIGHER)
    assert (outcome.status, outcome.parity_failed) == ("passed", False), outcome.why
    assert re.search(r"the original computes in bfloat16 at evaluate\.py:\d+, which changes its outputs by", outcome.why)
    assert "PS407" in codes
    assert "PS401" not in codes


def test_no_difference_hides_behind_what_autocast_rounds(ran_with):
    """It is about as small as that."""
    outcome, codes = judged(ran_with, (CALL, LOWER), HIGHER, ("model.py", "self.fc(", "0.001 + self.fc("))
    assert outcome.status == "failed"
    assert outcome.parity_failed
    assert "PS401" in codes


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([("evaluate.py", "0.03 *", "0.3 *")], marks=pytest.mark.slow),
        # Those that are slow are as one that is harder to see, or change the images in the same place.
        pytest.param([("evaluate.py", "images.clamp(0, 1)", "(images.clamp(0, 1) - 0.5) / 0.25")], marks=pytest.mark.slow),
        pytest.param([("evaluate.py", "images.clamp(0, 1)", "images.clamp(0, 1).flip(3)")], marks=pytest.mark.slow),
        pytest.param([("evaluate.py", "images = images.cuda() +", "images = images.cuda() + 0.1 +")], marks=pytest.mark.slow),
        [("evaluate.py", "images = images.cuda() +", "images = images.cuda() + 0.001 +")],
        pytest.param([("evaluate.py", "images = images.cuda() +", "images = 0.99 * images.cuda() +")], marks=pytest.mark.slow),
        [("evaluate.py", "outputs = model(images.cuda())", "outputs = model(images.cuda() * 2 - 1)")],
        [("model.py", "1e-6 + self.fc(", "0.5 + self.fc(")],
    ],
    ids=["further", "normalized", "flipped", "shifted", "shifted a little", "scaled a little", "clean", "outputs"],
)
def test_a_wrong_script_fails_also_where_rounding_decides_its_images(ran_with, edits):
    """Each could hide behind what rounding does to the same images."""
    outcome, codes = outcome_of(ran_with, UNSTEADY, ROUNDING, *edits)
    assert outcome.status == "failed", outcome.why
    assert "PS409" not in codes


@pytest.mark.parametrize(
    ("by", "edits"),
    [
        pytest.param(STEADY, [ROUNDING, ("evaluate.py", "0.03 *", "0.0301 *")], marks=pytest.mark.slow),  # the plainest
        (UNSTEADY, [("evaluate.py", "0.03 *", "-0.03 *")]),
        (f"torch.sin(1e6 * images.cuda().mean((2, 3))) + 0 * {STEADY}", [ROUNDING, ("evaluate.py", "sin(1e6", "cos(1e6")]),
    ],
    ids=["steady", "not by rounding", "not of answers"],
)
def test_other_images_fail_where_the_original_does_not_change_them_by_rounding(ran_with, by, edits):
    outcome, codes = outcome_of(ran_with, by, *edits)
    assert outcome.status == "failed", outcome.why
    assert "PS409" not in codes


TRAINS = """
import torch
from torch import nn
from model import Net


def attack(net, images, labels):
    images = images.clone().requires_grad_()
    nn.functional.cross_entropy(net(images), labels).backward()
    turned = torch.sin(SCALE * images.grad.mean((2, 3), keepdim=True))
    return (images + 0.3 * torch.sign(turned)).detach()


torch.manual_seed(0)
net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
loader = [(torch.rand(4, 3, 16, 16), torch.arange(4)) for _ in range(3)]
net.train()
for images, labels in loader:
    images = attack(net, images, labels)
    optimizer.zero_grad()
    outputs = net(images)
    loss = criterion(outputs, labels)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("scale", "edits", "status"),
    [
        ("1e12", [("train.py", "lr=0.5", "lr=0.5 * (1 + 1e-6)")], "not-run"),
        # The update is the script's own, and rounding hides it.
        pytest.param("1e12", [("train.py", "lr=0.5", "lr=5.0")], "not-run", marks=pytest.mark.slow),
        ("1e12", [("train.py", "0.3 *", "0.31 *")], "failed"),
        ("1.0", [("train.py", "lr=0.5", "lr=0.501")], "failed"),
        pytest.param("1.0", [("model.py", "self.fc(", "1.001 * self.fc(")], "failed", marks=pytest.mark.slow),
    ],
    ids=["rounding", "another rate", "another attack", "a little more", "another model"],
)
def test_training_on_images_of_an_attack(migration_of, tmp_path, model_text, scale, edits, status):
    root = tmp_path / "trains"
    root.mkdir()
    (root / "model.py").write_text(model_text)
    (root / "train.py").write_text(TRAINS.replace("SCALE", scale))
    migration, changes = migration_of(root)
    assert "PS302" in migration.rewritten["train.py"], migration.rewritten  # the attack leaves gradients before the update
    originals = run_originals(migration, None)
    assert originals.why_not == {}
    apply = migrated.apply

    def changed(those, tree):
        apply(those, tree)
        for name, old, new in edits:
            path = tree / name
            path.write_text(path.read_text().replace(old, new))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrated, "apply", changed)
        outcome = run_migrated(migration, changes, originals)["train.py"]
    assert outcome.status == status, outcome.why
    codes = {finding.code for finding in migration.findings}
    assert ("PS409" in codes, "PS401" in codes) == (status == "not-run", status == "failed")
