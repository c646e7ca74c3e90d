"""What is chosen when a timer says this or that: a function of what is measured, so the test decides who is fast."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.export import Dim

from headrace.runtime.backends.shared.kernel_timer import time_on_cuda
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import anonymous, read_program, runnable, write_program
from headrace.runtime.capture.rewrite import ProgramEditor
from headrace.runtime.lowering.kernel_choice import Contender, Measured, _disagreement, with_faster_kernels
from headrace.runtime.lowering.kernel_sites import functional
from headrace.runtime.lowering.layout import channels_last
from headrace.runtime.lowering.precision import in_precision
from headrace.runtime.passes import run_passes
from tests.benchmarks.models import build


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
    names = (str(node.target).split(".") for node in changed.graph.nodes)
    kernels = [parts[1] for parts in names if parts[0] == "headrace" or "cudnn" in ".".join(parts)]
    assert len(kernels) == sum(item.chosen for item in measured)
    return kernels, {(item.operator, len(item.names)): item for item in measured}, changed


def test_what_is_slower_or_not_clearly_faster_is_never_chosen(program):
    for times in ({}, {"conv2d_1": 0.98, "conv2d_2": 1.96, "conv2d_3": 2.95, "add_relu_2": 2.0}):
        kernels, measured, changed = chosen(program, timer(**times))
        assert kernels == []
        assert changed is program
        ours = [item for item in measured.values() if "cudnn" not in item.operator]
        assert {item.why for item in ours} == {"no clear gain over torch"}
        assert all(item.kernel_ms is not None for item in ours)


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
    assert {item.kernel_ms for item in measured.values() if "cudnn" not in item.operator} == {1.6, 99.0}


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


def test_on_a_cpu_cudnns_operators_are_no_contenders(program):
    kernels, measured, _ = chosen(program, timer(cudnn_convolution_add_relu_3=0.1))
    assert kernels == []
    found = measured["cudnn_convolution_add_relu", 3]
    assert (found.kernel_ms, found.why) == (None, "cudnn_convolution_add_relu does not run on this device")


def test_cudnns_fused_operator_stands_where_it_is_fastest(program, cudnn_on_cpu, tmp_path):
    kernels, measured, changed = chosen(
        program, timer(conv2d_3=1.2, conv2d_1=0.9, add_relu_2=1.9, cudnn_convolution_add_relu_3=0.4)
    )
    assert kernels == ["conv2d", "cudnn_convolution_add_relu"]
    found = measured["cudnn_convolution_add_relu", 3]
    assert (found.torch_ms, found.kernel_ms, found.chosen, found.tile) == (3.0, 0.4, 1, None)
    assert measured["conv2d", 3].why == "another kernel stands there"
    rows = torch.randn(5, 4, 6, 5)
    with torch.no_grad():
        torch.testing.assert_close(runnable(changed)(rows), runnable(program)(rows))
    kernels, _, _ = chosen(program, timer(conv2d_3=0.3, cudnn_convolution_add_relu_3=0.4))
    assert kernels == ["conv2d"]


def test_a_resnet_is_cudnns_from_end_to_end_and_lies_channels_last(cudnn_on_cpu):
    """No call converts a layout: neither an image nor a weight, nor what one layer gives the next."""
    graph, _ = run_passes(capture(build("resnet50", 32, tiny=True), torch.randn(2, 3, 32, 32)))
    half = channels_last(in_precision(functional(graph.program), "bf16"))
    fast = timer(cudnn_convolution_relu_2=0.1, cudnn_convolution_add_relu_3=0.1)
    changed, _ = with_faster_kernels(half, [torch.randn(2, 3, 32, 32)], fast, seconds=60)
    values = {}
    editor = ProgramEditor(changed)
    editor.watch([torch.randn(4, 3, 32, 32)], values.__setitem__)
    nodes = [node for node in editor.graph.nodes if "conv" in str(node.target)]
    names = [str(node.target).split(".")[1] for node in nodes]
    blocks = 5
    assert names.count("cudnn_convolution_relu") == 1 + 2 * blocks
    assert names.count("cudnn_convolution_add_relu") == blocks
    assert len(names) == 1 + 3 * blocks + 4  # and what brings the residual to other channels
    for node in nodes:
        images = [values[item] for item in (node, *node.all_input_nodes) if values[item].dim() == 4]
        assert all(value.is_contiguous(memory_format=torch.channels_last) for value in images), node


def test_cudnn_is_measured_before_what_must_be_compiled(program, cudnn_on_cpu):
    order = []

    def time(contenders):
        order.extend(item.operator for item in contenders if item.operator != "torch")
        return timer()(contenders)

    chosen(program, time)
    assert order[0] == "cudnn_convolution_add_relu"


def test_tiles_that_cudnn_leaves_far_behind_are_not_tried(program, cudnn_on_cpu):
    def hopeless(item):
        return item.operator != "torch" and len(item.names) < 3

    def tried(cudnn_ms):
        asked = []

        def time(contenders):
            asked.extend(tuple(item.tile) for item in contenders if item.tile and len(item.names) == 3)
            return [cudnn_ms if "cudnn" in item.operator else 99.0 if hopeless(item) else 1.0 for item in contenders]

        chosen(program, time)
        return len(set(asked))

    assert tried(0.5) == 1
    assert tried(0.8) > 1


def test_cudnns_operator_that_computes_something_else_stands_nowhere(program, wrong_cudnn_on_cpu):
    kernels, measured, _ = chosen(program, timer(cudnn_convolution_add_relu_3=0.1))
    assert kernels == []
    assert "does not compute what torch does" in measured["cudnn_convolution_add_relu", 3].why


def test_a_program_with_cudnns_operators_opens_without_headrace(cudnn_on_cpu, tmp_path):
    """Its weights lie in memory as cuDNN wants them, so that no call converts them; the same for another batch."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3, groups=4)

        def forward(self, images):
            return self.second(self.first(images).relu()).relu()

    model = Two().eval()
    with torch.no_grad():
        exact = torch.export.export(
            model, (torch.randn(2, 8, 9, 9),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},), strict=False
        )
        half = channels_last(in_precision(functional(exact), "bf16"))
        changed, _ = with_faster_kernels(half, [torch.randn(3, 8, 9, 9)], timer(cudnn_convolution_relu_2=0.1), seconds=60)
    write_program(anonymous(changed), tmp_path / "model.pt2")
    code = (
        "import sys, torch\n"
        "program = torch.export.load(sys.argv[1])\n"
        "nodes = [node for node in program.graph.nodes if 'cudnn_convolution_relu' in str(node.target)]\n"
        "names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}\n"
        "weights = [program.state_dict[names[node.args[1].name]] for node in nodes]\n"
        "print(len(nodes), [weight.is_contiguous(memory_format=torch.channels_last) for weight in weights])\n"
        "print([weight.dtype for weight in weights], [weight.stride()[1] for weight in weights])\n"
        "try:\n"
        "    program.module(check_guards=False)(torch.randn(4, 8, 9, 9))\n"
        "except NotImplementedError as error:\n"
        "    print('cudnn_convolution_relu' in str(error), 'headrace' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "model.pt2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 [True, True]", "[torch.bfloat16, torch.bfloat16] [1, 1]", "True False"]
    rows = torch.randn(5, 8, 9, 9)
    with torch.no_grad():
        given = runnable(read_program(tmp_path / "model.pt2", Target()))(rows)
        torch.testing.assert_close(given.float(), model(rows), rtol=0, atol=0.03)


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
