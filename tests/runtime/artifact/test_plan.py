import json
from dataclasses import replace

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


def measured(choice, bucket, milliseconds, status="lost"):
    return Measurement(choice=replace(choice, files=()), bucket=bucket, status=status, median_ms=milliseconds, memory_mb=5.0)


def of_buckets(*choices, measurements=()):
    return Plan(fingerprint={}, choices=dict(zip((1, 4, 8), choices, strict=True)), measurements=measurements)


ANY, OTHER = (Choice(backend=name, precision=FP32, files=("model.onnx",)) for name in "ab")
FIXED = [replace(ANY, batch=size) for size in (1, 4, 8)]


def test_one_choice_to_begin_with_takes_any_batch_and_is_the_quickest_on_the_whole():
    assert of_buckets(ANY, FIXED[1], FIXED[2]).first() == ANY
    assert of_buckets(ANY, OTHER, OTHER).first() == OTHER
    times = (measured(ANY, 8, 10.0), measured(OTHER, 8, 9.0), measured(OTHER, 1, 5.0), measured(ANY, 1, 1.0))
    assert of_buckets(ANY, FIXED[1], OTHER, measurements=times).first() == ANY
    assert of_buckets(OTHER, FIXED[1], ANY, measurements=times).first() == ANY


def test_what_was_wrong_anywhere_is_not_begun_with():
    wrong = (measured(ANY, 8, 1.0, "refused"),)
    assert of_buckets(ANY, OTHER, FIXED[2], measurements=wrong).first() == OTHER
    only = of_buckets(ANY, FIXED[1], FIXED[2], measurements=wrong)
    assert (only.first(), only.first_rows()) == (ANY, 1)  # as many rows as it was right with
    assert of_buckets(ANY, FIXED[1], FIXED[2]).first_rows() is None


def test_where_none_takes_any_batch_the_smallest_runs_in_parts():
    assert of_buckets(*FIXED).first() == FIXED[0]


def test_gains_and_memory_are_those_that_were_measured():
    plan = of_buckets(ANY, FIXED[1], FIXED[2], measurements=(measured(ANY, 4, 12.0), measured(FIXED[1], 4, 10.0, "won")))
    assert plan.gain(4, ANY) == 1.2
    assert plan.gain(8, ANY) is None
    assert (plan.memory_mb(ANY), plan.memory_mb(FIXED[2])) == (5.0, None)
