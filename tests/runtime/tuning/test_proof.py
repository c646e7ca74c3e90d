"""Sessions that are right for the rows that are usually tried, and wrong for others."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime.artifact.parity import Gate, tolerances
from headrace.runtime.backends.shared.torch_session import TorchSession
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable
from headrace.runtime.tuning.proof import wrong_at, wrong_on_rare
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
    session, reference = (
        TorchSession(runnable(captured.program), target),
        make_reference(captured, target, rows=16, with_rare=True),
    )
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
    "the eighth call and all after": (lambda x, y, call: y * (1 + (call > 7)), 8, "called again"),
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


def test_a_row_that_stands_out_may_be_rounded_by_its_own_share(proved):
    session, reference, _ = proved
    inputs = [reference.inputs[0].copy()]
    inputs[0][0] *= 400
    apart = copy.copy(reference)
    apart.inputs, apart.outputs = inputs, session.run(inputs)

    def of_its_size(share):
        # A seventh of the row that stands out is more than the others vary.
        return lambda x, y, call: np.where(np.abs(y).max(1, keepdims=True) > 5, y + share * y[:, ::-1], y)

    gate = Gate(rms=0.15, scale=0.5)
    assert wrong_at(Faulty(session, of_its_size(0.14)), apart, 8, gate, lossy=True, thorough=False) is None
    assert wrong_at(Faulty(session, of_its_size(2.0)), apart, 8, gate, lossy=True, thorough=False) is not None


def nan_rows(inputs):
    return np.isnan(inputs).any(axis=(1, 2, 3))[:, None]


@pytest.mark.parametrize("batch", [2, 3, 8, 31])
@pytest.mark.parametrize("lossy", [False, True])
def test_a_row_of_nan_that_reaches_the_row_before_it_is_found(proved, batch, lossy):
    session, reference, gate = proved
    reached = Faulty(session, lambda x, y, call: np.where(np.append(nan_rows(x)[1:], [[False]], axis=0), np.nan, y))
    assert "depends on the rows beside it" in wrong_at(reached, reference, batch, gate, lossy=lossy)


def test_what_a_row_of_nan_itself_gives_is_nobodys_business(proved):
    session, reference, gate = proved
    other = Faulty(session, lambda x, y, call: np.where(nan_rows(x), float(len(x)), y))
    assert wrong_at(other, reference, 8, gate, lossy=False) is None


def test_a_model_that_raises_where_there_is_a_nan_is_right(proved):
    session, reference, gate = proved

    def looking(inputs, scores, call):
        if np.isnan(inputs).any():
            raise BackendError("there must be no NaN")
        return scores

    assert wrong_at(Faulty(session, looking), reference, 8, gate, lossy=False) is None


def flat(inputs):
    return (np.ptp(inputs, axis=(1, 2, 3)) == 0)[:, None]


RARE = {
    "NaN on an image of one value": lambda x, y, call: np.where(flat(x), np.nan, y),
    "another answer for it": lambda x, y, call: y + 0.1 * flat(x),
    "infinite where all is as large as it gets": lambda x, y, call: np.where((x.mean((1, 2, 3)) > 2)[:, None], np.inf, y),
    "clipped": lambda x, y, call: np.clip(y, -0.4, 0.4),
}


@pytest.mark.parametrize("name", RARE)
@pytest.mark.parametrize("batch", [1, 16])
def test_what_waits_for_a_rare_input_is_found(proved, name, batch):
    session, reference, gate = proved
    why = wrong_on_rare(Faulty(session, RARE[name]), reference, gate, lossy=False, batch=batch)
    assert why is not None
    assert "rare" in why


@pytest.mark.parametrize(("times", "found"), [(5, False), (15, True)])
def test_a_rare_input_has_ten_times_the_tolerance(proved, times, found):
    session, reference, gate = proved
    (limit,) = tolerances(reference.outputs, gate)
    off = Faulty(session, lambda x, y, call: y + times * limit * flat(x))
    assert (wrong_on_rare(off, reference, gate, lossy=False, batch=16) is not None) == found


def test_a_row_that_is_too_large_for_the_model_may_be_nan_alone_and_beside_others(proved):
    session, reference, gate = proved
    overflowing = Faulty(session, lambda x, y, call: np.where((np.abs(x).max((1, 2, 3)) > 50)[:, None], np.nan, y))
    assert wrong_at(overflowing, reference, 8, gate, lossy=False) is None


def test_a_lossy_session_may_round_rare_inputs_but_stays_finite(proved):
    session, reference, gate = proved
    rounded, broken = (Faulty(session, RARE[name]) for name in ("another answer for it", "NaN on an image of one value"))
    assert wrong_on_rare(rounded, reference, gate, lossy=True, batch=16) is None
    assert wrong_on_rare(broken, reference, gate, lossy=True, batch=16) is not None


def test_a_number_where_the_model_has_nan_is_found():
    """A ReLU that takes NaN for 0, behind an image of one value that was divided by its own spread."""

    class Standardizes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(27, 4)

        def forward(self, x):
            x = x.flatten(1)
            return self.layer((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)).relu()

    captured = capture(Standardizes().eval(), torch.randn(2, 3, 3, 3))
    reference = make_reference(captured, Target(threads=1), rows=16, with_rare=True)
    session = TorchSession(runnable(captured.program), Target(threads=1))
    gate = Gate(noise=reference.noise)
    assert wrong_on_rare(session, reference, gate, lossy=False, batch=16) is None
    hiding = Faulty(session, lambda inputs, scores, call: np.nan_to_num(scores))
    assert "is a number" in wrong_on_rare(hiding, reference, gate, lossy=False, batch=16)


def test_nothing_is_found_where_nothing_is_wrong(proved):
    session, reference, gate = proved
    assert wrong_on_rare(session, reference, gate, lossy=False, batch=5) is None


def test_rounding_that_a_network_amplifies_on_rare_inputs_alone_is_no_fault():
    """An image of one value has no variance: what a norm divides by is rounding."""
    torch.manual_seed(1)
    layers = [
        nn.Conv2d(3, 8, 3),
        nn.InstanceNorm2d(8, eps=1e-12),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(4),
    ]
    model = nn.Sequential(*layers).eval()
    model(torch.randn(1, 3, 9, 9))
    captured = capture(model, torch.randn(2, 3, 9, 9))
    reference = make_reference(captured, Target(threads=1), rows=16, with_rare=True)

    def otherwise(inputs, scores, call):
        with torch.no_grad():
            return model(torch.from_numpy(inputs).contiguous(memory_format=torch.channels_last)).numpy()

    other = Faulty(TorchSession(runnable(captured.program), Target(threads=1)), otherwise)
    assert wrong_on_rare(other, reference, Gate(noise=reference.noise), lossy=False, batch=16) is None
