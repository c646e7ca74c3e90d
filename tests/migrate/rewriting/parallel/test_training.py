"""Which scripts of many processes are rewritten whole, and which stay as they were, with the line and the reason."""

import ast

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.survey.survey import survey
from tests.migrate.rewriting.parallel.styles import DATA, NET, STYLES


@pytest.fixture
def rewritten(tmp_path):
    """`rewritten(text, *edits, net=, **files)`: the change of a script by the rules that --parallel asks for."""

    def run(text, *edits, net=NET, rules=("PS304", "PS305", "PS306"), **files):
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        for name, content in {"net": net, "data": DATA, "train": text, **files}.items():
            (tmp_path / f"{name}.py").write_text(content)
        rules = choose_rules(rules, options=["parallel"])
        return {change.path: change for change in rewrite(survey(tmp_path), rules=rules)}["train.py"]

    return run


@pytest.mark.parametrize("style", STYLES)
def test_a_second_run_changes_nothing(rewritten, style):
    change = rewritten(STYLES[style])
    assert change.changed
    ast.parse(change.after)
    assert [finding.severity for finding in change.findings] == ["note"]
    again = survey_of(rewritten, change.after.decode())
    assert not again


def survey_of(rewritten, text):
    try:
        return rewritten(text)
    except KeyError:  # not a finding
        return None


def test_without_the_option_nothing_of_it_is_done(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(STYLES["torchrun"])
    codes = {finding.code for change in rewrite(survey(tmp_path)) for finding in change.findings}
    assert "PS303" in codes
    assert not codes & {"PS304", "PS305", "PS306"}


def test_other_rules_do_not_see_the_calls_that_become_global(rewritten):
    change = rewritten(STYLES["torchrun"], rules=())
    assert {"PS304"} == {finding.code for finding in change.findings if finding.fix == "applied"}
    assert b"evaluation_step" not in change.after


def test_an_optimizer_that_was_made_before_goes_on_with_the_global_parameters(rewritten):
    lines = "    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
    wrap = "    model = DDP(model, device_ids=[local_rank] if cuda else None)\n"
    change = rewritten(STYLES["torchrun"], (lines, ""), (wrap, lines + wrap))
    assert b"own_statistics=True, optimizer=optimizer)" in change.after


def test_a_wrapper_under_a_condition_keeps_it(rewritten):
    wrap = "    model = DDP(model, device_ids=[local_rank] if cuda else None)\n"
    kept = '"model": model.state_dict()', '"model": None'
    edits = [(wrap, f"    if dist.get_world_size() > 1:\n    {wrap}"), kept]
    loads = ('        model.load_state_dict(checkpoint["model"])\n', "")
    change = rewritten(STYLES["torchrun"], *edits, loads)
    assert b"    if dist.get_world_size() > 1:\n        placement = headrace" in change.after


DROPOUT = NET.replace("self.bn = nn.BatchNorm2d(6)", "self.bn = nn.Dropout(0.1)")
DRAWN = NET.replace("torch.flatten(x, 1)", "F.dropout(torch.flatten(x, 1), 0.1, self.training)")
WRAP = "    model = DDP(model, device_ids=[local_rank] if cuda else None)\n"
CRITERION = "nn.CrossEntropyLoss()"
STEP = "        outputs = model(images)\n        loss = criterion(outputs, labels)\n        loss.backward()"
CAST = (
    "        with torch.autocast('cuda'):\n            outputs = model(images)\n            loss = criterion(outputs, labels)\n"
    "        loss.backward()"
)
AGAIN = (
    "    for images, labels in train_loader:\n        optimizer.zero_grad()\n        loss = criterion(model(images), labels)\n"
    "        loss.backward()\n        optimizer.step()\n"
)
START = "    start = 0\n"
CALL = "        outputs = model(images)\n        loss"
OPTIMIZER = "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)"
SAID = 'print(f"epoch {epoch}: {correct}'
EVALUATED = 'print(f"epoch {evaluate(model.module, test_loader, device)}: {correct}'
LEFT = {
    "is not known to be a plain mean over the rows": [
        (CRITERION, "nn.CrossEntropyLoss(label_smoothing=0.1)"),
        (CRITERION, "nn.CrossEntropyLoss(weight=torch.rand(4))"),
        (CRITERION, 'nn.CrossEntropyLoss(reduction="sum")'),
        ("criterion(outputs, labels)", "criterion(outputs, labels) + 0.1 * outputs.sum()"),
        (CRITERION, "Mine()"),
        (START, START + "    criterion.reduction = 'sum'\n"),
    ],
    "line 31 uses .no_sync of the wrapped model": [("    model.eval()", "    with model.no_sync():\n        model.eval()")],
    "mixed precision": [(STEP, CAST)],
    "options that a global model has not: process_group": [
        ("if cuda else None)\n    crit", "if cuda else None, process_group=g)\n    crit")
    ],
    "hands the wrapped model to something that was not followed": [
        (START, START + use)
        for use in (
            "    torch.save(model, 'whole.pth')\n",
            "    ema = [model]\n",
            "    print(isinstance(model, DDP))\n",
            "    setup = lambda: print(model)\n",
            "    setattr(model, 'x', 1)\n",
        )
    ],
    "binds model, the wrapped model, anew": [(START, START + "    model = torch.compile(Net())\n")],
    "what the call of line 21 is for was not understood": [(CALL, CALL.replace("model(", "model.module("))],
    "trains the model past its wrapper": [(CALL, "        net = model.module\n" + CALL.replace("model(", "net("))],
    "is divided by labels.size(0)": [
        ("criterion(outputs, labels)\n", "criterion(outputs, labels)\n        loss = loss / labels.size(0)\n")
    ],
    "is trained in two places": [(START, START + AGAIN)],
    "within an f-string": [(SAID, EVALUATED)],
    "gives each process its share": [("DistributedSampler", "RandomSampler")],
    "a loop wraps the model": [(WRAP, f"    for _ in range(2):\n    {WRAP}")],
    "models are wrapped in several places": [(WRAP, f"    if cuda:\n    {WRAP}    else:\n    {WRAP}")],
    "depends on whether the model is wrapped": [(WRAP, f"    if cuda:\n    {WRAP}")],
    "where the optimizer is made was not found": [(OPTIMIZER, "make_optimizer()")],
    "the file uses the name headrace": [("import argparse\n", "import argparse\n\nheadrace = 1\n")],
    "calls torch.distributed.init_process_group": [("dist.init_process_group", "start")],
}
RANDOM = {"the model has nn.Dropout (net.py:10)": DROPOUT, "the model has F.dropout (net.py:15)": DRAWN}
CASES = [(why, edit) for why, edits in LEFT.items() for edit in edits]


@pytest.mark.parametrize(("why", "edit"), CASES)
def test_a_script_outside_of_the_subset_stays_as_it_was(rewritten, why, edit):
    check_left(rewritten(STYLES["torchrun"], edit), why)


@pytest.mark.parametrize(("why", "net"), RANDOM.items())
def test_what_draws_random_numbers_stays(rewritten, why, net):
    check_left(rewritten(STYLES["torchrun"], net=net), why)
    assert rewritten(STYLES["torchrun"], net=DROPOUT.replace("0.1", "0.0")).changed


def check_left(change, why):
    assert not change.changed
    (finding,) = change.findings
    assert (finding.code, finding.severity, finding.fix) == ("PS306", "warning", "manual")
    assert why in finding.message, finding.message
    assert finding.line > 1


def test_a_model_that_other_files_train_stays(rewritten):
    start = STYLES["torchrun"].index("def train(")
    end = STYLES["torchrun"].index("@torch.no_grad()")
    engine = STYLES["torchrun"][start:end]
    change = rewritten(STYLES["torchrun"], (engine, "from engine import train\n\n\n"), engine=engine)
    assert not change.changed
    assert all("not followed" in finding.message for finding in change.findings)


def test_an_attribute_that_other_code_reaches_stays(rewritten):
    reached = "    trainer = 1\n    print(trainer.model)\n    dist.destroy"
    check_left(rewritten(STYLES["spawned"], ("    dist.destroy", reached)), "from outside of its class")


def test_a_function_that_also_gets_another_model_stays(rewritten):
    old = "            correct = evaluate(model.module, test_loader, device)\n"
    change = rewritten(STYLES["torchrun"], (old, old + "            evaluate(Net(), test_loader, device)\n"))
    # The plain model is called as it is; a local view of it is the model itself.
    assert change.changed or "another model" in change.findings[0].message


HOSTILE = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data.distributed import DistributedSampler

exec("model = None")
dist.init_process_group("gloo"); model = DDP(globals()["net"])
for images, labels in loader:
    optimizer.zero_grad(); loss = criterion(model(images), labels); loss.backward(); optimizer.step()
"""


def test_several_statements_of_a_line_stay(rewritten):
    assert not rewritten(HOSTILE).changed
