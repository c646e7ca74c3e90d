import pytest

from headrace.runtime.artifact.pipeline.shares import Recent, State, StateClock, Totals


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_seconds_are_counted_where_they_were_spent():
    now = Clock()
    clock = StateClock(now)
    for state, seconds in ((State.BUSY, 2), (State.BLOCKED, 3), (State.STARVED, 5), (State.BUSY, 7)):
        clock.enter(state)
        now.now += seconds
    assert clock.read() == Totals(busy=9, starved=5, blocked=3)
    now.now += 1
    assert clock.read().busy == 10, "the state that it is in counts"


def test_totals_are_read_as_they_were_sent():
    totals = Totals(1.5, 2.25, 1e9)
    assert Totals.unpack(bytearray(totals.pack())) == totals


def test_shares_are_those_of_the_last_seconds():
    now = Clock()
    recent = Recent(now)
    assert recent.shares() is recent.latest is None
    recent.add(Totals(busy=0))
    assert recent.shares() is None
    now.now += 2
    recent.add(Totals(busy=1.5, starved=0.25, blocked=0.25))
    assert recent.shares() == {"busy": 0.75, "starved": 0.125, "blocked": 0.125}
    for _ in range(4):
        now.now += 2
        last = recent._seen[-1][1]
        recent.add(last._replace(blocked=last.blocked + 2))
    assert recent.shares() == {"busy": 0.0, "starved": 0.0, "blocked": 1.0}
    assert sum(recent.shares().values()) == pytest.approx(1)
    assert recent.latest == Totals(1.5, 0.25, 8.25)


def test_nothing_is_known_of_a_stage_that_has_just_begun():
    now = Clock()
    recent = Recent(now)
    recent.add(Totals(busy=5))
    now.now += 1
    recent.add(Totals(busy=6))
    recent.clear()
    assert recent.shares() is None
