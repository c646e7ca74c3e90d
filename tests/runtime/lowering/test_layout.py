"""Channels last: what is stored and converted, and that nothing else changes."""

import pytest
import torch
from torch import nn

from headrace.runtime import backends
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable
from headrace.runtime.lowering.layout import channels_last
from headrace.runtime.lowering.precision import in_precision
from headrace.runtime.passes import discover, run_passes
from headrace.specs import BF16, FP32


class Views(nn.Module):
    """Convolutions whose result is viewed as if it were contiguous, and that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, groups=6, padding="same")
        self.third = nn.Conv2d(6, 6, 3, groups=6)
        self.third.weight = self.second.weight
        self.head = nn.Linear(6 * 5 * 3, 4)

    def forward(self, x):
        x = self.third(self.second(self.first(x).relu())) + x.mean((1, 2, 3), keepdim=True)
        return self.head(x.view(x.shape[0], -1))


def checked(module, *shape):
    """The program in channels last, checked in float64 against the module on dense and strided rows."""
    module = module.double().eval()
    captured = capture(module, torch.randn(2, *shape, dtype=torch.float64))
    result = channels_last(captured.program)
    for batch in (1, 2, 5):
        dense = torch.randn(batch, *shape, dtype=torch.float64)
        strided = torch.randn(2 * batch, *reversed(shape), dtype=torch.float64).transpose(1, -1)[::2]
        for rows in (dense, strided):
            with torch.no_grad():
                torch.testing.assert_close(runnable(result)(rows)[0], module(rows), rtol=1e-10, atol=1e-10)
    return captured.program, result


def conversions(program):
    return [node for node in program.graph.nodes if node.kwargs.get("memory_format") is torch.channels_last]


def test_weights_are_stored_and_the_input_is_converted_once():
    _, result = checked(Views(), 3, 7, 5)
    filters = [value for value in result.state_dict.values() if value.ndim == 4]
    assert len(filters) == 2  # the shared one is stored once
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in filters)
    (conversion,) = conversions(result)
    assert conversion.args[0].op == "placeholder"
    assert not [node for node in result.graph.nodes if "view" in str(node.target)]


def test_activations_come_out_in_channels_last():
    program = channels_last(
        capture(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3)), torch.randn(2, 3, 9, 9)).program
    )
    (result,) = runnable(program)(torch.randn(2, 3, 9, 9))
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_with_the_conversion_to_another_precision_it_is_one_step(conv_net):
    program = in_precision(capture(conv_net, torch.randn(2, 3, 8, 8)).program, "bf16")
    (conversion,) = conversions(channels_last(program))
    assert conversion.args[1] is torch.bfloat16


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 3), (4,)),
        (nn.Conv1d(3, 4, 3), (3, 9)),
        (nn.AvgPool2d(2), (3, 8, 8)),
    ],
)
def test_left_as_it_is(module, shape):
    program = capture(module.eval(), torch.randn(2, *shape)).program
    assert channels_last(program) is program


def test_a_program_with_strides_of_its_own_is_left_as_it_is():
    class Strided(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            y = self.conv(x).contiguous()
            return y.as_strided((y.shape[0], 4, 36), (144, 36, 1))

    program = capture(Strided().eval(), torch.randn(2, 3, 8, 8)).program
    assert channels_last(program) is program


def test_the_reference_and_the_portable_graph_know_nothing_of_it(conv_net, tmp_path):
    captured = run_passes(capture(conv_net, torch.randn(2, 3, 8, 8)))[0]
    assert "channels_last" not in [item.name for item in discover()]
    eager = backends.get("eager")
    for precision, some in ((FP32, 0), (BF16, 1)):
        target = Target(precision=precision)
        (name,) = eager.prepare(captured, target, tmp_path)
        assert len(conversions(torch.export.load(tmp_path / name))) == some
    rows = torch.randn(3, 3, 8, 8)
    (given,) = runnable(torch.export.load(tmp_path / "model.pt2"))(rows)
    assert torch.equal(given, runnable(captured.program)(rows)[0])
