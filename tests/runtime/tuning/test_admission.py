from dataclasses import dataclass, replace

import numpy as np
import pytest

from headrace import GraphConfig
from headrace.runtime import backends
from headrace.runtime.artifact.plan import Choice
from headrace.runtime.base.calibration import Calibration, Observer
from headrace.runtime.base.session import Target
from headrace.runtime.tuning import admission as module
from headrace.runtime.tuning.admission import Admission
from headrace.runtime.tuning.budget import Budget
from headrace.runtime.tuning.candidate import Candidate
from headrace.runtime.tuning.cuts import Cuts
from headrace.runtime.tuning.measure import Samples
from headrace.runtime.tuning.prediction import Layer, Machine, Work
from headrace.specs import BF16, FP16, FP32, INT8, INT8_BF16

WORK = Work((Layer(10**9, 1, 1),))
IMAGES = 128


@dataclass
class FixedBudget:
    left: float = 30.0
    seconds: float = 30.0
    pace: float = 1.0

    bears = Budget.bears

    @property
    def used(self):
        return self.seconds - self.left


@pytest.fixture
def admission(monkeypatch):
    """Of a machine whose bf16 is so many times as fast as fp32, and int8 so many times."""

    def make(bf16=2.0, int8=4.0, device="cpu", left=30.0):
        machine = Machine({"fp32": 1e9, "bf16": bf16 * 1e9, "int8": int8 * 1e9}, 1e12)
        monkeypatch.setattr(Machine, "here", lambda: machine)
        work = WORK if device == "cpu" else None
        return Admission(work, GraphConfig(), device, FixedBudget(left), Cuts())

    return make


def candidate(name, precision, device="cpu", calibration=None):
    backend = backends.get(name)
    found = Candidate(backend, Target(device=device, precision=precision), Choice(backend=name, precision=precision))
    return replace(found, calibration=calibration) if precision.is_int8 else found


def ranges():
    return Calibration([np.zeros((IMAGES, 3, 8, 8), np.float32)])


def leads(found, seconds):
    return replace(found, session=object(), samples={1: Samples([seconds] * 3)})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_takes_long_comes_last_and_on_a_gpu_begins_with_what_tensor_cores_compute(admission, device):
    names = {"cpu": ("eager", "inductor"), "cuda": ("eager", "inductor", "kernels")}[device]
    candidates = [
        candidate(name, precision, device)
        for precision in (FP32, BF16, FP16, INT8_BF16)
        for name in names
        if precision in backends.get(name).precisions
    ]
    admission(device=device).order(candidates, 1)
    found = [str(item.choice) for item in candidates]
    if device == "cuda":
        assert found[:6] == ["eager fp32", "eager bf16", "eager fp16", "kernels bf16", "kernels int8+bf16", "inductor bf16"]
        assert found[-2:] == ["inductor fp32", "kernels fp32"]
    else:
        assert found == ["eager bf16", "eager fp32", "eager fp16", "inductor bf16", "inductor fp32", "inductor fp16"]


def test_of_int8_that_is_predicted_alike_the_one_with_bf16_between_its_layers_is_first(admission):
    candidates = [candidate("openvino", precision, calibration=ranges()) for precision in (INT8, INT8_BF16)]
    admission().order(candidates, 1)
    assert [item.target.precision for item in candidates] == [INT8_BF16, INT8]


@pytest.mark.parametrize(("bf16", "first"), [(2.0, "openvino int8"), (3.5, "openvino bf16")])
def test_int8_goes_first_where_it_promises_clearly_more_than_what_takes_no_ranges_from_images(admission, bf16, first):
    candidates = [candidate("openvino", precision, calibration=ranges()) for precision in (FP32, BF16, INT8)]
    admission(bf16=bf16).order(candidates, 1)
    assert str(candidates[0].choice) == first
    assert str(candidates[-1].choice) == "openvino fp32"


def test_the_images_that_give_int8_its_ranges_take_their_time(admission):
    """A call in bf16 takes 0.1 s and one in fp32 0.2: 128 images take about 40 s, more than there are."""
    given = ranges()
    int8, leader = candidate("openvino", INT8, calibration=given), leads(candidate("openvino", BF16), 0.1)
    why = admission().why_not(int8, leader, [leader, int8], 1, 15)
    assert why == "takes about 39 s to prepare, more than max_tuning_seconds=30 leaves"
    assert admission(left=80.0).why_not(int8, leader, [leader, int8], 1, 15) is None
    given.of_portable["x"] = Observer()  # they have run, for another candidate
    assert admission().why_not(int8, leader, [leader, int8], 1, 15) is None


@pytest.mark.parametrize(("left", "tried"), [(25.0, True), (8.0, False)])
def test_a_leader_that_is_slow_at_every_batch_size_keeps_a_quarter_of_the_time_and_no_more(admission, left, tried):
    """Measuring it at all of them would take 140 s: what is twice as fast was never tried on such a machine."""
    bf16, leader = candidate("openvino", BF16), leads(candidate("openvino", FP32), 0.1)
    why = admission(left=left).why_not(bf16, leader, [leader, bf16], 1, 100)
    assert (why is None) == tried


@pytest.mark.parametrize("left", [8.0, 0.0])
def test_the_first_of_int8_is_tried_although_the_leader_used_the_time_up(admission, left):
    """On a busy machine fp32 led, was measured, and int8 was left out, which ran at half its time."""
    given = ranges()
    given.of_portable["x"] = Observer()
    int8, leader = candidate("openvino", INT8, calibration=given), leads(candidate("openvino", FP32), 0.1)
    other = candidate("onnxruntime", INT8, calibration=given)
    judge = admission(left=left)
    assert judge.why_not(int8, leader, [leader, int8, other], 1, 100) is None
    failed = replace(int8, status="failed")  # tells nothing about int8
    assert judge.why_not(other, leader, [leader, failed, other], 1, 100) is None
    for tried in (leads(int8, 0.05), replace(int8, status="refused")):
        assert "to prepare" in judge.why_not(other, leader, [leader, tried, other], 1, 100)


def test_what_was_not_prepared_for_want_of_time_is_named_with_its_seconds(admission):
    judge = admission(left=3.0)
    late, leader = candidate("inductor", BF16), leads(candidate("onnxruntime", FP32), 0.01)
    assert "to prepare" in judge.why_not(late, leader, [leader, late], 1, 15)
    assert judge.postponed == [late]
    assert "inductor bf16" in judge.cuts.line(GraphConfig(), "cpu", 30.0)


def test_what_is_predicted_to_lose_by_far_is_not_prepared_unless_it_proves_the_portable_graph(admission):
    judge = admission(bf16=8.0)
    eager, portable = candidate("eager", FP32), candidate("openvino", FP32)
    leader = leads(candidate("openvino", BF16), 0.01)
    why = judge.why_not(eager, leader, [leader, eager], 1, 15)
    assert why.startswith("is predicted to take")
    assert judge.why_not(portable, leader, [leader, portable], 1, 15) is None


def test_what_has_no_memory_is_not_prepared(admission, monkeypatch):
    leader, other = leads(candidate("openvino", BF16), 0.01), candidate("openvino", INT8)
    leader.memory_mb = 100.0
    monkeypatch.setattr(module, "free_megabytes", lambda: 120.0)
    assert admission().why_not(other, leader, [leader, other], 1, 15) == "takes about 150 MB, and 120 MB of memory are free"
