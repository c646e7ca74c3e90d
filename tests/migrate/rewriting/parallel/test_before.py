"""A model becomes global in place: what keeps it, or its parameters, from before keeps the script as it was."""

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.survey.survey import survey
from tests.migrate.rewriting.parallel.styles import DATA, NET, TORCHRUN

WRAP = "    model = DDP("
HELPERS = """\
def describe(net):
    print(net)


class Keeper:
    def __init__(self, net):
        self.net = net


def main():
"""


@pytest.fixture
def change_of(tmp_path):
    def run(before, after=""):
        text = TORCHRUN.replace("def main():\n", HELPERS).replace(WRAP, before + WRAP)
        text = text.replace("    start = 0\n", "    start = 0\n" + after)
        for name, content in {"net": NET, "data": DATA, "train": text}.items():
            (tmp_path / f"{name}.py").write_text(content)
        rules = choose_rules(["PS304", "PS306"], options=["parallel"])
        return {change.path: change for change in rewrite(survey(tmp_path), rules=rules)}["train.py"]

    return run


@pytest.mark.parametrize(
    "before",
    [
        "    print(model)\n",
        "    print(sum(p.numel() for p in model.parameters()))\n",
        "    count = sum(p.numel() for p in model.parameters())\n",
        "    for p in model.parameters():\n        p.requires_grad = True\n",
        "    model.fc = nn.Linear(model.fc.in_features, 4)\n",
        "    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n",
        "    model.load_state_dict(torch.load('a.pth'))\n",
        "    describe(model)\n",
        "    old = copy.deepcopy(model)\n    import copy\n",
    ],
)
def test_what_keeps_nothing_is_no_obstacle(change_of, before):
    change = change_of(before)
    assert change.changed, change.findings
    assert before in change.after.decode()


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("    ema = Ema(model)\n", "hands the model to something that may keep it"),
        ("    keeper = Keeper(model)\n", "hands the model to something that may keep it"),
        ("    models = [model]\n", "hands the model to something that may keep it"),
        ("    show = lambda: model\n", "hands the model to something that may keep it"),
        ("    model = rewired(model)\n", "hands the model to something that may keep it"),
        ("    kept = list(model.parameters())\n", "keeps parameters of the model"),
        ("    kept = [p for p in model.parameters() if p.requires_grad]\n", "keeps parameters of the model"),
    ],
)
def test_what_may_keep_it_is_named(change_of, before, why):
    change = change_of(before)
    assert not change.changed
    assert why in change.findings[0].message
    assert (
        f"line {TORCHRUN[: TORCHRUN.index(WRAP)].count(chr(10)) + 1 + HELPERS.count(chr(10)) - 1}" in change.findings[0].message
    )


def test_another_name_from_before_stands_for_the_global_model(change_of):
    after = change_of("    plain = model\n", "    torch.save(plain.state_dict(), 'x.pth')\n").after.decode()
    assert "torch.save(headrace.parallel.whole(plain.state_dict()), 'x.pth')" in after
