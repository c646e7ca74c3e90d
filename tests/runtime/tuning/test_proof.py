"""Sessions that are right for the rows that are usually tried, and wrong for others."""

import numpy as np
import pytest
import torch
from torch import nn

from headrace.runtime.artifact.parity import Gate
from headrace.runtime.backends.shared.torch_session import TorchSession
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable
from headrace.runtime.tuning.proof import wrong_at
from headrace.runtime.tuning.reference import make_reference


class Faulty:
    """A right session, and a fault in what comes out: a function of the inputs, the outputs and the number of the call."""

    def __init__(self, inner, fault):
        self.inner, self.fault, self.calls = inner, fault, 0

    def run(self, inputs):
        self.calls += 1
        (scores,) = self.inner.run(inputs)
        return [np.ascontiguousarray(self.fault(inputs[0], scores.copy(), self.calls), np.float32)]

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module")
def proved():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6)).eval()
    captured = capture(model, torch.randn(2, 3, 8, 8))
    target = Target(threads=1)
    session, reference = TorchSession(runnable(captured.program), target), make_reference(captured, target, rows=16)
    return session, reference, Gate(noise=reference.noise)


def zero_from(row):
    def fault(inputs, scores, call):
        scores[row:] = 0
        return scores

    return fault


def of_the_neighbor(inputs, scores, call):
    """A largest magnitude that is the batch's, as with a scale that is found per tensor when it comes."""
    step = np.abs(scores).max() / 127
    return np.round(scores / step) * step


FAULTS = {
    "rows beyond the sixteenth are zero": (zero_from(16), 32, "in another order: output 0 differs"),
    "the second half, which another stream computes": (zero_from(4), 8, "in another order: output 0 differs"),
    "only a full batch is right": (lambda x, y, call: y if len(x) != 7 else y * 0, 8, "with 7 rows"),
    "rows change places": (lambda x, y, call: y[::-1], 8, "differs"),
    "a row leaks into the others": (lambda x, y, call: y + 1e-4 * y.max(), 8, ""),
    "a scale that is the batch's": (of_the_neighbor, 8, ""),
    "each call adds": (lambda x, y, call: y + 2e-2 * (call - 1), 8, ""),
    "the seventh call and all after": (lambda x, y, call: y * (1 + (call > 6)), 8, "called again"),
    "NaN": (lambda x, y, call: np.where(np.arange(len(y))[:, None] == 5, np.nan, y), 8, "differs by inf"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(proved, name):
    session, reference, gate = proved
    fault, batch, why = FAULTS[name]
    found = wrong_at(Faulty(session, fault), reference, batch, gate, lossy=False)
    assert found is not None
    assert why in found


@pytest.mark.parametrize("batch", [1, 2, 7, 16, 33])
def test_what_is_right_is_right_at_every_size(proved, batch):
    session, reference, gate = proved
    assert wrong_at(session, reference, batch, gate, lossy=False) is None
    rounded = Faulty(session, lambda x, y, call: torch.from_numpy(y).bfloat16().float().numpy())
    for lossy in (Gate(), Gate(tolerance=Gate().relative_error)):
        assert wrong_at(rounded, reference, batch, lossy, lossy=True) is None


@pytest.mark.parametrize("gate", [Gate(), Gate(tolerance=0.05)], ids=["judged by images", "pinned"])
@pytest.mark.parametrize("row", [0, 16, 31])
def test_one_zero_row_of_a_lossy_candidate_is_found(proved, gate, row):
    session, reference, _ = proved

    def fault(inputs, scores, call):
        if len(scores) > row and len(scores) > 1:
            scores[row] = 0
        return scores

    assert wrong_at(Faulty(session, fault), reference, 32, gate, lossy=True)
