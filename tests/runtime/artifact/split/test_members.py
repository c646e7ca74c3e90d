import os
import signal
import time

import psutil
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.split import members as module
from headrace.runtime.artifact.split.members import Members
from tests.runtime.artifact.waiting import until


@pytest.fixture(scope="module", autouse=True)
def forked_members():
    """They are processes as a session starts them."""


class Started(Members):
    def __init__(self, program, count=2):
        super().__init__("member", program, [{}] * count)
        self._start()


@pytest.mark.parametrize(("program", "why"), [("this", "status 0"), ("no.such.module", "status 1")])
def test_one_that_ends_before_it_is_ready_is_an_error(program, why):
    before = set(psutil.Process().children())
    with pytest.raises(BackendError, match=rf"^member [01] of 2 has ended \({why}\)$"):
        Started(program)
    assert set(psutil.Process().children()) <= before


def test_its_name_is_on_the_command_line(sessions):
    pids = sessions[1].ranks.pids
    assert [psutil.Process(pid).cmdline()[-1] for pid in pids] == [f"rank {number} of 3" for number in range(3)]


def test_one_that_ends_again_and_again_is_started_later_and_later(sessions, monkeypatch):
    """It is away for longer each time, up to a bound, and named all the while."""
    ranks, changes = sessions[1].ranks, []
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.2)
    monkeypatch.setattr(module, "_LONGEST_DELAY", 10.0)
    ranks.on_change = lambda: changes.append((time.monotonic(), ranks.trouble))
    for _ in range(4):
        until(lambda: not ranks.trouble)
        count = len(changes)
        os.kill(ranks.pids[1], signal.SIGKILL)
        until(lambda count=count: len(changes) >= count + 2)
    away = [back - lost for (lost, why), (back, now) in zip(changes[::2], changes[1::2], strict=True) if why and not now]
    assert len(away) == 4
    assert away[3] > 0.2 * 2**2


def test_what_is_on_change_may_ask(sessions):
    """It is called without a lock that it would wait for."""
    ranks, seen = sessions[1].ranks, []
    ranks.on_change = lambda: seen.append((ranks.trouble, len(ranks.pids)))
    until(lambda: not ranks.trouble)
    os.kill(ranks.pids[0], signal.SIGKILL)
    until(lambda: len(seen) >= 2)
    assert seen[0][0].startswith("rank 0 of 3 has ended")
    assert seen[-1] == ("", 3)
