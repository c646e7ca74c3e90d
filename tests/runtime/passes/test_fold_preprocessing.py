"""What pixels give after it is in tests/runtime/lowering/test_uint8_input.py, beside what puts the preprocessing there."""

import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.uint8_input import with_preprocessing
from headrace.runtime.passes import run_passes
from headrace.runtime.passes.fold_preprocessing import PASS
from headrace.specs import Preprocessing


class Net(nn.Module):
    def __init__(self, channels, **options):
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, **options)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


class OwnArithmetic(Net):
    """Takes pixels itself, and subtracts what differs from place to place."""

    def forward(self, x):
        rows = x.permute(0, 3, 1, 2).float()
        return super().forward((rows - rows.mean((2, 3), keepdim=True)) * 0.01)


def status(captured):
    result, (record,) = run_passes(captured, [PASS])
    assert (result is captured) == (record.status == "unchanged")
    return record.status


def test_a_graph_that_does_not_begin_with_preprocessing_is_left_alone():
    assert status(capture(Net(3).eval(), torch.randn(2, 3, 8, 8))) == "unchanged"
    assert status(capture(OwnArithmetic(3).eval(), torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8))) == "unchanged"


def test_a_convolution_of_several_groups_is_left_alone():
    rows = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.2, 0.3, 0.4))
    for groups, expected in ((1, "applied"), (3, "unchanged")):
        captured = capture(Net(3, groups=groups).eval(), torch.randn(2, 3, 8, 8))
        assert status(with_preprocessing(captured, rows)) == expected
