"""Each use of a wrapped model, by itself: what it becomes."""

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.survey.survey import survey
from tests.migrate.rewriting.parallel.styles import DATA, NET, TORCHRUN

START = "    start = 0\n"


@pytest.fixture
def after(tmp_path):
    def run(use, text=TORCHRUN):
        (tmp_path / "net.py").write_text(NET)
        (tmp_path / "data.py").write_text(DATA)
        (tmp_path / "train.py").write_text(text.replace(START, START + use))
        rules = choose_rules(["PS304", "PS306"], options=["parallel"])
        change = {change.path: change for change in rewrite(survey(tmp_path), rules=rules)}["train.py"]
        assert change.changed, change.findings
        return change.after.decode()

    return run


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("    state = model.module.state_dict()\n", "    state = headrace.parallel.whole(model.state_dict())\n"),
        ("    state = model.state_dict()\n", '    state = headrace.parallel.whole(model.state_dict(prefix="module."))\n'),
        (
            "    model.module.load_state_dict(torch.load('a'), strict=False)\n",
            "    headrace.parallel.load_state(model, torch.load('a'), strict=False)\n",
        ),
        ("    plain = model.module\n    plain.eval()\n", "    plain = model\n    plain.eval()\n"),
        ("    plain = model.module\n    s = plain.state_dict()\n", "    s = headrace.parallel.whole(plain.state_dict())\n"),
        ("    other = optimizer.state_dict()\n", "    other = headrace.parallel.whole(optimizer.state_dict())\n"),
        *(
            (f"    {same}\n", f"    {same}\n")
            for same in (
                "print(sum(p.numel() for p in model.parameters()))",
                "print(f'{sum(p.numel() for p in model.parameters())}')",
                "model = model",
            )
        ),
    ],
)  # fmt: skip
def test_a_use(after, use, expected):
    assert expected in after(use)


def test_before_the_wrapper_the_model_is_plain(after):
    plain = "    model.load_state_dict(torch.load('pretrained.pth'))\n"
    wrap = "    model = DDP("
    assert plain in after("", TORCHRUN.replace(wrap, plain + wrap))


def test_both_names_stand_for_the_global_model(after):
    text = TORCHRUN.replace("    model = DDP(model,", "    ddp = DDP(model,").replace("    train(model,", "    train(ddp,")
    text = text.replace("evaluate(model.module,", "evaluate(ddp.module,").replace('"model": model.', '"model": ddp.')
    text = text.replace("model.module.state_dict(), args", "model.state_dict(), args").replace(
        "model.load_state", "ddp.load_state"
    )
    text = text.replace("SGD(model.", "SGD(ddp.")
    found = after("", text)
    assert "ddp = headrace.parallel.to_global(model, placement, own_statistics=True)" in found
    assert "torch.save(headrace.parallel.whole(model.state_dict()), args.out" in found
    assert '"model": headrace.parallel.whole(ddp.state_dict(prefix="module."))' in found
    assert "evaluate(ddp, test_loader" in found
