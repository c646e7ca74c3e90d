"""What is chosen when a timer says this or that: a function of what is measured, so the test decides who is fast."""

import json

import pytest
import torch
from torch import nn
from torch.export import Dim

from headrace.runtime.backends.shared.kernel_timer import time_on_cuda
from headrace.runtime.lowering.kernel_choice import Contender, Measured, _disagreement, with_faster_kernels
from headrace.runtime.lowering.kernel_sites import functional


class Block(nn.Module):
    """Two equal convolutions, of which the second ends a residual block."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return (self.second(self.first(x)) + x).relu()


@pytest.fixture(scope="module")
def program():
    with torch.no_grad():
        dynamic = ({0: Dim("batch", min=1, max=64)},)
        return functional(torch.export.export(Block().eval(), (torch.randn(2, 4, 6, 5),), dynamic_shapes=dynamic))


def timer(**milliseconds):
    """A kernel takes what stands under its name and the count of nodes that it replaces; torch a millisecond for each node."""

    def time(contenders):
        return [
            float(len(item.names)) if item.operator == "torch" else milliseconds.get(f"{item.operator}_{len(item.names)}", 99.0)
            for item in contenders
        ]

    return time


def chosen(program, timer, seconds=60.0):
    changed, measured = with_faster_kernels(program, [torch.randn(3, 4, 6, 5)], timer, seconds=seconds)
    kernels = [str(node.target).split(".")[1] for node in changed.graph.nodes if "headrace" in str(node.target)]
    assert len(kernels) == sum(item.chosen for item in measured)
    return kernels, {(item.operator, len(item.names)): item for item in measured}, changed


def test_what_is_slower_or_not_clearly_faster_is_never_chosen(program):
    for times in ({}, {"conv2d_1": 0.98, "conv2d_2": 1.96, "conv2d_3": 2.95, "add_relu_2": 2.0}):
        kernels, measured, changed = chosen(program, timer(**times))
        assert kernels == []
        assert changed is program
        assert {item.why for item in measured.values()} == {"no clear gain over torch"}
        assert all(item.kernel_ms is not None for item in measured.values())


def test_equal_sites_are_measured_once_and_all_of_them_changed(program):
    kernels, measured, _ = chosen(program, timer(conv2d_1=0.5))
    assert kernels == ["conv2d", "conv2d"]
    assert (measured["conv2d", 1].places, measured["conv2d", 1].chosen) == (2, 2)


def test_of_sites_that_overlap_the_one_that_saves_most_stands(program):
    kernels, measured, _ = chosen(program, timer(conv2d_1=0.5, conv2d_3=1.0, add_relu_2=1.4))
    assert kernels == ["conv2d", "conv2d"]  # the first convolution, and the whole of the second
    assert (measured["conv2d", 3].chosen, measured["conv2d", 1].chosen) == (1, 1)
    assert measured["add_relu", 2].why == "another kernel stands there"
    kernels, measured, _ = chosen(program, timer(conv2d_3=2.5, add_relu_2=0.5))
    assert kernels == ["add_relu"]


def test_of_equal_gains_the_larger_stands(program):
    _, measured, _ = chosen(program, timer(conv2d_1=0.5, conv2d_2=1.5, conv2d_3=2.5))
    assert (measured["conv2d", 3].chosen, measured["conv2d", 2].chosen, measured["conv2d", 1].chosen) == (1, 0, 1)


def by_tile(asked, milliseconds):
    """Convolutions take what a function of their tile says; what was asked is noted, by the count of nodes and the tile."""

    def time(contenders):
        asked.extend((len(item.names), tuple(item.tile)) for item in contenders if item.tile)
        return [1.0 if item.operator == "torch" else milliseconds(item.tile) if item.tile else 99.0 for item in contenders]

    return time


def test_the_fastest_tile_is_kept_and_serves_every_epilogue(program):
    asked = []
    _, measured, changed = chosen(program, by_tile(asked, lambda tile: 1.2 - tile[4] / 10))
    assert {item.tile[4] for item in measured.values() if item.operator == "conv2d"} == {4}
    tried = {names: len({tile for count, tile in asked if count == names}) for names in (1, 2, 3)}
    assert sorted(tried.values())[:2] == [2, 2]  # the usual one, and what was found for the third
    put = [node.args[8] for node in changed.graph.nodes if str(node.target) == "headrace.conv2d.default"]
    assert put
    assert all(tile[4] == 4 for tile in put)


def test_tiles_are_not_tried_where_the_usual_one_is_hopeless(program):
    asked = []
    kernels, measured, _ = chosen(program, by_tile(asked, lambda tile: 1.6))
    assert kernels == []
    assert len({tile for _, tile in asked}) == 1
    assert {item.kernel_ms for item in measured.values()} == {1.6, 99.0}


def test_without_time_nothing_is_measured_beyond_torch(program):
    kernels, measured, _ = chosen(program, timer(conv2d_1=0.1), seconds=0.0)
    assert kernels == []
    assert all("were over" in item.why and item.kernel_ms is None for item in measured.values())


def test_what_takes_torch_longest_is_measured_first(program):
    order = []

    def time(contenders):
        order.extend((item.operator, len(item.names)) for item in contenders)
        return timer()(contenders)

    chosen(program, time)
    assert next(item for item in order if item[0] != "torch") == ("conv2d", 3)


def test_a_kernel_that_fails_or_computes_something_else_has_a_reason():
    def contender(result):
        def run():
            if isinstance(result, Exception):
                raise result
            return [result]

        return Contender(names=("add", "relu"), operator="add_relu", run=run)

    wanted = [torch.tensor([1.0, -2.0])]
    assert _disagreement(contender(wanted[0] * 1.0001), wanted) == ""
    assert _disagreement(contender(wanted[0] * 1.2), wanted) == "add_relu does not compute what torch does on this device"
    assert "compute" in _disagreement(contender(wanted[0] * float("nan")), wanted)
    assert _disagreement(contender(RuntimeError("out of\nregisters")), wanted) == "add_relu fails: out of registers"
    assert _disagreement(contender(torch.tensor([3])), [torch.tensor([4])]) == ""


def test_a_kernel_that_cannot_be_recorded_loses(program):
    def time(contenders):
        if any(item.operator == "conv2d" for item in contenders):
            raise RuntimeError("operation not permitted when stream is capturing")
        return timer(add_relu_2=0.5)(contenders)

    kernels, measured, _ = chosen(program, time)
    assert kernels == ["add_relu"]
    assert measured["conv2d", 3].why == "conv2d cannot be measured: operation not permitted when stream is capturing"


def test_a_record_is_read_as_it_was_written(program):
    _, measured, _ = chosen(program, timer(conv2d_3=1.0))
    for item in measured.values():
        assert Measured.from_json(json.loads(json.dumps(item.to_json()))) == item
    data = measured["conv2d", 3].to_json()
    for broken in ({"places": 0}, {"chosen": "1"}, {"more": 1}):
        with pytest.raises((ValueError, TypeError)):
            Measured.from_json({**data, **broken})


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_on_a_gpu_more_work_takes_longer():
    small, large = torch.randn(256, 256, device="cuda"), torch.randn(4096, 4096, device="cuda")
    short, long = time_on_cuda([lambda: [small @ small], lambda: [large @ large]])
    assert 0 < short < long
