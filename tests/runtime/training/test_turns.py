"""Which way a kind of step goes on: the faster one, once enough turns of each have been timed."""

import pytest

from headrace.runtime.training.options import StepRecord
from headrace.runtime.training.turns import Turns


def run(eager, captured, **options):
    """The turns in their order, until one way is chosen; each took what comes next of its times."""
    turns, ways, times = (
        Turns(StepRecord(((2, 3),), way="captured"), **options),
        [],
        {"eager": [*eager], "captured": [*captured]},
    )
    chosen = False
    while not chosen and all(times.values()):
        ways.append(turns.next())
        chosen = turns.took(ways[-1], times[ways[-1]].pop(0))
    return turns, ways, chosen


@pytest.mark.parametrize(
    ("eager", "captured", "steps", "way"),
    [
        ([9.0, *[1.0] * 9], [9.0, *[0.5] * 9], 8, "captured"),  # faster in every turn: three of each after the first are enough
        ([9.0, *[0.5] * 9], [9.0, *[1.0] * 9], 8, "eager"),
        ([9.0, *[1.0, 0.9] * 5], [9.0, *[0.95, 0.5] * 5], 16, "captured"),  # not in every turn: seven of each
        ([9.0, *[1.0, 0.9] * 5], [9.0, *[0.99, 0.89] * 5], 16, "eager"),  # as fast is not faster
    ],
)
def test_the_faster_is_chosen(eager, captured, steps, way):
    turns, ways, chosen = run(eager, captured)
    assert chosen
    assert len(ways) == steps
    assert ways == ["captured", "eager"] * (steps // 2)
    assert turns.record.way == turns.next() == way
    assert ("eager is as fast" in turns.record.why) == (way == "eager")


def test_ranks_count_the_same_turns_and_take_the_first_ones_times():
    class Asking:
        asked = 0

        def __bool__(self):
            return True

        def first(self, value):
            self.asked += 1
            return 1.0, 2.0

    agreement = Asking()
    turns, ways, chosen = run([1.0] * 10, [0.1] * 10, agreement=agreement)
    assert chosen
    assert len(ways) == 16
    assert agreement.asked == 1
    assert turns.record.way == "eager"
