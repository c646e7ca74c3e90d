import inspect

import pytest
import torch
from torch import nn

from headrace.runtime.capture.rehearsal import rehearse


class Consequence(nn.Module):
    def forward(self, x):
        rows = len(x)
        y = x.reshape(rows, -1)
        return y.view(rows, 2, 2).flatten(1)


class FromWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        if self.scale > 1:
            x = x * self.scale.item()
        return x.view(2, -1)


class Fails(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        raise ValueError("here it ends")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Consequence, [("batch as a number", 1)]),  # the lines that use the number are its consequences
        (FromWeights, [("Eq(batch, 2)", 3)]),
        (Fails, [("value", 1)]),
        (nn.Identity, []),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), []),
        (lambda: nn.GRU(4, 4, batch_first=True), []),
    ],
)
def test_what_is_heard_and_where(kind, expected):
    module = kind().eval()
    rows = torch.randn(2, 3, 4) if isinstance(module, nn.TransformerEncoderLayer | nn.GRU) else torch.randn(2, 4)
    with torch.no_grad():
        heard = rehearse(module, [rows])
    start = inspect.getsourcelines(type(module).forward)[1] if expected else 0
    first = {}
    for what, (path, line) in heard:
        assert path == __file__
        first.setdefault(line - start, what)  # the first at each line is what the obstacle says
    assert [(what, line) for line, what in first.items()] == expected
