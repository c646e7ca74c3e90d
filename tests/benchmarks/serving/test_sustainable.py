"""The search for the sustainable rate, over a service that is a formula and over a real one."""

import pytest

from headrace.errors import BenchError
from headrace.serving.bench.load.histogram import Histogram
from headrace.serving.bench.load.load import LoadResult
from tests.benchmarks.serving.sustainable import find_sustainable, goodput, in_time_share, main


def result_of(latencies, rejected=0, errors=0, seconds=1.0):
    counted = Histogram()
    for latency in latencies:
        counted.record(latency)
    return LoadResult(
        seconds=seconds,
        sent=len(latencies) + rejected + errors,
        completed=len(latencies),
        samples=len(latencies),
        requests_per_second=len(latencies) / seconds,
        latency_ms=counted.summary_ms(),
        histogram=counted.to_json(),
        errors={"500": errors} if errors else {},
        error_examples={"500": "it broke"} if errors else {},
        answers=(),
        client_cpu_us_per_request=0.0,
        rejected={"503": rejected} if rejected else {},
    )


def service(capacity):
    """Answers at once up to its capacity and rejects the rest."""
    return lambda rate: result_of([0.001] * round(min(rate, capacity) * 10), rejected=round(max(0.0, rate - capacity) * 10))


@pytest.mark.parametrize("capacity", [0.9, 5.0, 100.0, 3000.0])
def test_it_finds_the_rate_that_is_sustained(capacity):
    sweep = find_sustainable(service(capacity), limit_seconds=0.015, start=8.0)
    assert 0.93 * capacity <= sweep.sustainable <= 1.03 * capacity
    assert sweep.best_goodput == pytest.approx(10 * capacity, rel=0.1)
    assert all(step.sustained == (step.rate <= sweep.sustainable) for step in sweep.steps)
    assert len(sweep.steps) < 30


def test_late_rejected_and_failed_requests_are_not_in_time():
    result = result_of([0.001] * 90 + [0.5] * 4, rejected=4, errors=2, seconds=10.0)
    assert in_time_share(result, 0.015) == pytest.approx(0.9)
    assert goodput(result, 0.015) == pytest.approx(9.0)
    assert in_time_share(result_of([]), 0.015) == 0


def test_a_service_that_sustains_nothing_is_an_error_that_says_why():
    with pytest.raises(BenchError, match="it broke"):
        find_sustainable(lambda rate: result_of([], errors=5), limit_seconds=0.015)
    with pytest.raises(BenchError, match="p99 500 ms"):
        find_sustainable(lambda rate: result_of([0.5] * 10), limit_seconds=0.015)
    with pytest.raises(ValueError, match="positive"):
        find_sustainable(service(1.0), limit_seconds=0.0)


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    assert main(["http://127.0.0.1:1/", str(tmp_path)]) == 2
    assert "no images" in capsys.readouterr().err
