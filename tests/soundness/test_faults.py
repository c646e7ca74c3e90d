"""The harness itself: it finds how small a fault may get, and says where nobody noticed one."""

import pytest

from . import candidates
from .faults import Fault, examine, table


def noticed_above(bound):
    return Fault("off", "candidate", lambda size: "parity" if size > bound else None, 1.0, "of it")


def test_a_fault_is_made_smaller_until_nobody_notices():
    assert examine(noticed_above(0.005)).row == "| off | candidate | parity | 0.01 of it |"
    assert examine(Fault("off", "candidate", lambda size: "parity")).row == "| off | candidate | parity | any |"


def test_a_fault_that_nobody_notices_is_seen():
    found = examine(noticed_above(2.0))
    assert found.by is None
    assert "**nobody**" in table([found])


def test_every_fault_has_its_own_line_and_there_are_enough():
    from . import joining, passes, proofs, served, stored, tasks

    faults = [fault for stage in (candidates, tasks, passes, stored, proofs, served, joining) for fault in stage.faults()]
    assert len({(fault.stage, fault.name) for fault in faults}) == len(faults) >= 165


@pytest.mark.parametrize("name", ["rows zero beyond a size", "slow memory leak", "second head dead", "left in training mode"])
def test_faults_that_were_not_noticed_once_are(name):
    found = [examine(fault) for fault in candidates.faults() if fault.name == name]
    assert found
    assert all(item.by for item in found)


def test_a_gate_that_lets_everything_pass_does_not_go_unseen(monkeypatch):
    """Not the harness refuses a planted candidate, but the product: without its comparisons, nobody notices."""
    monkeypatch.setattr("headrace.runtime.artifact.parity.largest_difference", lambda wanted, given: 0.0)
    for proof in ("wrong_at", "wrong_on_rare"):
        monkeypatch.setattr(f"headrace.runtime.tuning.candidate.{proof}", lambda *given, **more: None)
    (fault,) = (fault for fault in candidates.faults() if (fault.stage, fault.name) == ("candidate", "scores scaled"))
    assert examine(fault).by is None


def test_nothing_right_is_refused():
    assert [by for _, by in candidates.clean() if by] == []
