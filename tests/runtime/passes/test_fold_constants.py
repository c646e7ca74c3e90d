import copy

import pytest
import torch
from torch import nn

import headrace
from headrace.errors import BackendError
from headrace.runtime.base.passes import Pass
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable
from headrace.runtime.capture.rewrite import ProgramEditor
from headrace.runtime.lowering.portable import write_onnx
from headrace.runtime.passes import run_passes
from headrace.runtime.passes.fold_batch_norm import PASS as FOLD_BATCH_NORM
from headrace.runtime.passes.fold_constants import PASS


def folded(module, *shape):
    """The graph after the pass, checked in float64 against the module itself at an odd batch."""
    module = copy.deepcopy(module).double().eval()
    captured = capture(module, torch.randn(2, *shape, dtype=torch.float64))
    result, (record,) = run_passes(captured, [PASS])
    rows = torch.randn(3, *shape, dtype=torch.float64)
    torch.testing.assert_close(result.program.module()(rows)[0], module(rows), rtol=1e-10, atol=1e-10)
    return captured, result, record


def operators(captured):
    return [str(node.target) for node in captured.program.graph.nodes if node.op == "call_function"]


class Standardized(nn.Conv2d):
    def forward(self, x):
        weight = self.weight
        mean, std = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, (weight - mean) / (std + 1e-5), self.bias, padding=1)


class Bias(nn.Module):
    """A relative position bias, as Swin gathers it from a table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))
        self.register_buffer("index", torch.randint(0, 9, (6, 6)))

    def forward(self, x):
        return x + self.table[self.index.view(-1)].view(6, 6, 4).permute(2, 0, 1)


class Positions(nn.Module):
    """A grid of positions, made at every call."""

    def forward(self, x):
        y, z = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
        return x * torch.exp(-(y**2 + z**2).to(x.dtype))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(6, 6),
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)),
        nn.Dropout(0.5),
        nn.Sequential(nn.ReLU(), nn.Softmax(1)),
    ],
)
def test_left_as_it_is(module):
    captured, result, record = folded(module, 4, 6, 6)
    assert result is captured
    assert record.status == "unchanged"


class Transposed(nn.Module):
    """A view of a weight: stored, it would be the weight twice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        return x @ self.weight.t()


class BatchSized(nn.Module):
    """What depends on the batch size is no constant."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 6))

    def forward(self, x):
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)


def test_views_and_what_depends_on_the_batch_size_stay():
    for module in (Transposed(), BatchSized()):
        _, result, _ = folded(module, 4, 6)
        assert "constant_0" not in result.program.state_dict
    captured = capture(nn.Sequential(nn.Linear(6, 6)), torch.randn(2, 4, 6))
    assert run_passes(captured, [PASS])[0] is captured


@pytest.mark.parametrize(
    ("module", "gone"),
    [
        (Standardized(4, 4, 3), "aten.std"),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)), "norm"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5)), "dot"),
        (Bias(), "aten.index"),
        (Positions(), "aten.meshgrid"),
    ],
)
def test_computed_once(module, gone):
    captured, result, record = folded(module, 4, 6, 6)
    assert record.status == "applied"
    assert record.difference <= 1e-9
    assert any(gone in name for name in operators(captured))
    assert not any(gone in name for name in operators(result))
    assert PASS.apply(result) is result


def test_the_users_weights_are_not_written_to_and_shared_ones_stay_shared():
    module = nn.Sequential(conv := Standardized(4, 4, 3), conv)
    before = copy.deepcopy(module.state_dict())
    _, result, _ = folded(module, 4, 6, 6)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert sum("convolution" in name or "conv2d" in name for name in operators(result)) == 2


def test_what_would_grow_the_graph_too_much_stays_computed():
    class Huge(nn.Module):
        def __init__(self):
            super().__init__()
            self.side = nn.Parameter(torch.randn(5000))

        def forward(self, x):
            return x.sum() * 0 + x + (self.side[:, None] * self.side[None, :]).mean()

    class Mean(Huge):
        def forward(self, x):
            return x + (self.side[:, None] * self.side[None, :]).sum(0)[:6]

    captured = capture(Mean().eval(), torch.randn(2, 6))
    result, _ = run_passes(captured, [PASS])
    assert max(value.numel() for value in result.program.state_dict.values()) <= 5000


def test_it_lets_batch_norm_fold_into_a_computed_weight(settled, tmp_path):
    module = settled(nn.Sequential(Standardized(4, 4, 3, bias=False), nn.BatchNorm2d(4))).eval()
    captured = capture(module, torch.randn(2, 4, 6, 6))
    result, records = run_passes(captured, [PASS, FOLD_BATCH_NORM])
    assert [record.status for record in records] == ["applied", "applied"]
    assert operators(result) == ["aten.conv2d.default"]
    write_onnx(result, tmp_path)
    rows = torch.randn(5, 4, 6, 6)
    torch.testing.assert_close(result.program.module()(rows)[0], module(rows), rtol=1e-4, atol=1e-5)


class Accumulating(nn.Module):
    """Adds in place to a tensor of its own, which is made anew by each call; `view` was taken before."""

    def __init__(self):
        super().__init__()
        self.position, self.linear = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 3)

    def forward(self, x):
        made = torch.zeros(1, 4)
        view = made.view(4)
        made += self.position
        return self.linear(x + made * view.cos())


class AccumulatingInside(Accumulating):
    """The same in a block, whose graph is one of its own."""

    def forward(self, x):
        made = torch.zeros(1, 4)
        with torch.autocast("cpu", enabled=False):
            made += self.position
            x = x + made
        return self.linear(x)


@pytest.mark.parametrize("kind", [Accumulating, AccumulatingInside])
def test_what_a_call_writes_to_is_not_stored(kind):
    module = kind()
    rows = torch.randn(5, 4)
    result, records = run_passes(capture(module, rows))
    assert {record.status for record in records} <= {"applied", "unchanged"}, records
    graph = runnable(result.program)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(graph(rows)[0], module(rows))


def test_such_a_module_compiles_and_keeps_no_state(tmp_path):
    """By inductor, which compiles for half a minute: backends/test_inductor.py."""
    module = Accumulating()
    graph = headrace.compile(module, config=headrace.GraphConfig(backend="onnxruntime", threads=1, buckets=(2,)))
    for seed in (0, 1, 0):
        rows = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            torch.testing.assert_close(graph(rows), module(rows), rtol=1e-4, atol=1e-5)


def stored_zeros(program):
    """What this pass did before: it stores the zeros that the next operation writes to."""
    editor = ProgramEditor(program)
    (zeros,) = (node for node in editor.graph.nodes if node.target is torch.ops.aten.zeros.default)
    zeros.replace_all_uses_with(editor.add_parameter("stored", torch.zeros(1, 4)))
    return editor.finish()


def test_a_pass_that_makes_a_graph_keep_state_is_rejected():
    captured = capture(Accumulating(), torch.randn(5, 4))
    wrong = Pass("fold_constants", stored_zeros)
    result, (record,) = run_passes(captured, [wrong])
    assert result is captured
    assert record.status == "rejected"
    assert "aten.add_.Tensor writes to p_stored, which outlives the call" in record.why
    with pytest.raises(BackendError, match="the pass fold_constants makes a graph that keeps state"):
        run_passes(captured, [wrong], target="eager bf16")
