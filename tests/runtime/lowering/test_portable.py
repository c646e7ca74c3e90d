import copy

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from headrace.errors import BackendError
from headrace.runtime.backends import get
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx


class LearntBias(nn.Module):
    """Attention with a trainable mask: with gradients on, torch computes it by another kernel, in another memory order."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.table = nn.Parameter(torch.randn(11, 2))
        self.register_buffer("places", torch.arange(6)[:, None] - torch.arange(6) + 5)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(x.shape[0], 6, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.places].permute(2, 0, 1).contiguous().unsqueeze(0)
        return scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).reshape(x.shape[0], 6, 8).mean(1)


def test_attention_with_a_trainable_mask_is_written(tmp_path):
    torch.manual_seed(0)
    module = LearntBias().eval()
    assert write_onnx(capture(module, torch.randn(2, 6, 8)), tmp_path) == ["model.onnx"]
    session = get("onnxruntime").open(tmp_path, Target(), ["model.onnx"])
    for batch in (1, 2, 5):
        x = torch.randn(batch, 6, 8)
        with torch.no_grad():
            expected = module.double()(x.double()).numpy()
        module.float()
        np.testing.assert_allclose(session.run([x.numpy()])[0], expected, atol=1e-5)


def test_an_operator_without_translation_is_named_and_nothing_else(tmp_path):
    class Airy(nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    with pytest.raises(BackendError, match="airy_ai") as caught:
        write_onnx(capture(Airy(), torch.randn(2, 3)), tmp_path)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not list(tmp_path.iterdir())


class ChannelsLast(nn.Module):
    """Computes in channels last whatever it is given, as training scripts have their models do."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.conv(x.contiguous(memory_format=torch.channels_last))), 1))


def test_a_pooling_in_channels_last_is_no_gather(tmp_path):
    torch.manual_seed(0)
    module = ChannelsLast().eval()
    write_onnx(capture(module, torch.randn(2, 3, 9, 8)), tmp_path)
    operators = {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
    assert operators.isdisjoint({"Gather", "GatherND", "Range"})
    for name in ("onnxruntime", "openvino"):
        if get(name).supports(Target()) is None:
            session = get(name).open(tmp_path, Target(), ["model.onnx"])
            for batch in (1, 2, 5):
                x = torch.randn(2 * batch, 3, 9, 8)[::2]
                with torch.no_grad():
                    expected = copy.deepcopy(module).double()(x.double()).numpy()
                np.testing.assert_allclose(session.run([x.numpy()])[0], expected, atol=1e-5)
