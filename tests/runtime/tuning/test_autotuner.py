import functools
import importlib
import io
import logging
import mmap
import re
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import BackendError, ParityError
from headrace.runtime import backends
from headrace.runtime.artifact.plan import Plan
from headrace.runtime.backends.eager import EagerBackend
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.inspect.plan_table import plan_table
from headrace.runtime.tuning import admission, reference
from headrace.runtime.tuning import autotuner as tune
from headrace.runtime.tuning.budget import Budget
from headrace.runtime.tuning.candidate import Candidate
from headrace.runtime.tuning.measure import Samples
from headrace.runtime.tuning.prediction import Prediction
from headrace.specs import BF16, FP32, INT8

HAVE_BF16 = backends.get("openvino").supports(SimpleNamespace(device="cpu", precision=BF16)) is None


def statuses(plan, bucket=1):
    """By backend and precision; of several forms of one, the winner's where it has won."""
    found = sorted((item for item in plan.measurements if item.bucket == bucket), key=lambda item: item.status == "won")
    return {(item.choice.backend, item.choice.precision.name): item.status for item in found}


def test_every_candidate_is_in_the_plan_with_its_outcome(conv_net, tuned):
    seen = []
    plan = tuned(conv_net, max_tuning_seconds=20, progress=lambda fraction, text: seen.append((fraction, text)))
    assert plan.buckets == (1, 4)
    assert plan.fingerprint == fingerprint()
    for bucket in (1, 4):
        found = statuses(plan, bucket)
        assert set(found) == {(name, "fp32") for name, backend in backends.discover().items() if "cpu" in backend.devices}
        assert list(found.values()).count("won") == 1
        measured = [item for item in plan.measurements if item.bucket == bucket and item.median_ms]
        (winner,) = (item for item in measured if item.status == "won")
        assert plan.choice(bucket).backend == winner.choice.backend
        assert winner.median_ms <= 1.06 * min(item.median_ms for item in measured)  # the handicaps of other forms
    for item in plan.measurements:
        assert item.why or item.status == "won"
        if item.status in ("won", "lost"):
            assert item.repetitions >= 3
            assert item.spread_ms >= 0
        if item.status == "won":  # what loses by measurement is not proved
            assert item.parity.passed
            assert {1, 2, 5} <= set(item.parity.batches)
    portable = [item for item in plan.measurements if item.choice.backend in ("onnxruntime", "openvino")]
    assert any(item.parity is not None and item.parity.passed for item in portable)  # but what other machines begin with is
    assert [fraction for fraction, _ in seen] == sorted(fraction for fraction, _ in seen)
    assert seen[-1][0] == 1.0


def test_what_the_time_does_not_allow_is_skipped_and_says_so(conv_net, tuned):
    plan = tuned(conv_net, max_tuning_seconds=1e-3)
    skipped = [item for item in plan.measurements if item.status == "skipped"]
    assert ("inductor", "fp32") in {(item.choice.backend, item.choice.precision.name) for item in skipped}
    assert all("max_tuning_seconds=0.001" in item.why for item in skipped)
    assert any(item.status in ("won", "lost") and item.choice.backend != "eager" for item in plan.measurements)
    assert plan.choice(4) == plan.choice(1)


def test_a_pinned_backend_that_disagrees_is_an_error(conv_net, tuned):
    with pytest.raises(ParityError, match="tolerance"):
        tuned(conv_net, backend="onnxruntime", tolerance=1e-12)


_READ = {}


class ReadOnce(EagerBackend):
    """Of files that are alike there is one session: to read a program takes longer than all else that such a backend does."""

    def _open(self, paths, target):
        key = (target, *(path.read_bytes() for path in paths))
        if key not in _READ:
            _READ[key] = super()._open(paths, target)
        return _READ[key]


class FaultyBackend(ReadOnce):
    """Fast, and does to rows what `fault(rows, outputs)` does."""

    fault: object = None
    delay: float = 0.0

    def open(self, directory, target, files):
        inner, fault, delay = super().open(directory, target, files), type(self).fault, type(self).delay

        class Session:
            def run(self, inputs):
                time.sleep(delay)
                return fault(inputs[0], [value.copy() for value in inner.run(inputs)])

            def close(self):
                pass  # `inner` is not this one's alone

        return Session()


def with_fault(monkeypatch, fault, slower_eager=0.1):
    """The plan's own eager, slowed down, and a fast one with a fault."""
    faulty = type("Faulty", (FaultyBackend,), {"fault": staticmethod(fault)})(name="faulty")
    slow = type("Slow", (FaultyBackend,), {"fault": staticmethod(lambda rows, outputs: outputs), "delay": slower_eager})()
    monkeypatch.setattr(backends, "discover", lambda: {"eager": slow, "faulty": faulty})


def reversed_beyond_one(rows, outputs):
    """Agrees at one row only: what a badly batched graph looks like."""
    return [value if len(value) == 1 else value[::-1].copy() for value in outputs]


def test_a_candidate_that_is_right_at_batch_one_only_is_refused(conv_net, tuned, monkeypatch):
    with_fault(monkeypatch, reversed_beyond_one)
    plan = tuned(conv_net, max_tuning_seconds=5)
    assert statuses(plan)["faulty", "fp32"] == "refused"
    assert {choice.backend for choice in plan.choices.values()} == {"eager"}


def test_rows_beyond_those_that_are_usually_tried_are_proved(conv_net, tuned, monkeypatch):
    """Zero from the seventeenth row on: right at every batch that candidates are prepared with."""

    def fault(rows, outputs):
        for value in outputs:
            value[16:] = 0
        return outputs

    with_fault(monkeypatch, fault)
    plan = tuned(conv_net, buckets=(1, 32), max_tuning_seconds=20)
    assert {bucket: choice.backend for bucket, choice in plan.choices.items()} == {1: "faulty", 32: "eager"}
    (item,) = (item for item in plan.measurements if item.bucket == 32 and item.choice.backend == "faulty")
    assert item.status == "refused"
    assert "with 32 rows in another order: output 0 differs" in item.why


def test_what_fails_at_one_size_loses_that_size(conv_net, tuned, monkeypatch):
    def fault(rows, outputs):
        if len(rows) > 16:
            raise BackendError("out of memory")
        return outputs

    with_fault(monkeypatch, fault)
    plan = tuned(conv_net, buckets=(1, 32), max_tuning_seconds=20)
    assert {bucket: choice.backend for bucket, choice in plan.choices.items()} == {1: "faulty", 32: "eager"}
    (item,) = (item for item in plan.measurements if item.bucket == 32 and item.choice.backend == "faulty")
    assert (item.status, item.why) == ("failed", "out of memory")


def test_what_loses_one_size_is_measured_at_the_others(conv_net, tuned, monkeypatch):
    def fault(rows, outputs):
        return [value * 0 for value in outputs] if len(rows) > 16 else outputs

    with_fault(monkeypatch, fault)
    plan = tuned(conv_net, buckets=(1, 4, 8, 32), max_tuning_seconds=30)
    fast = {bucket: choice.backend for bucket, choice in plan.choices.items()}
    assert fast == {1: "faulty", 4: "faulty", 8: "faulty", 32: "eager"}


def test_what_leaks_memory_is_not_chosen(conv_net, tuned, monkeypatch):
    kept = []

    def fault(rows, outputs):
        kept.append(mmap.mmap(-1, 1 << 21))  # whatever the allocator of this process still holds from before
        kept[-1].write(b"1" * (1 << 21))
        return outputs

    with_fault(monkeypatch, fault, slower_eager=0.3)
    plan = tuned(conv_net, buckets=(1,), max_tuning_seconds=1)
    assert plan.choice(1).backend == "eager"
    (item,) = (item for item in plan.measurements if item.choice.backend == "faulty")
    assert item.status == "failed"
    assert "memory grew by" in item.why


def test_what_has_no_memory_is_not_opened(conv_net, tuned, monkeypatch):
    monkeypatch.setattr(admission, "free_megabytes", lambda: -1.0)
    plan = tuned(conv_net, max_tuning_seconds=20)
    assert {choice.backend for choice in plan.choices.values()} == {"eager"}
    skipped = [item.why for item in plan.measurements if item.status == "skipped"]
    assert skipped  # how much memory eager took, which is opened in any case, differs from run to run
    assert all(re.fullmatch(r"takes about \d+ MB, and -1 MB of memory are free", why) for why in skipped)


def test_what_is_refused_holds_no_session(conv_net, tuned, monkeypatch):
    closed = []
    monkeypatch.setattr(Candidate, "close", lambda self: closed.append(str(self.choice)))
    proved = []
    original = Candidate.right_at
    monkeypatch.setattr(Candidate, "right_at", lambda *given: proved.append(list(closed)) or original(*given))
    with_fault(monkeypatch, reversed_beyond_one)
    tuned(conv_net, max_tuning_seconds=5)
    assert "faulty fp32" in proved[0]  # before anything else is proved


def test_a_size_that_nothing_can_run_is_left_out(conv_net, tuned, monkeypatch):
    def fault(rows, outputs):
        if len(rows) > 16:
            raise BackendError("out of memory")
        return outputs

    faulty = type("Faulty", (FaultyBackend,), {"fault": staticmethod(fault)})()
    monkeypatch.setattr(backends, "discover", lambda: {"eager": faulty})
    plan = tuned(conv_net, buckets=(1, 8, 32), max_tuning_seconds=20)
    assert plan.buckets == (1, 8)
    assert [(item.status, item.why) for item in plan.measurements if item.bucket == 32] == [("failed", "out of memory")]
    with pytest.raises(BackendError, match="at batch 32 out of memory"):
        tuned(conv_net, buckets=(32,), max_tuning_seconds=20)


def test_a_size_that_nobody_had_time_for_is_proved_all_the_same(conv_net, tuned, monkeypatch):
    def fault(rows, outputs):
        if len(rows) == 4:
            outputs[0][:] = 0
        return outputs

    with_fault(monkeypatch, fault)
    report = tune.Autotuner._winner

    def winner(self, bucket):
        self.budget._used = 1000.0  # after the first batch size the time is over
        return report(self, bucket)

    monkeypatch.setattr(tune.Autotuner, "_winner", winner)
    plan = tuned(conv_net, buckets=(1, 4, 6), max_tuning_seconds=20)
    assert {bucket: choice.backend for bucket, choice in plan.choices.items()} == {1: "faulty", 4: "eager", 6: "faulty"}
    assert any("was used up" in item.why for item in plan.measurements if item.bucket == 6)
    assert re.match(r"max_tuning_seconds=20 was not enough for batch 6, batch 4; about \d{4} would be", plan.cut)
    (lost,) = (item for item in plan.measurements if item.bucket == 4 and item.choice.backend == "faulty")
    assert "was used up" not in lost.why  # what stands there is why it may not be used, not that nobody measured it


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.color, self.other = NearestColor(), nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return self.color(x), self.other(x).mean((2, 3))


@pytest.mark.parametrize("fault", [np.nan, 0.0], ids=["NaN", "dead"])
def test_the_second_head_of_a_lossy_candidate_is_judged_too(tuned, colored, monkeypatch, fault):
    faulty = type("Faulty", (FaultyBackend,), {"fault": staticmethod(lambda rows, out: [out[0], out[1] * fault])})()
    monkeypatch.setattr(backends, "discover", lambda: {"eager": faulty})
    with pytest.raises(ParityError, match="output 1"):
        tuned(TwoHeads(), images=colored, precision="bf16", backend="eager", buckets=(2,))


@pytest.mark.skipif(not HAVE_BF16, reason="this CPU has no bf16 instructions")
def test_bf16_is_judged_on_images_and_labels(conv_net, tuned, images):
    with torch.no_grad():
        labels = conv_net(torch.from_numpy(images)).argmax(1).numpy()
    try:
        plan = tuned(conv_net, images=images, labels=labels, precision="bf16", backend="openvino")
    except ParityError as error:  # another CPU may round this untrained network over the gate
        assert "top-1 agrees on" in str(error) or "accuracy falls" in str(error)  # noqa: PT017
        return
    for item in (item for item in plan.measurements if item.status == "won"):
        assert item.parity.rows == 96
        assert item.parity.top1_agreement >= 0.99
        assert item.parity.accuracy_drop <= 0.1


@pytest.mark.skipif(not HAVE_BF16, reason="this CPU has no bf16 instructions")
def test_only_a_lossy_candidate_that_would_win_is_judged(conv_net, tuned, images):
    plan = tuned(conv_net, images=images, max_tuning_seconds=8)
    for item in plan.measurements:
        if item.choice.precision == BF16 and item.status in ("won", "refused"):
            assert item.parity.rows == 72  # the others set the ranges of int8
        if item.choice.precision == BF16 and item.parity is None:
            assert item.why


@pytest.mark.skipif(not HAVE_BF16, reason="this CPU has no bf16 instructions")
def test_known_scores_are_what_candidates_are_judged_by(conv_net, tuned, images):
    wrong = np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, len(images))]
    with pytest.raises(ParityError, match="top-1 agrees on"):
        tuned(conv_net, images=images, scores=(wrong,), precision="bf16", backend="openvino")


@pytest.mark.skipif(not HAVE_BF16, reason="this CPU has no bf16 instructions")
def test_too_few_images_refuse_a_lossy_precision(conv_net, tuned, images):
    with pytest.raises(ParityError, match="at least 64 real images"):
        tuned(conv_net, images=images[:63], precision="bf16", backend="openvino")


@pytest.mark.skipif(not HAVE_BF16, reason="this CPU has no bf16 instructions")
def test_pinned_bf16_without_images_says_what_was_not_judged(conv_net, tuned):
    plan = tuned(conv_net, precision="bf16", backend="openvino")
    (item,) = (item for item in plan.measurements if item.bucket == 1 and item.status == "won")
    assert "no real images" in item.parity.why


def test_torchs_threads_are_as_before(conv_net, tuned):
    before = torch.get_num_threads()
    tuned(conv_net, backend="eager", threads=before + 1)
    assert torch.get_num_threads() == before


CENTERS = 4 * np.random.default_rng(5).normal(size=(5, 3)).astype(np.float32)


class NearestColor(nn.Module):
    """Classifies by the nearest of five colors, with layers that int8 can quantize; margins are wide."""

    def __init__(self, layers=1):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        nn.init.dirac_(self.conv.weight)
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(layers))
        self.head = nn.Linear(48, 5)
        with torch.no_grad():
            self.head.weight.zero_()[:, :3] = torch.from_numpy(CENTERS)
            self.head.bias.copy_(torch.from_numpy(-(CENTERS**2).sum(1) / 2))

    def forward(self, x):
        x = self.conv(x).mean((2, 3)).repeat(1, 16)
        for layer in self.layers:
            x = x + 0.1 * layer(x).tanh()
        return self.head(x)


@pytest.fixture
def colored():
    random = np.random.default_rng(0)
    noise = 0.3 * random.normal(size=(96, 3, 16, 16)).astype(np.float32)
    return noise + CENTERS[random.integers(0, 5, 96)][:, :, None, None]


def test_int8_is_judged_on_images_that_did_not_calibrate(tuned, colored):
    pinned = {"precision": "int8", "backend": "onnxruntime", "buckets": (2,)}
    plan = tuned(NearestColor(), images=colored, **pinned)
    (won,) = (item for item in plan.measurements if item.status == "won")
    assert (won.choice.precision, won.parity.rows) == (INT8, 72)
    assert won.parity.top1_agreement >= 0.995
    assert plan.choice(2).files == ("model-int8.onnx",)
    given = tuned(NearestColor(), images=colored, calibration=colored[:20], **pinned)
    assert {item.parity.rows for item in given.measurements if item.status == "won"} == {96}


@pytest.mark.parametrize("alike", [True, False])
def test_int8_that_a_server_would_not_know_again_is_refused(tuned, colored, monkeypatch, alike):
    """A server knows a model by its answers to rows like the images; between small numbers, ranges of large ones tell nothing
    apart."""
    net = NearestColor()
    with torch.no_grad():
        net.conv.weight.div_(50)
    if not alike:
        monkeypatch.setattr(reference, "span_of", lambda images: None)
    plan = tuned(net, images=50 * colored, precision="fp32,int8", backend="onnxruntime", buckets=(2,))
    (found,) = (item for item in plan.measurements if item.choice.precision == INT8)
    assert found.parity.top1_agreement >= 0.99
    assert ("known rows" in (found.parity.why or "")) == (found.status == "refused") == (not alike)


def test_int8_takes_its_ranges_from_calibration_images_alone(colored):
    config = GraphConfig(precision="int8", backend="onnxruntime", buckets=(2,), threads=1)
    rows = torch.from_numpy(colored[:2])
    graph = headrace.compile(NearestColor(), rows, calibration=torch.from_numpy(colored[2:40]), config=config)
    assert graph.plan.choice(2).precision == INT8
    assert "no real images were given" in graph.parity.why


class Loud(NearestColor):
    """Before its head stands an outlier so large that 8 bits leave nothing of the other values."""

    def forward(self, x):
        x = self.conv(x).mean((2, 3)).repeat(1, 16)
        for layer in self.layers:
            x = x + 0.1 * layer(x).tanh()
        return self.head(torch.cat([x[:, :-1], x[:, -1:] * 0 + 3000], 1))


def test_a_layer_that_int8_ruins_stays_in_floats(tuned, colored):
    pinned = {"precision": "int8", "backend": "onnxruntime", "buckets": (2,), "max_tuning_seconds": 30}
    plan = tuned(Loud(layers=8), images=colored, **pinned)
    (won,) = (item for item in plan.measurements if item.status == "won")
    (refused,) = (item for item in plan.measurements if item.status == "refused")
    assert refused.candidate == "onnxruntime int8"
    assert won.candidate == "onnxruntime int8, 10% of layers in floats"
    assert plan.choice(2).files == ("model-int8-1.onnx",)


def test_an_impossible_gate_for_pinned_int8_is_an_error_that_lists_all_steps(conv_net, tuned, images):
    wrong = np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, len(images))]
    with pytest.raises(ParityError, match="25% of layers in floats"):
        tuned(conv_net, images=images, scores=(wrong,), precision="int8", backend="onnxruntime", buckets=(1,))


def test_what_the_first_images_refuse_gets_no_sessions_and_no_larger_share_in_floats(tuned, colored, monkeypatch):
    """int8 is the fastest there, and what it answers is far off with some layers in floats as well."""
    original = tune.Autotuner._measure

    def measure(self, candidates, bucket, seconds):
        times = [0.01 if item.choice.precision.is_int8 else 0.02 for item in candidates]
        monkeypatch.setattr(tune, "measure", lambda *given, **more: [Samples([time] * 3) for time in times])
        original(self, candidates, bucket, seconds)

    monkeypatch.setattr(tune.Autotuner, "_measure", measure)
    wrong = np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, len(colored))]
    wanted = {"precision": "fp32,int8", "backend": "openvino", "buckets": (1, 4), "max_tuning_seconds": 300}
    plan = tuned(NearestColor(layers=8), images=colored, scores=(wrong,), **wanted)
    tried = {item.candidate for item in plan.measurements if item.choice.precision.is_int8}
    assert [candidate for candidate in tried if "10%" in candidate]
    assert not [candidate for candidate in tried if "fixed batch" in candidate or "25%" in candidate]
    assert all(choice.precision == FP32 for choice in plan.choices.values())


@pytest.mark.parametrize(
    ("task", "measure"),
    [("embedding", "cosine"), ("multi-label:0.4", "decision_agreement"), ("single-label", "top1_agreement")],
)
def test_an_output_is_judged_by_what_it_is(tuned, colored, task, measure):
    module, wanted = NearestColor(), {"precision": "int8", "backend": "onnxruntime", "buckets": (1,), "task": task}
    measured = [item.parity for item in tuned(module, images=colored, **wanted).measurements if item.parity is not None]
    for parity in measured:
        told = ("cosine", "decision_agreement", "top1_agreement")
        assert {name for name in told if getattr(parity, name) is not None} == {measure}
    turned = (-module(torch.from_numpy(colored)).detach().numpy(),)
    with pytest.raises(ParityError):
        tuned(module, images=colored, scores=turned, **wanted)


def test_the_winner_for_one_batch_size_is_proved_and_measured_like_any(conv_net, tuned):
    told = []
    plan = tuned(
        conv_net, backend="openvino", buckets=(1, 4), max_tuning_seconds=300, threads=2,
        progress=lambda part, text: told.append(part),
    )  # fmt: skip
    assert told == sorted(told), "what comes up late is prepared where the others stand"
    for bucket in (1, 4):
        names = {item.candidate: item for item in plan.measurements if item.bucket == bucket}
        streams = {"openvino fp32, fixed batch, 2 streams"} if bucket > 1 else set()
        assert set(names) == {"openvino fp32", "openvino fp32, fixed batch"} | streams, plan.measurements
        fixed = names["openvino fp32, fixed batch"]
        assert fixed.status in ("won", "lost")
        assert fixed.status == "lost" or fixed.parity.passed
        assert fixed.memory_mb is not None
        assert plan.choice(bucket).batch in (None, bucket)


def test_what_wins_at_one_batch_size_alone_leaves_no_other_without_its_own(conv_net, tuned, monkeypatch):
    """By a hiccup, say, the session for any batch takes ten times as long at the first batch size."""
    original = tune.Autotuner._measure

    def measure(self, candidates, bucket, seconds):
        times = [0.001 if candidate.target.batch else 0.01 for candidate in candidates]
        monkeypatch.setattr(tune, "measure", lambda *given, **more: [Samples([time] * 3) for time in times])
        original(self, candidates, bucket, seconds)

    monkeypatch.setattr(tune.Autotuner, "_measure", measure)
    plan = tuned(conv_net, backend="openvino", buckets=(1, 4), max_tuning_seconds=300)
    assert {bucket: plan.choice(bucket).batch for bucket in (1, 4)} == {1: 1, 4: 4}


def with_times(monkeypatch, table, fault=None):
    """A GPU's rules on this machine, and backends that take as long as `table` says; what was measured is noted."""
    known = {"eager": backends.get("eager")}
    for name in table:
        if name != "eager":
            given = fault if name == "fast" and fault is not None else lambda rows, outputs: outputs
            known[name] = type(name, (FaultyBackend,), {"fault": staticmethod(given)})(name=name)
    monkeypatch.setattr(backends, "discover", lambda: known)
    monkeypatch.setattr(tune, "_LARGEST_DECIDES", ("cpu",))
    seen, original = [], tune.Autotuner._measure

    def measure(self, candidates, bucket, seconds):
        seen.append((bucket, sorted(candidate.choice.backend for candidate in candidates)))
        times = [table[candidate.choice.backend][bucket] / 1000 for candidate in candidates]
        monkeypatch.setattr(tune, "measure", lambda *given, **more: [Samples([time] * 3) for time in times])
        original(self, candidates, bucket, seconds)

    monkeypatch.setattr(tune.Autotuner, "_measure", measure)
    return seen


TIMES = {"eager": {1: 2.0, 4: 8.0, 8: 16.0}, "close": {1: 0.5, 4: 3.9, 8: 7.9}, "fast": {1: 1.0, 4: 2.0, 8: 4.0}}
TIMES["near"] = {1: 0.7, 4: 2.5, 8: 5.0}


def test_on_a_gpu_what_is_far_behind_at_the_largest_batch_is_measured_nowhere_else(conv_net, tuned, monkeypatch):
    seen = with_times(monkeypatch, TIMES)
    plan = tuned(conv_net, buckets=(1, 4, 8), max_tuning_seconds=60)
    assert seen == [(8, ["close", "eager", "fast", "near"]), (1, ["fast", "near"]), (4, ["fast", "near"])]
    assert {bucket: choice.backend for bucket, choice in plan.choices.items()} == {1: "near", 4: "fast", 8: "fast"}
    found = {(item.bucket, item.choice.backend): (item.status, item.why) for item in plan.measurements}
    assert found[1, "close"] == ("skipped", "takes 1.98 times as long as fast fp32 at batch 8")
    assert found[8, "close"][0] == "lost"


def test_what_was_left_behind_comes_back_where_nothing_else_may_be_used(conv_net, tuned, monkeypatch):
    def fault(rows, outputs):
        if len(rows) == 4:
            outputs[0][:] = 0
        return outputs

    seen = with_times(monkeypatch, {name: TIMES[name] for name in ("eager", "close", "fast")}, fault)
    plan = tuned(conv_net, buckets=(1, 4, 8), max_tuning_seconds=60)
    assert seen == [(8, ["close", "eager", "fast"]), (1, ["fast"]), (4, ["fast"]), (4, ["close", "eager"])]
    assert {bucket: choice.backend for bucket, choice in plan.choices.items()} == {1: "fast", 4: "close", 8: "fast"}


@dataclass(frozen=True, kw_only=True)
class TimedBackend(ReadOnce):
    """Takes so many seconds per row, and to be prepared, by the clocks of `with_clocks`, which nothing else moves."""

    clocks: object = None
    per_row: float = 0.0
    to_prepare: float = 0.0
    off: float = 0.0

    def prepare(self, captured, target, directory, records=None):
        self.clocks.work(self.to_prepare)
        return super().prepare(captured, target, directory, records)

    def open(self, directory, target, files):
        inner, backend = super().open(directory, target, files), self

        class Session:
            def run(self, inputs):
                backend.clocks.work(backend.per_row * len(inputs[0]))
                return [value + np.float32(backend.off) for value in inner.run(inputs)]

            def close(self):
                pass  # `inner` is not this one's alone

        return Session()


class Clocks:
    """One thread that works, and a wall beside it that goes `busy` times as fast, because others work, too."""

    def __init__(self, busy):
        self.busy, self.done = busy, 0.0

    def work(self, seconds):
        self.done += seconds

    def wall(self):
        return self.busy * self.done


def with_clocks(monkeypatch, busy, **backends_by_name):
    """Backends by name as `TimedBackend` takes them; returns how often each ran which batch size when it was measured."""
    clocks = Clocks(busy)
    known = {name: TimedBackend(name=name, clocks=clocks, **more) for name, more in backends_by_name.items()}
    monkeypatch.setattr(backends, "discover", lambda: known)
    budget = functools.partial(Budget, wall=clocks.wall, own=lambda: clocks.done, everyone=lambda: 0.0)
    monkeypatch.setattr("headrace.runtime.tuning.tune.Budget", budget)
    measure = importlib.import_module("headrace.runtime.tuning.measure")
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=clocks.wall, monotonic=clocks.wall))
    seen, original = [], tune.Autotuner._measure

    def noted(self, candidates, bucket, seconds):
        seen.append((bucket, sorted(candidate.choice.backend for candidate in candidates)))
        original(self, candidates, bucket, seconds)

    monkeypatch.setattr(tune.Autotuner, "_measure", noted)
    return seen


MODELS = {
    "eager": {"per_row": 0.3, "efficiency": 0.2},
    "best": {"per_row": 0.02, "efficiency": 0.8},
    "near": {"per_row": 0.025, "efficiency": 0.7},
    "third": {"per_row": 0.03, "efficiency": 0.6},
    "wrong": {"per_row": 0.001, "off": 5.0, "efficiency": 0.9},
}


def test_what_is_far_behind_in_the_heats_runs_no_more_and_the_best_two_are_measured_everywhere(conv_net, tuned, monkeypatch):
    seen = with_clocks(monkeypatch, 1.0, **MODELS)
    plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=60)
    heats = [(1, ["wrong"]), (1, ["best"]), (1, ["best", "near"]), (1, ["best", "third"]), (1, ["best", "eager"])]
    rest = [(1, ["best", "near", "third"]), (8, ["best", "near", "third"]), (4, ["best", "near"]), (2, ["best", "near"])]
    assert seen == heats + rest
    assert {choice.backend for choice in plan.choices.values()} == {"best"}
    found = {(item.bucket, item.choice.backend): item for item in plan.measurements}
    assert found[4, "eager"].why == "takes 15.00 times as long as best fp32 at batch 1"
    assert [found[bucket, "wrong"].status for bucket in (1, 2, 4, 8)] == ["refused"] * 4
    assert found[1, "near"].parity is None, "what loses by measurement is not proved"
    assert all(found[bucket, "best"].parity.passed for bucket in (1, 2, 4, 8))
    assert plan.cut == ""


def test_what_a_later_candidate_leaves_far_behind_is_measured_at_no_other_batch_size(conv_net, tuned, monkeypatch):
    """The first to lead is near what beats it, and far from what beats that one."""
    models = {
        "first": {"per_row": 0.02, "efficiency": 0.9},
        "second": {"per_row": 0.0145, "efficiency": 0.8},
        "third": {"per_row": 0.01, "efficiency": 0.7},
    }
    seen = with_clocks(monkeypatch, 1.0, **models)
    plan = tuned(conv_net, buckets=(1, 2), max_tuning_seconds=60)
    assert {choice.backend for choice in plan.choices.values()} == {"third"}
    assert "first" in dict(seen)[1]
    assert seen[-1] == (2, ["second", "third"])


@dataclass(frozen=True, kw_only=True)
class FixedBackend(TimedBackend):
    """Takes `alone` times as long where it is compiled for one batch size, and `parted` times on streams."""

    fixed_batch: bool = True
    streams: bool = True
    alone: float = 1.0
    parted: float = 1.0

    def open(self, directory, target, files):
        times = 1.0 if target.batch is None else self.alone if target.streams == 1 else self.parted
        return replace(self, per_row=times * self.per_row)._opened(directory, target, files)

    def _opened(self, directory, target, files):
        return super().open(directory, replace(target, threads=1), files)  # the clocks' are the threads that count


@pytest.mark.parametrize(
    ("alone", "parted", "between"),
    [
        *((1.0, 1.04, []), (0.8, 0.9, [(4, 1), (2, 1)]), (1.0, 1.01, [(4, 2), (2, 2)])),
        pytest.param(1.1, 0.7, [(4, 2), (2, 2)], marks=pytest.mark.slow),  # parts that win more clearly than in the last one
    ],
)
def test_between_the_ends_only_forms_that_won_there_are_compiled(conv_net, tuned, monkeypatch, alone, parted, between):
    seen = with_clocks(monkeypatch, 1.0, **MODELS)
    known = dict(backends.discover())
    plain = known["best"]
    names = ("name", "clocks", "per_row", "efficiency")
    known["best"] = FixedBackend(**{name: getattr(plain, name) for name in names}, alone=alone, parted=parted)
    monkeypatch.setattr(backends, "discover", lambda: known)
    compiled, original = [], Candidate.fixed

    def fixed(self, bucket, streams=1):
        compiled.append((bucket, streams))
        return original(self, bucket, streams)

    monkeypatch.setattr(Candidate, "fixed", fixed)
    plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=60, threads=2)
    assert compiled[:3] == [(1, 1), (8, 1), (8, 2)]
    assert compiled[3:] == between
    # In parts it may take 3 % longer: beside other processes no part waits for the other.
    best = min((1.0, None), (1.02 * alone, 1), (0.97 * parted, 2), key=lambda form: form[0])[1]
    assert [plan.choices[bucket].streams if plan.choices[bucket].batch else None for bucket in (2, 4, 8)] == [best] * 3
    assert seen


@pytest.mark.parametrize(
    ("parted", "streams"), [(0.7, [2, 2, None]), pytest.param(1.1, [None, None, None], marks=pytest.mark.slow)]
)
def test_what_won_in_parts_at_the_next_larger_size_is_compiled_for_one_that_nobody_measured(
    conv_net, tuned, monkeypatch, parted, streams
):
    with_clocks(monkeypatch, 1.0, **MODELS)
    known = dict(backends.discover())
    plain = known["best"]
    names = ("name", "clocks", "per_row", "efficiency")
    known["best"] = FixedBackend(**{name: getattr(plain, name) for name in names}, parted=parted)
    monkeypatch.setattr(backends, "discover", lambda: known)
    affordable = tune.Autotuner._affordable
    monkeypatch.setattr(
        tune.Autotuner, "_affordable", lambda self, able, known, bucket: bucket == 8 and affordable(self, able, known, bucket)
    )
    plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=60, threads=2)
    assert [plan.choices[bucket].streams if plan.choices[bucket].batch else None for bucket in (8, 4, 2)] == streams
    (own,) = (item for item in plan.measurements if item.bucket == 4 and item.choice == replace(plan.choices[4], files=()))
    assert own.why.endswith("batch 8 decides") == (streams[1] is not None)


@pytest.mark.parametrize("seconds", [4.0, pytest.param(8.0, marks=pytest.mark.slow), 16.0])
def test_a_busy_machine_gets_the_plan_of_a_quiet_one(conv_net, tuned, monkeypatch, seconds):
    found = []
    for busy in (1.0, 3.5):
        seen = with_clocks(monkeypatch, busy, **MODELS)
        plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=seconds)
        cut = plan.cut.partition(";")[0]
        found.append((seen, plan.choices, cut, [(item.candidate, item.status) for item in plan.measurements]))
        monkeypatch.undo()
    assert found[0] == found[1]
    assert {choice.backend for choice in found[0][1].values()} == {"best"}


def test_what_is_refused_costs_the_winner_nothing(conv_net, tuned, monkeypatch):
    """As ONNX Runtime's int8 on a transformer: it seems the fastest, takes half the time to prepare, and is refused."""
    forms = {**MODELS, "wrong": {**MODELS["wrong"], "to_prepare": 5.0}}
    with_clocks(monkeypatch, 2.0, **forms)
    plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=10)
    assert {choice.backend for choice in plan.choices.values()} == {"best"}
    assert len(plan.choices) == 4


def test_one_line_says_what_the_time_did_not_allow_and_how_much_would_be_enough(conv_net, tuned, monkeypatch, caplog):
    late = {"per_row": 0.01, "efficiency": 0.5, "preparation_seconds": 12.0, "to_prepare": 12.0}
    forms = {**MODELS, "late": late}
    with_clocks(monkeypatch, 1.0, **forms)
    with caplog.at_level(logging.DEBUG, "headrace.tuning"):
        plan = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=10)
    assert plan.choice(1).backend == "best"
    match = re.fullmatch(r"max_tuning_seconds=10 was not enough for late fp32; about (\d+) would be", plan.cut)
    assert match, plan.cut
    assert plan.cut in caplog.messages
    assert Plan.from_json(plan.to_json()).cut == plan.cut
    text = io.StringIO()
    Console(file=text, width=150).print(plan_table(plan.to_json()))
    assert plan.cut in text.getvalue()
    monkeypatch.undo()
    with_clocks(monkeypatch, 1.0, **forms)
    again = tuned(conv_net, buckets=(1, 2, 4, 8), max_tuning_seconds=float(match[1]))
    assert ({choice.backend for choice in again.choices.values()}, again.cut) == ({"late"}, "")


def test_what_takes_long_and_is_predicted_to_lose_is_not_built(conv_net, tuned, monkeypatch):
    forms = {**MODELS, "late": {"per_row": 0.01, "efficiency": 0.3, "preparation_seconds": 30.0, "to_prepare": 30.0}}
    with_clocks(monkeypatch, 1.0, **forms)
    monkeypatch.setattr(Prediction, "small", False)
    plan = tuned(conv_net, buckets=(1, 4), max_tuning_seconds=100)
    (item,) = (item for item in plan.measurements if item.bucket == 1 and item.choice.backend == "late")
    assert item.status == "skipped"
    assert re.fullmatch(r"is predicted to take \d\.\d times as long as best fp32", item.why)
    assert plan.cut == ""


def test_a_budget_asks_the_images_to_show_it(conv_net, tuned, images):
    """96 images without a loss show one of at most 3.8 points with 97.5 % confidence, which is the first candidate's."""
    loose = tuned(conv_net, images=images, precision="bf16", backend="eager", budget=20.0).worst_parity()
    with pytest.raises(ParityError, match=r"96 images show a loss of at most [\d.]+ points of agreement, the budget is 1"):
        tuned(conv_net, images=images, precision="bf16", backend="eager", budget=1.0)
    with pytest.raises(ParityError, match="real images must show that it keeps to the budget"):
        tuned(conv_net, precision="bf16", backend="eager", budget=5.0)
    assert loose.confidence == 0.975
    assert 3 < loose.loss_bound < 20


def test_a_budget_is_shown_by_all_images_however_little_time_there_is(conv_net, tuned):
    random = np.random.default_rng(0)
    many = (random.normal(size=(300, 3, 16, 16)) + 3 * random.normal(size=(300, 3, 1, 1))).astype(np.float32)
    plan = tuned(conv_net, images=many, precision="bf16", backend="eager", budget=20.0, max_tuning_seconds=0.001)
    assert plan.worst_parity().rows == 300
