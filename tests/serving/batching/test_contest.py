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


def unlike(wanted, given):
    return None if np.array_equal(wanted[0], given[0]) else "row 0 is off"


def contest(first, second, **options):
    clock, asked, settled = Clock(), [], []
    one, other = Session(clock, first), Session(clock, second, **options)
    made = Contest(one, lambda: asked.append(True), unlike=unlike, batches=3, clock=lambda: clock.now)
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
    made.leave()
    before = other.runs, one.runs
    run(made, 5)
    assert (other.runs, one.runs) == ((before[0] + 5, before[1]) if kept else (before[0], before[1] + 5))


def test_both_run_as_often_while_it_lasts_and_few_batches_run_twice():
    made, one, other, _, _ = contest(1.0, 1.0)
    made.challenge(other, lambda *verdict: None)
    run(made, 16)
    assert (one.runs, other.runs) == (8 + 4, 8)  # the challenger's 1st, 2nd, 4th and 8th


class Wrong(Session):
    """Right until so many runs."""

    def run(self, inputs):
        self.factor = 2.0 if self.runs < self.right else 3.0
        return super().run(inputs)


def wrong_after(right):
    made, one, _, _, settled = contest(1.0, 1.0)
    other = Wrong(one.clock, 0.1)
    other.right = right
    made.challenge(other, lambda *verdict: settled.append(verdict))
    return made, one, other, settled


@pytest.mark.parametrize("right", [0, 1, 3, 7, 15])
def test_one_that_answers_otherwise_has_lost_and_the_batch_gets_the_first_one_s_answer(right):
    made, one, other, settled = wrong_after(right)
    run(made, 60)  # every answer is looked at
    assert [(stays, why) for stays, _, why in settled] == [(False, "it answers otherwise: row 0 is off")]
    assert (made.session, other.runs) == (one, right + 1)


def test_the_batch_before_it_stays_is_compared():
    """What is wrong from its 18th batch on would be seen at the 32nd, after it has stayed."""
    made, one, other, settled = wrong_after(20)
    run(made, 60)
    assert [(stays, why) for stays, _, why in settled] == [(False, "it answers otherwise: row 0 is off")]
    assert (made.session, other.runs) == (one, 21)


def test_one_that_stays_is_compared_as_long_as_the_first_is_there():
    made, one, other, settled = wrong_after(64)  # with the one more before it stayed
    run(made, 40 + 43)
    assert [kept for kept, _, _ in settled] == [True]
    assert made.session is other
    run(made, 100)
    assert [(kept, why) for kept, _, why in settled] == [(True, ""), (False, "it answers otherwise: row 0 is off")]
    assert made.session is one
    made, _, other, settled = wrong_after(64)
    run(made, 40)
    assert made.leave() is other
    run(made, 30)
    assert [kept for kept, _, _ in settled] == [True]
    assert made.session is other


def test_one_that_stays_and_fails_is_the_caller_s_error_and_one_that_fails_last_has_lost():
    made, one, other, _, settled = contest(1.0, 0.1, fails=(21,))  # its twentieth is the last of ten votes
    made.challenge(other, lambda *verdict: settled.append(verdict))
    run(made, 60)
    assert [(kept, why) for kept, _, why in settled] == [(False, "it failed: out of memory")]
    assert made.session is one


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


def test_rows_that_fail_everywhere_say_nothing_of_the_challenger():
    """Else one client that sends what no session can run has the better session closed, for good."""
    made, one, other, _, settled = contest(1.0, 0.1)
    made.challenge(other, lambda *verdict: settled.append(verdict))
    run(made, 9)  # the next are the challenger's
    one.fails = other.fails = range(1000)
    for _ in range(8):
        with pytest.raises(RuntimeError, match="out of memory"):
            made.run(ROWS)
    one.fails = other.fails = ()
    run(made, 200)
    assert [kept for kept, *_ in settled] == [True]


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
