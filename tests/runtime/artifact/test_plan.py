import json

import pytest

from headrace.runtime.artifact.parity import ParityRecord
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.specs import FP32


@pytest.fixture
def plan():
    parity = ParityRecord(status="passed", max_abs=1e-6, top1_agreement=1.0, rows=8, batches=(1, 2, 5))
    won = Measurement(
        choice=Choice(backend="a", precision=FP32), bucket=1, status="won", median_ms=2.0, spread_ms=0.1, parity=parity
    )
    lost = Measurement(choice=Choice(backend="b", precision=FP32), bucket=1, status="skipped", why="not installed")
    return Plan(
        fingerprint={"cpu": "x"},
        choices={
            8: Choice(backend="b", precision=FP32, batch=8, streams=2),
            1: Choice(backend="a", precision=FP32, files=("model.onnx",)),
        },
        threads=2,
        measurements=(won, lost),
    )


def test_json_round_trip_through_text(plan):
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_batch_takes_the_next_larger_bucket_and_beyond_all_the_largest(plan):
    assert plan.buckets == (1, 8)
    assert [plan.bucket(rows) for rows in (1, 2, 8, 9, 1000)] == [1, 8, 8, 8, 8]
    assert plan.choice(3).backend == "b"
    assert plan.target(3).threads == 2
    assert plan.target(3, threads=1).threads == 1
    assert (plan.target(3).batch, plan.target(3).streams) == (8, 2)


@pytest.mark.parametrize("rows", [0, -1])
def test_no_rows_is_an_error(plan, rows):
    with pytest.raises(ValueError, match="at least one row"):
        plan.choice(rows)


@pytest.mark.parametrize("choices", [{}, {0: None}, {"1": None}, {True: None}])
def test_bad_buckets_are_refused(choices):
    with pytest.raises(ValueError, match=r"bucket|choice"):
        Plan(fingerprint={}, choices=choices)


def test_unknown_status_in_a_file_is_refused(plan):
    data = plan.to_json()
    data["measurements"][0]["status"] = "bribed"
    with pytest.raises(ValueError, match="status"):
        Plan.from_json(data)
