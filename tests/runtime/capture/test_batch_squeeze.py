import pytest
import torch
from torch import nn
from torch.nn import functional

from headrace.errors import CaptureError
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable


class Net(nn.Module):
    """As networks of 2017 end: `squeeze()` before the last layer, and a softmax over whatever dimension has the scores."""

    def __init__(self, shape=None, softmax=True):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.shape, self.softmax = shape, softmax

    def forward(self, images):
        scores = self.head(torch.squeeze(functional.adaptive_avg_pool2d(self.conv(images), 1)))
        scores = functional.log_softmax(scores, dim=scores.dim() - 1) if self.softmax else scores
        return scores if self.shape is None else scores.reshape(images.shape[0], *self.shape)


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_one_row_keeps_its_dimension_on_the_way(softmax, shape):
    net = Net(shape, softmax)
    program = capture(net, torch.rand(2, 3, 8, 8)).program
    targets = [node.target for node in program.graph.nodes]
    assert torch.ops.aten.squeeze.default not in targets
    assert torch.ops.aten.squeeze.dims in targets
    for rows in (1, 2, 3):
        images = torch.rand(rows, 3, 8, 8)
        torch.testing.assert_close(runnable(program)(images)[0], net(images))


def test_a_model_that_drops_it_in_the_end_is_still_refused():
    with pytest.raises(CaptureError, match="give squeeze"):
        capture(Net(), torch.rand(2, 3, 8, 8))


def test_dimensions_of_several_sizes_and_told_ones_stay():
    class Told(nn.Module):
        def forward(self, images):
            return images.mean(1, keepdim=True).squeeze(1).sum(-1, keepdim=True)

    program = capture(Told(), torch.rand(2, 3, 8, 8)).program
    assert runnable(program)(torch.rand(4, 3, 8, 8))[0].shape == (4, 8, 1)
