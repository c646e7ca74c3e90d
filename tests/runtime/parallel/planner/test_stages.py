"""Where a pipeline is cut: against every cut there is, for small chains."""

import dataclasses
import itertools

import pytest
from torch import nn

from headrace.runtime.parallel.planner.operators import Model, Operator, read_model
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.stages import checkpoints, cut, places, starts

RATES = Rates(linear=1e9, conv=1e9, matmul=1e9, memory=1e30, operator=0.0, links=(Link(0.0, 1e30),))


def chain(works):
    operators = [Operator("input", "input", "", (), (16, 4), 4)]
    for at, work in enumerate(works):
        operators.append(Operator(f"linear_{at}", "linear", str(at), (at,), (16, 4), 4, (f"{at}.weight",), True, work, 1.0))
    return Model(tuple(operators), {f"{at}.weight": 64 for at in range(len(works))})


def cut_of(model, stages, microbatches, schedule="1f1b", memory=1e12, crowding=1.0):
    rates = dataclasses.replace(RATES, crowding=crowding)
    return cut(
        model, rates, stages=stages, axis=0, data=1, data_axis=None, microbatches=microbatches, schedule=schedule,
        optimizer="sgd", memory=memory,
    )  # fmt: skip


@pytest.mark.parametrize("works", [[1e9, 1e9, 1e9, 1e9], [5e9, 1e9, 1e9, 1e9, 1e9, 3e9], [1e9, 8e9, 1e9, 2e9, 2e9, 2e9, 1e9]])
@pytest.mark.parametrize("stages", [2, 3])
def test_the_slowest_stage_is_as_fast_as_any_cut_makes_it(works, stages):
    found = cut_of(chain(works), stages, 8)

    def slowest(ends):
        return max(sum(works[begin:end]) for begin, end in itertools.pairwise((0, *ends, len(works))))

    best = min(slowest(ends) for ends in itertools.combinations(range(1, len(works)), stages - 1))
    assert slowest(found.ends[:-1]) == best
    assert found.seconds == pytest.approx(3 * (sum(works) + 7 * best) / 8 / 1e9)


@pytest.mark.parametrize(
    ("crowding", "shares"),
    [(1.0, 11), (2.0, 8), (4.0, 8), (9.0, 8), (1.25, 8.8)],
    ids=["a core each", "two share one", "one core", "noise", "a little"],
)
def test_ranks_that_wait_leave_their_cores_to_the_others(crowding, shares):
    """Four equal stages and eight microbatches: eleven turns where each rank has a core; no less than all the work takes."""
    assert cut_of(chain([1e9] * 4), 4, 8, crowding=crowding).seconds == pytest.approx(3 * shares / 8)


def test_a_single_microbatch_runs_as_fast_as_one_rank_alone():
    assert cut_of(chain([1e9] * 4), 4, 1, "gpipe", crowding=2.0).seconds == pytest.approx(3 * 4 / 2)


def test_memory_moves_the_cuts():
    model = chain([1e9] * 6)
    free = cut_of(model, 2, 4)
    assert max(free.memory) > min(free.memory)  # the first stage keeps more microbatches
    assert cut_of(model, 2, 4, memory=min(free.memory) / 2) is None
    gpipe = cut_of(model, 2, 4, schedule="gpipe")
    assert gpipe.memory[1] > free.memory[1]


def test_optimizer_states_that_are_shared_out():
    """Of Adam's two numbers for each parameter a quarter is on each of four ranks, who update as much and gather the rest."""
    model, rates = chain([1e9] * 6), dataclasses.replace(RATES, memory=1e4, links=(Link(0.0, 1e30), Link(0.0, 1e3)))
    way = {"stages": 2, "axis": 0, "data": 4, "data_axis": 1, "microbatches": 4, "schedule": "1f1b", "optimizer": "adam"}
    whole, split, least = (cut(model, rates, **way, memory=1e12, zero=zero) for zero in (0, 1, 3))
    size = 3 * 64  # of a stage's parameters
    assert whole.ends == split.ends == (3, 6)
    assert [one - two for one, two in zip(whole.memory, split.memory, strict=True)] == pytest.approx([2 * size * 3 / 4] * 2)
    gathered = 3 * rates.link(1).seconds("all_gather", 64, 4)
    assert split.seconds - whole.seconds == pytest.approx(gathered - 3 / 4 * size / rates.updates)
    # With 3 a quarter of four numbers each, and what is gathered and summed at a time: of this little, all.
    assert [one - two for one, two in zip(whole.memory, least.memory, strict=True)] == pytest.approx(
        [4 * size * 3 / 4 - 2 * size] * 2
    )
    ways = {way: 3 * rates.link(1).seconds(way, 64, 4) for way in ("all_gather", "all_reduce", "reduce_scatter")}
    each = 2 * ways["all_gather"] + ways["reduce_scatter"]  # of a microbatch, in each of the five that one takes after another
    assert least.seconds - split.seconds == pytest.approx(5 * each - ways["all_gather"] - ways["all_reduce"])


def test_a_skip_connection_is_not_cut():
    a = Operator("a", "linear", "a", (0,), (16, 4), 4, ("w",), True, 1e9, 1.0)
    b = Operator("b", "linear", "b", (1,), (16, 4), 4, ("v",), True, 1e9, 1.0)
    both = Operator("both", "pointwise", "", (1, 2), (16, 4), 4, traffic=1.0)
    last = Operator("last", "linear", "last", (3,), (16, 4), 4, ("u",), True, 1e9, 1.0)
    model = Model((chain([]).operators[0], a, b, both, last), {"w": 64, "v": 64, "u": 64})
    assert places(model) == [1, 3]
    assert cut_of(model, 4, 4) is None
    shared = Model(
        (*model.operators[:4], Operator("last", "linear", "", (3,), (16, 4), 4, ("w",), True, 1e9, 1.0)), {"w": 64, "v": 64}
    )
    assert places(shared) == []


def block(width, norm=nn.LayerNorm):
    return nn.Sequential(nn.Linear(width, width), norm(width), nn.ReLU(), nn.Linear(width, width))


def test_blocks_are_computed_again_and_not_what_holds_them():
    model = read_model(nn.Sequential(nn.Linear(8, 8), *(block(8) for _ in range(6))), (4, 8))
    names, share = checkpoints(model)
    assert names == tuple(str(at) for at in range(1, 7))
    assert share == pytest.approx(1 - 5 * 3 / (2 + 6 * 4))  # of 26 values three of each block but one


def test_batch_normalizations_are_not_run_twice():
    assert checkpoints(read_model(nn.Sequential(*(block(8, nn.BatchNorm1d) for _ in range(6))), (4, 8))) == ((), 1.0)
    assert checkpoints(read_model(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (4, 8))) == ((), 1.0)


def test_a_stage_begins_with_a_module_that_is_called_once():
    relu = nn.ReLU()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.relu = relu

        def forward(self, rows):
            rows = self.relu(self.parts[0](rows)).sigmoid()
            return self.parts[2](self.relu(self.parts[1](rows)))

    model = read_model(Net(), (4, 8))
    begun = [model.operators[at].name for at in starts(model)]
    assert begun == ["linear", "linear_1", "linear_2"]
    assert [model.operators[at + 1].name for at in places(model)] == ["linear_1", "linear_2"]
