"""Unusual modules that can become a graph: each computes what it computes in float64, and is as it was before."""

import copy
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import headrace
from headrace import GraphConfig
from headrace.runtime.capture.capture import capture


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))


@torch.jit.script
def scripted(x):
    rows, columns = x.shape
    return (x * torch.sigmoid(x)).view(rows, 2, columns // 2).flatten(1)


class Of(nn.Module):
    """A module of a function of the module and its input, and of parts."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def linear(inputs=4, outputs=4):
    return nn.Linear(inputs, outputs)


def hooked():
    layer = linear()
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    layer.register_forward_hook(lambda module, inputs, output: output * 2)
    return Of(lambda self, x: self.layer(x), layer=layer)


class Collects(nn.Module):
    """A hook leaves a feature in a dict of the module, which the forward pass goes on with."""

    def __init__(self):
        super().__init__()
        self.layer, self.features = linear(), {}
        self.layer.register_forward_hook(lambda module, inputs, output: self.features.update(out=output))

    def forward(self, x):
        self.layer(x)
        return self.features["out"] * 2


class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.log, self.calls, self.cache = linear(), [0], 0, {}

    def forward(self, x):
        self.calls += 1
        self.log.append(x.shape[0])
        self.cache.setdefault(x.shape[1], torch.arange(4.0))
        random.random()
        np.random.rand()
        torch.rand(1)
        return self.layer(x) + self.cache[4]


def test_side_effects_are_undone():
    module = Logs()
    capture(module, torch.randn(3, 4))
    assert (module.log, module.calls, module.cache) == ([0], 0, {})


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.layer = nn.ReLU(inplace=True), linear()

    def forward(self, x):
        x -= 0.5
        x[:, 1:3] *= 2
        return self.layer(self.relu(x)), x


class Outputs(NamedTuple):
    first: torch.Tensor
    rest: list


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        return y.float()


class Indexes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, x):
        y = x[:, self.order][:, :, [0, 3]][..., ::2]
        return y[torch.arange(x.shape[0]), 1].flatten(1)


class InferenceMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    @torch.inference_mode()
    def forward(self, x):
        return self.layer(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        x = x.transpose(0, 1)
        y, weights = self.attend(x, x, x)
        return y.transpose(0, 1), weights


IMAGES, TEXTS = (3, 8, 8), (5, 8)
CASES = {
    "autograd function": (lambda: Of(lambda self, x: Swish.apply(self.layer(x)), layer=linear()), (4,)),
    "scripted function": (lambda: Of(lambda self, x: scripted(self.layer(x)), layer=linear()), (4,)),
    "hooks": (hooked, (4,)),
    "hook with a dict": (Collects, (4,)),
    "side effects": (Logs, (4,)),
    "in place": (InPlace, (4,)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), IMAGES),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), IMAGES),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(8, 4)), TEXTS),
    "sequence first": (lambda: Of(lambda self, x: self.r(x.transpose(0, 1))[0][-1], r=nn.LSTM(8, 6)), TEXTS),
    "gru": (lambda: Of(lambda self, x: self.r(x)[0][:, -1], r=nn.GRU(8, 6, 2, batch_first=True, bidirectional=True)), TEXTS),
    "attention weights": (Attention, TEXTS),
    "indices": (Indexes, IMAGES),
    "checkpoint": (lambda: Of(lambda self, x: checkpoint(self.layer, x, use_reentrant=False), layer=linear()), (4,)),
    "data parallel": (lambda: nn.DataParallel(linear()), (4,)),
    "fx": (lambda: torch.fx.symbolic_trace(nn.Sequential(linear(), nn.ReLU())), (4,)),
    "inference mode": (InferenceMode, (4,)),
    "named tuple": (lambda: Of(lambda self, x: Outputs(x * 2, [None, x.sum(1)])), (4,)),
    "module in the forward pass": (lambda: Of(lambda self, x: nn.Sequential(nn.ReLU(), nn.Softmax(dim=1))(x)), (4,)),
    "item of a parameter": (lambda: Of(lambda self, x: x / self.t.item(), t=nn.Parameter(torch.tensor(2.0))), (4,)),
    "own arguments": (lambda: Of(lambda self, x, *, scale=2.0: x * scale), (4,)),
}


def tensors(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_module_computes_in_float64(name):
    make, row = CASES[name]
    torch.manual_seed(0)
    precise = make().double().eval()  # no copy: hooks would go on writing to the original
    torch.manual_seed(0)
    module = make()
    weights = {key: value.clone() for key, value in module.state_dict().items()}
    given = torch.randn(3, *row)
    before = given.clone()
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    graph = capture(module, given).program.module()
    assert torch.equal(given, before)
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == generators[1:]
    assert module.training
    assert all(torch.equal(value, weights[key]) for key, value in module.state_dict().items())
    for batch in (1, 2, 5):
        rows = torch.randn(batch, *row)
        kept = rows.clone()
        with torch.no_grad():
            computed, expected = graph(rows), tensors(precise(rows.double()))
        assert torch.equal(rows, kept), "a graph does not write to its inputs"
        for one, other in zip(computed, expected, strict=True):
            torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


def test_what_autocasts_itself_still_does():
    module, rows = Autocast(), torch.randn(3, 4)
    with torch.no_grad():
        assert torch.equal(capture(module, torch.randn(1, 4)).program.module()(rows)[0], module(rows))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_floating_point_models(dtype):
    module, rows = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)).to(dtype), torch.randn(3, 3, 8, 8)
    precise = copy.deepcopy(module).double()
    captured = capture(module, torch.randn(1, 3, 8, 8, dtype=dtype))
    assert captured.signature.inputs[0].dtype == str(dtype).removeprefix("torch.")
    result = captured.program.module()(rows.to(dtype))[0]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-2
    torch.testing.assert_close(result.double(), precise(rows.to(dtype).double()), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("rows", [torch.randn(4, 6).t()[::2], torch.randn(1, 4).expand(3, 4), torch.full((3, 4), float("nan"))])
def test_example_inputs_may_be_strided_expanded_or_nan(rows):
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    kept, fresh = rows.clone(), torch.randn(5, 4)
    graph = capture(module, rows).program.module()
    assert torch.equal(rows.nan_to_num(), kept.nan_to_num())
    torch.testing.assert_close(graph(fresh)[0], module(fresh.clone()))


CONTEXTS = {
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "gradients": torch.enable_grad,
}


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_is_switched_on_around_a_call_does_not_become_part_of_the_graph(conv_net, context):
    graph = headrace.compile(conv_net, config=GraphConfig(backend="eager", buckets=(1, 2)))
    images = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        expected = conv_net(images)
    with CONTEXTS[context]():
        first = graph(images)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(graph(images), expected)
    assert graph.captures == 1


def test_another_default_device_is_no_obstacle(conv_net):
    images = torch.randn(2, 3, 12, 12)
    with torch.device("meta"):
        graph = capture(conv_net, images).program.module()
    torch.testing.assert_close(graph(images)[0], conv_net(images))


@pytest.mark.parametrize("backend", ["eager", "onnxruntime", "openvino"])
def test_no_backend_writes_to_its_inputs(backend):
    torch.manual_seed(1)
    module, rows = InPlace(), torch.randn(3, 4)
    kept = rows.clone()
    graph = headrace.compile(module, config=GraphConfig(backend=backend, buckets=(1, 4), threads=1))
    result = graph(rows)
    assert torch.equal(rows, kept)
    for one, other in zip(result, copy.deepcopy(module).double()(kept.double()), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
