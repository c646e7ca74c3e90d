"""On a CPU the operators are their references here; backends/test_kernels.py runs the whole in Triton's interpreter."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headrace.errors import BackendError
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import isolated, read_program, runnable, write_program
from headrace.runtime.lowering.int8_convolutions import in_int8, stored_layers
from headrace.runtime.lowering.kernel_sites import functional
from headrace.runtime.lowering.layout import channels_last
from headrace.runtime.lowering.precision import in_precision
from headrace.runtime.passes import run_passes
from headrace.specs import INT8


class Bottlenecks(nn.Module):
    """A stem, a block whose shortcut is a convolution, and one whose shortcut is none, as residual networks have them."""

    def __init__(self):
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.MaxPool2d(2)
        self.down1, self.mid1, self.up1 = (
            nn.Conv2d(32, 32, 1),
            nn.Conv2d(32, 32, 3, padding=1, bias=False),
            nn.Conv2d(32, 64, 1),
        )
        self.short = nn.Conv2d(32, 64, 1)
        self.down2, self.mid2, self.up2 = nn.Conv2d(64, 32, 1), nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 64, 1)
        self.head = nn.Linear(64, 7)

    def forward(self, x):
        x = self.pool(self.stem(x).relu())
        x = (self.up1(self.mid1(self.down1(x).relu()).relu()) + self.short(x)).relu()
        x = (x + self.up2(self.mid2(self.down2(x).relu()).relu())).relu()
        return self.head(x.mean((2, 3)))


class Mixed(nn.Module):
    """What int8 leaves alone: groups, other activations, and a result that is read in floats and in levels."""

    def __init__(self):
        super().__init__()
        self.stem, self.grouped = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 3, padding="same", groups=32)
        self.point, self.even = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 48, (3, 2), dilation=(1, 2), stride=(2, 1), padding=(1, 2))
        self.last, self.head = nn.Conv2d(32, 48, 1, bias=False), nn.Linear(48, 7)

    def forward(self, x):
        x = F.silu(self.point(self.grouped(self.stem(x))))
        return self.head(torch.sigmoid(self.even(x)).mean((2, 3)) * self.last(x).amax((2, 3)))


class Pooled(nn.Module):
    """Poolings between convolutions, as in a VGG; one that is read in floats too, and one before a padded convolution."""

    def __init__(self):
        super().__init__()
        self.stem, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.third, self.fourth = nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 1)
        self.fifth, self.pool, self.head = nn.Conv2d(32, 32, 3, padding=1), nn.MaxPool2d(2, 1), nn.Linear(64, 7)

    def forward(self, x):
        x = self.pool(self.second(self.pool(self.stem(x).relu())).relu())
        x = self.pool(self.third(x))
        y = self.fifth(self.pool(self.fourth(x)))
        return self.head(torch.cat([x.mean((2, 3)), y.mean((2, 3))], 1))


class Shrunk(nn.Module):
    """A pooling of what no convolution gives, and one of what two poolings read."""

    def __init__(self):
        super().__init__()
        self.stem, self.second, self.third = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 1)
        self.pool, self.other, self.head = nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.Linear(64, 7)

    def forward(self, x):
        x = F.silu(self.stem(x))
        y = self.second(self.pool(torch.tanh(x)))
        z = self.third(self.pool(x)) - self.other(x).mean((2, 3), keepdim=True)
        return self.head(torch.cat([y.mean((2, 3)), z.mean((2, 3))], 1))


class Plain(nn.Module):
    def __init__(self, channels=3, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, 32, 1, groups=groups)

    def forward(self, x):
        return self.conv(x)


def images(count, *, seed=0, channels=3):
    random = np.random.default_rng(seed)
    shape = (count, channels, 18, 14)
    return (random.normal(size=shape) + 2 * random.normal(size=(count, channels, 1, 1))).astype(np.float32)


@pytest.fixture
def floats():
    """A module's program in floats, and its layers in float32."""

    def make(module, precision="fp32", channels=3):
        torch.manual_seed(0)
        module = module().eval() if isinstance(module, type) else module.eval()
        captured, _ = run_passes(capture(module, torch.from_numpy(images(2, channels=channels))))
        exact = functional(isolated(captured.program))
        return module, channels_last(in_precision(exact, precision)), stored_layers(exact)

    return make


def kernels(program):
    return Counter(
        str(node.target).split(".")[1] for node in program.graph.nodes if getattr(node.target, "namespace", "") == "headrace"
    )


def in_both(module, expected, slow=""):
    return [pytest.param(module, expected, one, marks=pytest.mark.slow if one == slow else []) for one in ("fp32", "bf16")]


@pytest.mark.parametrize(
    ("module", "expected", "precision"),
    [
        # The stem gives levels to the pooling; two convolutions give levels to each other only, and the last one gives floats.
        *in_both(Bottlenecks, {"conv2d_int8": 8, "max_pool2d": 1, "dequantize": 1}, slow="fp32"),
        *in_both(Mixed, {"conv2d_int8": 3, "quantize": 2, "dequantize": 3}, slow="bf16"),
        # The first pooling gives the levels that a padded convolution reads, the second takes those of the one before it; what
        # is read in floats too, and levels with a zero point before a padded convolution, are quantized after the pooling.
        *in_both(Shrunk, {"conv2d_int8": 2, "quantize": 2, "dequantize": 2}, slow="fp32"),
        *in_both(Pooled, {"conv2d_int8": 5, "max_pool2d": 2, "quantize": 2, "dequantize": 3}, slow="bf16"),
    ],
)
def test_values_stay_levels_between_convolutions(floats, module, precision, expected):
    model, program, layers = floats(module, precision)
    before = str(program.graph)
    changed = in_int8(program, layers, Calibration([images(24)]))
    assert kernels(changed) == expected
    assert str(program.graph) == before
    held, agreeing, count = copy.deepcopy(model).double(), 0, 0
    for batch in (1, 2, 5, 32):
        stored = torch.from_numpy(images(2 * batch, seed=batch)).contiguous(memory_format=torch.channels_last)
        rows = stored[::2]
        with torch.no_grad():
            wanted, (given,) = held(rows.double()), runnable(changed)(rows)
        assert given.dtype == torch.float32
        assert (given - wanted).abs().mean() < 0.05 * wanted.abs().mean()
        agreeing, count = agreeing + int((given.argmax(1) == wanted.argmax(1)).sum()), count + batch
    assert agreeing >= 0.9 * count


def fake(value, low, high, *, symmetric=False):
    """float64 values at their levels, written down independently: 256 levels from low to high, of which one is 0, or 0 and 127
    levels to the largest absolute value."""
    scale = np.float32(max(-low, high) / 127 if symmetric else (high - low) / 255)
    zero = 0 if symmetric else np.clip(np.round(-128 - low / scale), -128, 127)
    # Divided in float32, as is defined: bfloat16 values often lie half way between two levels.
    return (np.clip(np.round(value.astype(np.float32) / scale) + zero, -128, 127) - zero) * np.float64(scale)


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_convolution_computes_what_its_levels_say(floats, precision, shift):
    """With `shift` the levels of x are not centered."""
    model, program, layers = floats(Plain(32), precision, channels=32)
    rows = images(16, channels=32) + np.float32(shift)
    changed = in_int8(program, layers, Calibration([rows]))
    weight, bias = (item.detach().double().numpy() for item in (model.conv.weight, model.conv.bias))
    sizes = np.abs(weight).max((1, 2, 3), keepdims=True) / 127
    weight = np.round(weight / sizes) * sizes  # of the float32 weights, whatever the program computes in
    if precision == "bf16":
        rows = torch.from_numpy(rows).bfloat16().float().numpy()
    with torch.no_grad():
        (measured,) = runnable(program)(torch.from_numpy(rows))
    low, high = float(measured.min()), float(measured.max())
    x = fake(rows.astype(np.float64), float(rows.min()), float(rows.max()))
    exact = np.einsum("nchw,kc->nkhw", x, weight[:, :, 0, 0]) + bias.reshape(-1, 1, 1)
    wanted = fake(exact, low, high)
    (given,) = runnable(changed)(torch.from_numpy(rows))
    step = (high - low) / 255
    differing = np.abs(given.numpy() - wanted) > (0.01 * step if precision == "fp32" else 0.01 * np.abs(wanted) + 0.01 * step)
    assert differing.mean() < 0.002  # where a float32 sum lies on the border of two levels
    assert np.abs(given.numpy() - wanted).max() < 1.1 * step + 0.01 * np.abs(wanted).max()


class Between(nn.Module):
    """Levels with a zero point go in, through a sum, and out; the padded convolution reads some without."""

    def __init__(self):
        super().__init__()
        self.first, self.padded, self.last = nn.Conv2d(32, 40, 1), nn.Conv2d(40, 36, 3, padding=1), nn.Conv2d(36, 32, 1)

    def forward(self, x):
        return torch.relu(
            self.last(torch.relu(self.padded(torch.relu(self.first(x) + 0.5 * self.first(-x).mean((1, 2, 3), keepdim=True)))))
            + x
        )


def test_zero_points_stand_where_nothing_is_padded(floats):
    model, program, layers = floats(Between, "fp32", channels=32)
    rows = images(24, channels=32) + np.float32(0.7)
    changed = in_int8(program, layers, Calibration([rows]))
    levels = {n.name: n for n in changed.graph.nodes if "quantize" in str(n.target) and n.op == "call_function"}
    zeros = {}
    for name, node in levels.items():
        zeros[name] = int(changed.state_dict[changed.graph_signature.inputs_to_parameters[node.args[2].name]])
    assert 0 in zeros.values()
    assert any(zero != 0 for zero in zeros.values())
    images_ = torch.from_numpy(images(8, seed=5, channels=32) + np.float32(0.7))
    with torch.no_grad():
        wanted, (given,) = model.double()(images_.double()), runnable(changed)(images_)
    assert (given - wanted).abs().mean() < 0.03 * wanted.abs().mean()


def test_relief_keeps_those_that_lose_most_in_floats(floats):
    class Outlier(nn.Module):
        """The second convolution reads a tensor one of whose channels drowns the others."""

        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Conv2d(32, 32, 1) for _ in range(3))
            self.register_buffer("sizes", torch.ones(32, 1, 1))
            self.sizes[3] = 1e4

        def forward(self, x):
            return self.third(self.second(self.first(x) * self.sizes) / 1e3)

    _, program, layers = floats(Outlier(), channels=32)
    calibration = Calibration([images(16, channels=32)])
    assert kernels(in_int8(program, layers, calibration))["conv2d_int8"] == 3
    known = dict(calibration.of_program)
    changed = in_int8(program, layers, calibration, INT8.with_more_in_floats)
    convolutions = [node for node in changed.graph.nodes if "headrace.conv2d_int8" in str(node.target)]
    (left,) = (node for node in convolutions if node.args[0].meta["val"].is_floating_point())
    assert left.args[1].name == [node.args[1].name for node in program.graph.nodes if "aten.conv2d" in str(node.target)][1]
    assert all(calibration.of_program[name] is spread for name, spread in known.items())  # the images ran once
    assert calibration.of_portable == {}


def test_it_says_why_it_cannot_be(floats):
    _, program, layers = floats(Plain())
    with pytest.raises(BackendError, match="no convolution with stored weights, one group and at least 32 input channels"):
        in_int8(program, layers, Calibration([images(16)]))
    _, program, layers = floats(Plain(32, groups=2), channels=32)
    with pytest.raises(BackendError, match="one group"):
        in_int8(program, layers, Calibration([images(16, channels=32)]))
    _, program, layers = floats(Plain(32), channels=32)
    broken = images(16, channels=32)
    broken[11, 2, 3, 1] = np.inf
    with pytest.raises(BackendError, match="NaN or infinite"):
        in_int8(program, layers, Calibration([broken]))
    with pytest.raises(BackendError, match="every layer of this graph would stay in floats"):
        in_int8(program, layers, Calibration([images(16, channels=32)]), INT8.with_more_in_floats)


def test_nothing_but_zeros_has_levels_too(floats):
    model = Plain(32)
    nn.init.zeros_(model.conv.weight)
    nn.init.zeros_(model.conv.bias)
    _, program, layers = floats(model, channels=32)
    changed = in_int8(program, layers, Calibration([images(16, channels=32)]))
    assert not runnable(changed)(torch.from_numpy(images(3, channels=32)))[0].any()


def test_it_is_stored_and_read_again(floats, tmp_path):
    _, program, layers = floats(Bottlenecks, "bf16")
    changed = in_int8(program, layers, Calibration([images(24)]))
    write_program(changed, tmp_path / "program.pt2")
    again = read_program(tmp_path / "program.pt2", Target())
    rows = torch.from_numpy(images(3, seed=5))
    assert torch.equal(runnable(again)(rows)[0], runnable(changed)(rows)[0])
    small = sum(value.nbytes for name, value in again.state_dict.items() if "levels" in name)
    assert small == sum(weight.numel() for name, (weight, _) in layers.items() if weight.shape[1] >= 32)
