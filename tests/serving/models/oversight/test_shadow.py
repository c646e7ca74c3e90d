"""Answers compared with fp32 beside the service: what is sampled, how it is judged, and that a wrong plan is taken back."""

import json
import threading
import time
import urllib.request
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.parity import ParityRecord
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.base.task import Task
from headrace.serving.models.oversight.shadow import Agreement, Shadow, accepted_share
from headrace.specs import FP32, INT8, Signature, TensorSpec
from tests.serving.conftest import BATCH, LABELS, PREPROCESSING, SIGNATURE, WEIGHTS, _onnx

SCORES = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 4)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 4)),),
)
LOSSY = Choice(backend="onnxruntime", precision=INT8, files=("model-int8.onnx",))


class Reference:
    """fp32: the scores are the input."""

    def __init__(self):
        self.ran, self.closed = [], False
        self.going = threading.Event()
        self.going.set()

    def run(self, inputs):
        self.going.wait(30)
        self.ran.append(inputs[0].copy())
        return [inputs[0]]

    def close(self):
        self.closed = True


def _until(true, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _shadow(reference, *, rate=1.0, told="", accepted=0.995, take_back=lambda found: None) -> Shadow:
    task = Task.of(SCORES, told)
    return Shadow("m", task, lambda: reference, rate=rate, agreement=Agreement(accepted), take_back=take_back, seed=1)


def _rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def test_a_share_of_the_rows_is_looked_at_and_each_alone():
    reference = Reference()
    shadow = _shadow(reference, rate=0.1)
    shadow.start()
    rows, agreement = _rows(8), lambda: shadow.agreement
    for _ in range(1000):
        shadow.look([rows], [rows], 5)  # the last three are padding
        _until(lambda: shadow._waiting.qsize() < 100)
    _until(lambda: shadow._waiting.qsize() == 0)
    shadow.stop()
    _until(lambda: reference.closed)
    assert agreement().compared == agreement().agreed == len(reference.ran)
    assert 400 <= len(reference.ran) <= 600  # 5000 rows, a tenth: 500 with a standard deviation of 21
    seen = {row.tobytes() for batch in reference.ran for row in batch}
    assert all(len(batch) == 1 for batch in reference.ran)
    assert seen == {row.tobytes() for row in rows[:5]}


def test_rows_are_copied_before_their_memory_has_others():
    reference = Reference()
    reference.going.clear()
    shadow = _shadow(reference)
    shadow.start()
    rows = _rows(2)
    kept = rows.copy()
    shadow.look([rows], [rows], 2)
    rows[:] = 0
    reference.going.set()
    _until(lambda: shadow.agreement.compared == 2)
    shadow.stop()
    assert np.array_equal(np.concatenate(reference.ran), kept)


def test_what_comes_while_it_is_busy_is_left_out_and_nobody_waits():
    reference = Reference()
    reference.going.clear()
    shadow = _shadow(reference)
    shadow.start()
    rows = _rows(100)
    for _ in range(10):
        shadow.look([rows], [rows], 100)
    assert shadow.agreement.skipped > 0
    reference.going.set()
    _until(lambda: shadow.agreement.compared + shadow.agreement.skipped == 1000)
    shadow.stop()


def test_a_plan_that_answers_otherwise_is_taken_back_once():
    found = []
    shadow = _shadow(Reference(), take_back=found.append)
    shadow.start()
    rows = _rows(50)
    wrong = rows.copy()
    wrong[:5] = -wrong[:5]
    for _ in range(20):
        shadow.look([rows], [wrong], 50)
        time.sleep(0.01)
    _until(lambda: found)
    assert len(found) == 1
    assert found[0].taken_back
    assert found[0].interval[1] < 0.995
    assert shadow.agreement == found[0]


def test_one_that_becomes_wrong_after_long_is_found():
    found = []
    shadow = _shadow(Reference(), take_back=found.append)
    shadow.start()
    rows = _rows(100)
    for number in range(60):
        wrong = -rows if number >= 50 and number % 2 else rows
        shadow.look([rows], [wrong], 100)
        _until(lambda: shadow._waiting.qsize() == 0 or found)
    _until(lambda: found)
    assert found[0].compared <= 6000


def test_what_is_not_finite_does_not_agree_and_says_nothing_where_fp32_has_none():
    shadow = _shadow(Reference())
    shadow.start()
    rows = _rows(2)
    shadow.look([rows], [np.full_like(rows, np.nan)], 1)
    shadow.look([np.full_like(rows, np.nan)], [rows], 1)
    _until(lambda: shadow.agreement.compared == 1 and shadow._waiting.qsize() == 0)
    shadow.stop()
    assert shadow.agreement.agreed == 0


def test_of_several_labels_each_counts():
    shadow = _shadow(Reference(), told="multi-label")
    shadow.start()
    rows = np.array([[9, 9, 9, -9]], np.float32)
    shadow.look([rows], [np.array([[9, 9, -9, -9]], np.float32)], 1)
    _until(lambda: shadow.agreement.compared == 3)
    shadow.stop()
    assert shadow.agreement.agreed == 2


def test_embeddings_agree_in_their_direction():
    shadow = _shadow(Reference(), told="embedding")
    shadow.start()
    rows = _rows(1)
    shadow.look([rows], [rows * 1.01], 1)
    shadow.look([rows], [rows * [[1, -1, 1, -1]]], 1)
    _until(lambda: shadow.agreement.compared == 2)
    shadow.stop()
    assert shadow.agreement.agreed == 1


def test_a_reference_that_fails_ends_the_comparison_and_nothing_else(caplog):
    def broken():
        raise RuntimeError("no memory")

    shadow = Shadow(
        "m", Task.of(SCORES), broken, rate=1.0, agreement=Agreement(0.9), take_back=lambda found: pytest.fail("taken back")
    )
    shadow.start()
    rows = _rows(1)
    shadow.look([rows], [rows], 1)
    shadow._thread.join(30)
    shadow.look([rows], [rows], 1)
    assert shadow.agreement.compared == 0
    assert "not compared with fp32 any more: no memory" in caplog.text


def _plan(record: ParityRecord) -> Plan:
    won = Measurement(choice=replace(LOSSY, files=()), bucket=1, status="won", median_ms=1.0, parity=record)
    return Plan(fingerprint={}, choices={1: LOSSY}, measurements=(won,))


@pytest.mark.parametrize(
    ("record", "low", "high"),
    [
        ({"top1_agreement": 1.0, "rows": 500}, 0.995, 0.995),  # the gate's own
        ({"top1_agreement": 1.0, "rows": 500, "accuracy_drop": 0.0}, 0.99, 0.99),
        ({"top1_agreement": 0.97, "rows": 500, "budget": 5.0}, 0.95, 0.95),
        ({"top1_agreement": 0.9, "rows": 500, "accuracy_drop": 0.0, "budget": 0.5}, 0.86, 0.89),  # flips of what was wrong
    ],
)
def test_what_was_accepted(record, low, high):
    share = accepted_share(_plan(ParityRecord(status="passed", **record)), Task.of(SCORES))
    assert low <= share <= high


def _planned(tmp_path, noise: float):
    """A models folder whose plan is a graph with other weights than the portable one."""
    files = tmp_path / "files"
    files.mkdir()
    _onnx(files / "model.onnx")
    graph = onnx.load(files / "model.onnx")
    for index, tensor in enumerate(graph.graph.initializer):
        if tensor.name == "weights":
            other = WEIGHTS + np.random.default_rng(1).normal(0, noise, WEIGHTS.shape).astype(np.float32)
            graph.graph.initializer[index].CopyFrom(numpy_helper.from_array(other, "weights"))
    onnx.save(graph, files / "model-int8.onnx")
    models = tmp_path / "models"
    models.mkdir()
    record = ParityRecord(status="passed", top1_agreement=1.0, rows=500)
    measured = [
        Measurement(choice=replace(LOSSY, files=()), bucket=1, status="won", median_ms=1.0, parity=record),
        Measurement(choice=Choice(backend="onnxruntime", precision=FP32), bucket=1, status="lost", median_ms=2.0),
    ]
    plan = Plan(fingerprint=fingerprint(), choices={1: LOSSY, BATCH: LOSSY}, threads=1, measurements=tuple(measured))
    write_package(
        models / "tiny", name="tiny", files_from=files, signature=SIGNATURE, preprocessing=PREPROCESSING, labels=LABELS,
        parity={}, plans=[plan], provenance={}, max_batch_size=BATCH,
    )  # fmt: skip
    return models


def _figures(server):
    with urllib.request.urlopen(f"{server.url}/v1/figures", timeout=30) as answer:
        return next(model for model in json.load(answer)["models"] if model["name"] == "tiny")


def _metrics(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("headrace_")}


def _ask(server, make_photo, numbers):
    for number in numbers:
        request = urllib.request.Request(f"{server.url}/v1/classify/tiny?k=1", data=make_photo(number))
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["predictions"]


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 2])  # the engine does it, in either
def test_a_server_takes_a_wrong_plan_back(tmp_path, launch, make_photo, frontends):
    with launch(_planned(tmp_path, noise=0.05), shadow=1.0, frontends=frontends) as server:
        assert _figures(server)["plan"]["serves"] == "onnxruntime int8"
        number = 0
        while _figures(server)["plan"]["serves"] != "onnxruntime fp32":
            _ask(server, make_photo, range(number, number + 10))  # each is answered, whatever happens meanwhile
            number += 10
            assert number < 3000
        agreement = _figures(server)["agreement"]
        assert agreement["taken_back"]
        assert agreement["high"] < agreement["accepted"] == 0.995
        counted = _metrics(server)
        assert counted['headrace_plan_taken_back{model="tiny",version="1"}'] == 1
        assert counted['headrace_shadow_compared_total{model="tiny",version="1"}'] == agreement["compared"]
        assert counted['headrace_shadow_agreement{bound="high",model="tiny",version="1"}'] == agreement["high"]
        assert "the plan of version 1 is taken back" in server.log.read_text()
        with urllib.request.urlopen(f"{server.url}/v1/history", timeout=30) as answer:
            assert "is taken back" in answer.read().decode()
        _ask(server, make_photo, range(20))
        assert _figures(server)["agreement"] == agreement


def test_a_plan_that_is_right_stays(tmp_path, launch, make_photo):
    with launch(_planned(tmp_path, noise=1e-6), shadow=1.0) as server:
        _ask(server, make_photo, range(100))
        _until(lambda: _figures(server)["agreement"]["compared"] + _figures(server)["agreement"]["skipped"] >= 100)
        found = _figures(server)
        assert found["plan"]["serves"] == "onnxruntime int8"
        assert found["agreement"]["agreed"] == found["agreement"]["compared"] > 0
        assert not found["agreement"]["taken_back"]


def test_without_it_nothing_is_compared(tmp_path, launch, make_photo):
    with launch(_planned(tmp_path, noise=0.05)) as server:
        _ask(server, make_photo, range(20))
        assert _figures(server)["agreement"] is None
        assert not any("shadow" in name for name in _metrics(server))
