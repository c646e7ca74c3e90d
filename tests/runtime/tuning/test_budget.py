import pytest

from headrace.runtime.tuning.budget import Budget


class Clocks:
    """Of the wall, of the thread and of all that runs for it."""

    def __init__(self):
        self.wall = self.own = self.everyone = 0.0

    def budget(self, seconds, **more):
        return Budget(
            seconds, **{"threads": 2, **more}, wall=lambda: self.wall, own=lambda: self.own, everyone=lambda: self.everyone
        )

    def run(self, wall, own, everyone):
        self.wall, self.own, self.everyone = self.wall + wall, self.own + own, self.everyone + everyone


@pytest.mark.parametrize("busy", [1.0, 3.0], ids=["quiet", "beside others"])
def test_work_counts_and_not_how_long_others_made_it_take(busy):
    clocks = Clocks()
    budget = clocks.budget(10)
    clocks.run(2 * busy, 2, 2)  # alone
    assert budget.used == 2
    clocks.run(3 * busy, 0.5, 6)  # on both cores, by threads of a library
    assert (budget.used, budget.left) == (5, 5)
    clocks.run(4 * busy, 1, 8)
    assert budget.left == 1
    clocks.run(2 * busy, 2, 4)
    assert budget.left == 0


def test_a_quarter_more_is_borne():
    clocks = Clocks()
    budget = clocks.budget(10)
    clocks.run(9, 9, 9)
    assert budget.bears(3.5)
    assert not budget.bears(3.6)


def test_the_wall_ends_it_where_nothing_moves():
    clocks = Clocks()
    budget = clocks.budget(10)
    clocks.run(39, 1, 1)
    assert budget.left == 9
    clocks.run(2, 0, 0)
    assert budget.left == 0


def test_the_pace_tells_what_part_of_the_time_was_work():
    clocks = Clocks()
    budget = clocks.budget(10)
    assert budget.pace == 1
    clocks.run(8, 2, 2)
    assert budget.pace == 0.25


def test_on_a_gpu_the_wall_counts():
    clocks = Clocks()
    budget = clocks.budget(10, device="cuda")
    clocks.run(4, 0, 0)
    assert (budget.used, budget.left) == (4, 6)


def test_the_clocks_of_this_process_go_forward():
    budget = Budget(5, threads=1)
    before = budget.used
    sum(range(1_000_000))
    assert budget.used > before
    assert 0 < budget.left < 5
