"""Two sessions at one batch size, by a clock that runs as they say."""

import numpy as np
import pytest

from headrace.serving.batching.contest import Contest, RandomWalk

ROWS = [np.arange(4.0)]


class Clock:
    now = 0.0


class Session:
    """Takes so many seconds; some of its runs fail."""

    def __init__(self, clock, seconds, factor=2.0, fails=()):
        self.clock, self.seconds, self.factor, self.fails = clock, seconds, factor, fails
        self.runs, self.closed = 0, 0

    def run(self, inputs):
        self.runs += 1
        if self.runs in self.fails:
            raise RuntimeError("out of memory")
        self.clock.now += self.seconds(self.runs) if callable(self.seconds) else self.seconds
        return [inputs[0] * self.factor]

    def close(self):
        self.closed += 1


def contest(first, second, **options):
    clock, asked, settled = Clock(), [], []
    one, other = Session(clock, first), Session(clock, second, **options)
    made = Contest(one, lambda: asked.append(True), batches=3, clock=lambda: clock.now)
    return made, one, other, asked, settled


def run(made, times):
    for _ in range(times):
        np.testing.assert_array_equal(made.run(ROWS)[0], ROWS[0] * 2)


def test_it_asks_once_when_so_many_batches_came():
    made, one, _, asked, _ = contest(1.0, 1.0)
    run(made, 2)
    assert asked == []
    run(made, 10)
    assert (asked, one.runs) == ([True], 12)


@pytest.mark.parametrize(("seconds", "kept"), [(0.5, True), (0.94, True), (0.96, False), (1.0, False), (2.0, False)])
def test_what_takes_a_twentieth_less_stays(seconds, kept):
    made, one, other, _, settled = contest(1.0, seconds)
    assert made.challenge(other, lambda *verdict: settled.append(verdict))
    run(made, 200)
    ((stays, times, why),) = settled
    assert (stays, why) == (kept, "")
    assert times == pytest.approx(1 / seconds)
    assert made.session is (other if kept else one)
    before = other.runs, one.runs
    run(made, 5)
    assert (other.runs, one.runs) == ((before[0] + 5, before[1]) if kept else (before[0], before[1] + 5))


def test_both_run_as_often_while_it_lasts_and_no_batch_runs_twice():
    made, one, other, _, _ = contest(1.0, 1.0)
    made.challenge(other, lambda *verdict: None)
    run(made, 8)
    assert (one.runs, other.runs) == (4, 4)


def test_a_noisy_machine_chooses_alike():
    """One that gains 15 % and one that gains nothing, in noise of 10 % per batch: of a hundred starts few choose otherwise."""
    kept = {0.85: 0, 1.0: 0}
    for seconds in kept:
        for seed in range(100):
            random, settled = np.random.default_rng(seed), []
            made, _, other, _, _ = contest(
                lambda _, random=random: 1.0 + 0.1 * random.standard_normal(),
                lambda _, random=random, seconds=seconds: seconds * (1.0 + 0.1 * random.standard_normal()),
            )
            made.challenge(other, lambda *verdict, settled=settled: settled.append(verdict))
            for _ in range(4 * RandomWalk.MOST):
                made.run(ROWS)
            kept[seconds] += settled[0][0]
    assert kept[0.85] >= 99
    assert kept[1.0] <= 1


def test_one_that_fails_has_lost_and_its_batch_is_answered():
    made, one, other, _, settled = contest(1.0, 0.1, fails=(3,))
    made.challenge(other, lambda *verdict: settled.append(verdict))
    run(made, 40)
    ((stays, _, why),) = settled
    assert (stays, why, made.session) == (False, "it failed: out of memory", one)


def test_what_fails_by_itself_is_the_caller_s():
    made, one, other, _, settled = contest(1.0, 1.0)
    one.fails = (1,)
    made.challenge(other, lambda *verdict: settled.append(verdict))
    with pytest.raises(RuntimeError, match="out of memory"):
        made.run(ROWS)
    assert settled == []


def test_one_that_is_closed_closes_both_and_takes_none_any_more():
    made, one, other, _, _ = contest(1.0, 1.0)
    made.challenge(other, lambda *verdict: None)
    made.close()
    assert (one.closed, other.closed) == (1, 1)
    late = Session(Clock(), 1.0)
    assert not made.challenge(late, lambda *verdict: None)
    assert late.closed == 0  # it is its opener's


def test_a_walk_that_stays_in_balance_ends():
    walk = RandomWalk()
    votes = [walk.vote(bool(number % 2)) for number in range(RandomWalk.MOST)]
    assert votes[:-1] == [None] * (RandomWalk.MOST - 1)
    assert votes[-1] is False
