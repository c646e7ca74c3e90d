import pytest
import torch
from torch import nn

from headrace.errors import CaptureError
from headrace.migrate.worker.rehearsal.scripted import name_of, unscripted


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.top = nn.Linear(4, 5)

    def forward(self, x):
        return self.top(self.body(x))


class Fixed(Small):
    def forward(self, x):
        return self.top(self.body(x)) + (1.0 if x.shape[0] == 3 else 0.0)


def loaded(model, path):
    torch.jit.save(torch.jit.script(model.eval()), path)
    return torch.jit.load(path).eval()


def test_a_program_becomes_a_module_that_exports(tmp_path):
    torch.manual_seed(0)
    model = Small().eval()
    images = torch.randn(1, 3, 16, 16)
    program = loaded(model, tmp_path / "small.pt")
    made = unscripted(program, images).eval()
    other = torch.randn(7, 3, 16, 16)
    torch.testing.assert_close(made(other), model(other))
    exported = torch.export.export(made, (other,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.testing.assert_close(exported.module()(images), model(images))
    assert (name_of(program), name_of(model)) == ("Small", "Small")


def test_a_program_that_is_not_the_same_for_all_batches_is_refused(tmp_path):
    program = loaded(Fixed(), tmp_path / "fixed.pt")
    with pytest.raises(CaptureError, match="Fixed"):
        unscripted(program, torch.randn(1, 3, 16, 16))
