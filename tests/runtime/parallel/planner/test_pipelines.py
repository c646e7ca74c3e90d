"""Pipelines whose stages are split or computed again, on simulated meshes; followed by real ranks: test_apply."""

import dataclasses

import pytest
import torch
from torch import nn

from headrace.runtime.parallel.planner.pipelines import piped_plans
from headrace.runtime.parallel.planner.plan import plan
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.stages import checkpoints, cut
from tests.runtime.parallel.planner.simulated import FAST, SLOW, deep, rates, read


class Block(nn.Module):
    """Most of what its backward pass needs is inside."""

    def __init__(self, width, wide):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(width, wide), nn.Linear(wide, wide), nn.Linear(wide, width)

    def forward(self, rows):
        return rows + self.last(torch.relu(self.second(torch.relu(self.first(rows)))))


def blocks(count=8, width=64, wide=1024):
    return lambda: nn.Sequential(*(Block(width, wide) for _ in range(count)))


def fastest(found):
    return min(found, key=lambda one: one.seconds)


def titled(found, *parts, without=()):
    return [one for one in found if all(part in one.title for part in parts) and not any(part in one.title for part in without)]


def test_weights_are_split_over_fast_links_where_the_memory_is_small():
    model, memory = read(deep(), 1024, 4096), 2.2e9
    found = plan(model, (4, 2), rates(SLOW, FAST), memory)
    best = found.best
    assert best.title == "pipeline of 4 stages over data, 32 parameters split over model"
    assert (best.axis, best.tensor, best.zero, best.checkpoint) == ("data", "model", 0, ())
    assert best.memory <= memory
    assert best.inputs == ("broadcast", "broadcast")
    assert set(best.layouts.values()) <= {("broadcast", "split(0)"), ("broadcast", "split(1)")}
    assert all(words[0] in ("broadcast", "partial_sum") for *_, before, after in best.boxed for words in (before, after))
    (by_rows,) = titled([one for one in found.others if one.fits], "pipeline of 4", "data parallel", without=("ZeRO",))
    assert by_rows.seconds > best.seconds
    assert by_rows.memory > best.memory


def test_slow_links_split_no_weights_within_stages():
    """Every layer would exchange its activations over them."""
    found, _ = piped_plans(read(deep(), 1024, 4096), (4, 2), rates(FAST, SLOW), 80e9, "adam")
    assert titled(found, "pipeline of 2 stages over model", "split over data")
    assert not titled(found, "pipeline of 4 stages over data", "split over model")
    assert titled(found, "pipeline of 4 stages over data", "data parallel over model")


def test_what_is_kept_whole_is_not_split():
    model, kept = read(deep(), 1024, 4096), [f"{2 * at}.weight" for at in range(32)]
    found, _ = piped_plans(model, (4, 2), rates(SLOW, FAST), 80e9, "adam", kept[1:])
    split = titled(found, "pipeline of 4 stages over data", "split over model")
    assert all(set(one.layouts) == {"0.weight"} for one in split)
    assert not titled(piped_plans(model, (4, 2), rates(SLOW, FAST), 80e9, "adam", kept)[0], "split over")


def test_rows_weights_and_stages_each_over_an_axis():
    found, remarks = piped_plans(read(deep(16, 2048), 1024, 2048), (2, 2, 2), rates(SLOW, FAST, FAST), 80e9, "adam")
    assert not remarks
    assert {(one.axis, one.tensor) for one in found} == {
        (axis, tensor) for axis in ("data", "model", "axis2") for tensor in ("model", "axis2") if axis != tensor
    }
    for one in found:
        assert sorted(one.inputs) == ["broadcast", "broadcast", "split(0)"]
        assert one.zero_axis in ("", "data", "model", "axis2")
        assert len({one.axis, one.tensor, one.zero_axis} - {""}) == 2 + bool(one.zero)
    assert {one.zero for one in found} == {0, 1}


def test_what_a_mesh_of_three_axes_takes():
    model = read(deep(4, 64), 64, 64)
    found, remarks = piped_plans(model, (2, 1, 1), rates(FAST, FAST, FAST), 80e9, "adam")
    assert (found, len(remarks)) == ([], 1)
    assert "on a mesh of three axes, rows or weights are split over the others" in remarks[0]
    found, remarks = piped_plans(model, (2, 1, 1, 1), rates(FAST, FAST, FAST, FAST), 80e9, "adam")
    assert (found, remarks) == ([], ["no pipeline: it takes a mesh of up to three axes"])
    found, _ = piped_plans(model, (2, 1, 2), rates(FAST, FAST, FAST), 80e9, "sgd")
    assert {(one.axis, one.tensor) for one in found} == {("data", "axis2"), ("axis2", "data")}


def test_time_and_memory_of_split_stages_by_hand():
    """Two stages of two layers without a bias, each layer split in two: half the work and half the weights of each."""
    own = Rates(linear=1e9, conv=1e9, matmul=1e9, memory=1e30, operator=0.0, links=(Link(0.0, 1e30), Link(0.0, 1e12)))
    model = read(lambda: nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4))), 32, 64)
    found, _ = piped_plans(model, (2, 2), own, 1e12, "sgd")
    split = fastest([one for one in titled(found, "split over model") if one.axis == "data" and len(one.layouts) == 4])
    work = 4 * 3 * 2 * 32 * 64 * 64 / 2 / 1e9  # of all layers, forward and backward, of which each rank has half
    turns = (split.microbatches + 1) / split.microbatches / 2
    assert split.seconds == pytest.approx(work * turns, rel=1e-3)
    weights = 2 * 64 * 64 * 4 / 2 * 2  # of two layers, half of each, with gradients
    rows = 32 / split.microbatches
    # Of a microbatch what goes in, a result that is split and one that is whole; two of those are under way in the first stage.
    assert split.memory == pytest.approx(weights + 2 * rows * 4 * (64 + 32 + 64))


def test_activations_are_computed_again_only_where_memory_demands_it():
    model, links = read(blocks(), 4096, 64), rates(SLOW)
    (free,), _ = piped_plans(model, (4,), links, 80e9, "adam")
    assert free.checkpoint == ()
    memory = 0.3 * free.memory
    found = plan(model, (4,), links, memory)
    (plain,) = titled(found.others, "pipeline of 4 stages over data", without=("again",))
    assert found.best.title == "pipeline of 4 stages over data, activations computed again"
    assert found.best.checkpoint == tuple(str(at) for at in range(8))
    assert found.best.memory <= memory
    assert free.seconds < found.best.seconds < plain.seconds  # which takes more microbatches, each of few rows
    assert plain.microbatches > found.best.microbatches
    (split, again), _ = piped_plans(model, (4,), links, 1e6, "adam")  # where nothing fits, what needs least
    assert not split.fits
    assert not again.fits
    assert split.memory > again.memory


def test_what_is_computed_again_by_hand():
    """Two microbatches in a stage of two blocks: what goes in and comes out stays, and the inside of one at a time."""
    own = Rates(linear=1e9, conv=1e9, matmul=1e9, memory=1e30, operator=0.0, links=(Link(0.0, 1e30),))
    model = read(blocks(4, 8, 32), 16, 8)
    names, _ = checkpoints(model)
    assert names == ("0", "1", "2", "3")
    way = {"stages": 2, "axis": 0, "data": 1, "data_axis": None, "microbatches": 2, "schedule": "gpipe", "optimizer": "sgd"}
    plain, again = (cut(model, own, **way, memory=1e12, again=modules) for modules in ((), names))
    weights = sum(model.weights.values())  # of half the model, with gradients
    value, wide = 16 * 8 * 4, 16 * 32 * 4
    inside = 4 * wide + value  # two layers and their relu, and the last layer before it is added
    assert plain.memory[1] == pytest.approx(weights + value + 2 * (inside + value))
    assert again.memory[1] == pytest.approx(weights + value + 2 * value + inside / 2)
    assert again.seconds == pytest.approx(4 / 3 * plain.seconds)


def test_a_stage_does_not_end_inside_of_what_is_computed_again():
    model = read(lambda: nn.Sequential(nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))), nn.Linear(8, 8)), 16, 8)
    own = dataclasses.replace(rates(FAST), operator=0.0)
    way = {"stages": 2, "axis": 0, "data": 1, "data_axis": None, "microbatches": 4, "schedule": "1f1b", "optimizer": "sgd"}
    assert cut(model, own, **way, memory=1e12).ends[0] in (2, 3)
    assert cut(model, own, **way, memory=1e12, again=("0",)).ends[0] == 3
    assert cut(model, own, **{**way, "stages": 3}, memory=1e12, again=("0",)) is None
