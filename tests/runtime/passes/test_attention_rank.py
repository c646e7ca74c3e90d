import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from headrace.runtime.backends import get
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx
from headrace.runtime.passes import run_passes
from headrace.runtime.passes.attention_rank import PASS

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


class Attention(nn.Module):
    """Self-attention over 6 tokens of 8 features, split as `shape` says; a learnt mask, or a causal one, or none."""

    def __init__(self, shape, mask=None, causal=False, scale=None):
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(8, 24)
        self.shape, self.causal, self.scale = shape, causal, scale
        self.mask = None if mask is None else nn.Parameter(torch.randn(mask))

    def forward(self, x):
        q, k, v = (part.reshape(x.shape[0], *self.shape) for part in self.qkv(x).chunk(3, dim=-1))
        mask = (
            None
            if self.mask is None
            else self.mask.expand(x.shape[0], *self.mask.shape[1:])
            if q.ndim == self.mask.ndim
            else self.mask
        )
        return scaled_dot_product_attention(q, k, v, mask, 0.0, self.causal, scale=self.scale).flatten(1)


def ranks(captured):
    return [node.args[0].meta["val"].ndim for node in captured.program.graph.nodes if node.target is ATTENTION]


@pytest.mark.parametrize(
    ("shape", "mask", "options"),
    [
        # Each rank, each kind of mask and each option are among those that stay.
        pytest.param((6, 8), None, {}, marks=pytest.mark.slow),
        ((6, 8), None, {"causal": True}),
        pytest.param((6, 8), (6, 6), {"scale": 0.3}, marks=pytest.mark.slow),
        pytest.param((6, 8), (1, 6, 6), {}, marks=pytest.mark.slow),
        pytest.param((3, 2, 2, 4), None, {}, marks=pytest.mark.slow),
        ((3, 2, 2, 4), (2, 2, 2), {}),
        ((3, 2, 2, 4), (1, 3, 2, 2, 2), {}),
        ((3, 1, 2, 2, 4), None, {"scale": 0.3}),
    ],
)
def test_attention_of_any_rank_runs_as_a_portable_graph(shape, mask, options, tmp_path):
    module = Attention(shape, mask, **options).eval()
    captured = capture(module, torch.randn(2, 6, 8))
    optimized, records = run_passes(captured, [PASS])
    assert [(record.status, record.why) for record in records] == [("applied", "")]
    assert (ranks(captured), ranks(optimized)) == ([len(shape) + 1], [4])
    write_onnx(optimized, tmp_path)
    session = get("onnxruntime").open(tmp_path, Target(), ["model.onnx"])
    for batch in (1, 2, 7):
        x = torch.randn(batch, 8, 6).transpose(1, 2)
        with torch.no_grad():
            expected = module.double()(x.double()).numpy()
            module.float()
            (actual,) = optimized.program.module()(x.contiguous())
        np.testing.assert_allclose(actual, expected, atol=1e-5)
        np.testing.assert_allclose(session.run([x.numpy()])[0], expected, atol=1e-5)


def test_what_has_four_dimensions_is_left_alone():
    captured = capture(Attention((2, 6, 4)).eval(), torch.randn(2, 6, 8))
    assert PASS.apply(captured) is captured


def test_a_mask_that_is_shared_by_some_windows_only_is_left_alone():
    class Partial(Attention):
        def forward(self, x):
            q, k, v = (part.reshape(x.shape[0], 3, 2, 2, 4) for part in self.qkv(x).chunk(3, dim=-1))
            return scaled_dot_product_attention(q, k, v, self.mask).flatten(1)

    captured = capture(Partial((3, 2, 2, 4), (3, 1, 2, 2)).eval(), torch.randn(2, 6, 8))
    assert PASS.apply(captured) is captured


def test_a_graph_without_attention_is_left_alone(conv_net):
    captured = capture(conv_net, torch.randn(2, 3, 16, 16))
    assert PASS.apply(captured) is captured
