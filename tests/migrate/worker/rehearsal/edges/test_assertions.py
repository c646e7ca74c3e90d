"""Assertions of a script's own that stand-ins do not fulfil."""

import pytest

CHECKED = """
import os
import torch

net = torch.nn.Linear(4, 2)
state = torch.load("weights.pth")["state_dict"]
message = net.load_state_dict(state, strict=False)
CHECK
print("went on", net(torch.ones(1, 4)).shape)
"""


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ('assert set(message.missing_keys) == {"bias"}', "assert set(message.missing_keys) == {'bias'}"),
        ('assert (\n    len(state) == 50_000\n), "whole"', "assert len(state) == 50000"),
        ("def check(state):\n    assert len(state) > 1000\ncheck(state)", "assert len(state) > 1000"),
    ],
)
def test_what_stand_ins_do_not_fulfil_is_passed_over_and_told(rehearsed, check, said):
    done = rehearsed({"main.py": CHECKED.replace("CHECK", check)})
    assert (done.report.ended, done.stdout) == ("finished", "went on torch.Size([1, 2])\n"), done.report.why
    assert [item.what for item in done.standins("assertions")] == [f"{said} was passed over"]


@pytest.mark.parametrize(
    "text",
    [
        "assert 1 > 2\n",  # nothing stood in
        CHECKED.replace("CHECK", "assert False, 'not meant for this'"),
        CHECKED.replace("CHECK", "raise AssertionError('weights of another network')"),
    ],
)
def test_other_failures_end_the_script(rehearsed, text):
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.why.startswith("AssertionError")
    assert not done.standins("assertions")


def test_what_an_assertion_computes_is_computed_all_the_same(rehearsed):
    check = "assert (count := len(state)) > 1000\nprint(count < 1000)"
    done = rehearsed({"main.py": CHECKED.replace("CHECK", check)})
    assert (done.report.ended, done.stdout) == ("finished", "True\nwent on torch.Size([1, 2])\n"), done.report.why
