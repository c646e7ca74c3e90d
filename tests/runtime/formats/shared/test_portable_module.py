"""The portable graph as a torch module, against ONNX Runtime on the same file."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.formats.shared.portable_module import PortableModule
from headrace.runtime.lowering.portable import write_onnx


class Attention(nn.Module):
    """Patches, a class token, positions, attention by torch's own module, normalization; shapes come from the batch."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.layer(x)[:, 0])


class Shifting(nn.Module):
    """What window attention does: rolls, windows, masks, gathered biases."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))
        self.register_buffer("index", torch.randint(0, 9, (4, 4)))
        self.head = nn.Linear(3, 5)

    def forward(self, images):
        x = torch.roll(images, (-1, -1), (2, 3)).unflatten(2, (8, 2)).permute(0, 2, 3, 4, 1)
        bias = self.table[self.index.view(-1)].view(4, 4, 4).mean((0, 1))
        x = torch.nn.functional.pad(x, (0, 0, 1, 1)) * bias.sum() + x.amax((1, 2), keepdim=True).sum(3, keepdim=True)
        return self.head(x[:, ::2].mean((1, 2, 3)))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Hardswish(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, groups=8),
            nn.SiLU(), nn.AvgPool2d(2, ceil_mode=True), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1), nn.Hardsigmoid(), nn.ELU(),
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def forward(self, images):
        x = self.features(images)
        return self.head(x.mean((2, 3)).clamp(-1, 1)).softmax(-1).sqrt().log_softmax(1)


@pytest.mark.parametrize("kind", [Attention, Shifting, Small])
def test_modules_come_back_equal_at_any_batch(kind, tmp_path):
    torch.manual_seed(0)
    captured = capture(kind().eval(), torch.randn(2, 3, 16, 16))
    write_onnx(captured, tmp_path)
    module = PortableModule(tmp_path / "model.onnx")
    again = capture(module.eval(), torch.randn(2, 3, 16, 16), names=["images"])
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for rows in (1, 3, 8):
        x = torch.randn(rows, 3, 16, 16)
        (wanted,) = session.run(None, {"images": x.numpy()})
        with torch.no_grad():
            (eager,), (exported,) = module(x), again.program.module(check_guards=False)(x)
        np.testing.assert_allclose(eager, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(exported, wanted, rtol=1e-4, atol=1e-5)
