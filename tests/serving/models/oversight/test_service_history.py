"""What the server remembers of its models."""

import json

import pytest

from headrace.runtime.artifact.model_config import ModelConfig
from headrace.serving.batching.statistics import BatchTimes, ModelStatistics
from headrace.serving.models.models import Model
from headrace.serving.models.oversight.service_history import POINT, ServiceHistory


def _model(version="1", statistics=None) -> Model:
    config = ModelConfig.__new__(ModelConfig)  # which nothing reads here
    return Model(name="m", version=version, config=config, statistics=statistics or ModelStatistics())


def _answer(model, count, seconds=0.003):
    for _ in range(count):
        model.statistics.batch_done(BatchTimes(1, 1, 1, 1), [(int(seconds * 1e9), 0, 1.0)])


def _points(history, length="hour"):
    return [dict(zip(POINT, point, strict=True)) for point in history.to_json()["models"]["m"][length]]


def test_a_point_is_what_happened_since_the_one_before():
    history, model = ServiceHistory(), _model()
    _answer(model, 100)  # before anybody looked
    history.look([model], now=1000.0)
    _answer(model, 20)
    model.statistics.failed(1, "OTHER")
    history.look([model], now=1005.0)
    history.look([model], now=1010.0)
    first, second = _points(history)
    assert (first["seconds"], first["answered"], first["failed"], first["rows"]) == (5.0, 20, 1, 20)
    assert first["p50"] == pytest.approx(0.003, rel=0.25)
    assert (second["answered"], second["p50"]) == (0, None)


def test_versions_come_and_go_under_one_name():
    history, old, new = ServiceHistory(), _model("1"), _model("2")
    history.look([old], now=1000.0)
    _answer(old, 5)
    history.look([old], now=1005.0)
    _answer(new, 7)
    history.look([new], now=1010.0)
    history.look([], now=1015.0)
    again = _model("2")  # whose counters began anew
    _answer(again, 2)
    history.look([again], now=1020.0)
    assert [point["answered"] for point in _points(history)] == [5, 7, 2]


def test_it_is_bounded_and_fits_a_message():
    history, models = ServiceHistory(), [_model()]
    for number in range(20_000):
        history.look(models, now=1000.0 + 5 * number)
        if number % 20 == 0:  # five times as many as are kept
            history.note("m", "x" * 10_000, now=1.0)
    kept = history.to_json()
    assert len(kept["models"]["m"]["hour"]) == 720
    assert len(kept["models"]["m"]["day"]) == 720
    assert _points(history, "day")[-1]["seconds"] == 120
    assert len(json.dumps(kept)) < 300_000


def test_events_name_no_place_of_the_machine():
    history = ServiceHistory()
    history.note("m", "cannot open /srv/secret/models/m/1/model.onnx: no such file; see https://host/x/y and C:\\data\\m.onnx")
    (event,) = history.to_json()["events"]
    assert event["text"] == "cannot open …/model.onnx: no such file; see https://host/x/y and …/m.onnx"
