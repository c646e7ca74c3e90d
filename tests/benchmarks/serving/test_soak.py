"""Overload of a real server, briefly: what was found is judged, and the judgement is what the page says."""

import json
from dataclasses import replace

import pytest

from headrace.serving.bench.load.histogram import Histogram
from headrace.serving.bench.load.load import LoadResult
from tests.benchmarks.serving.soak import Slice, Soak, checks, main, markdown
from tests.benchmarks.serving.sustainable import Step, Sweep

GOOD = Slice(goodput=99.0, answered=990, rejected=1000, errors={}, p99_ms=90.0, rejected_p99_ms=3.0, memory_bytes=100 << 20)


def swept(rate):
    counted = Histogram()
    for _ in range(round(rate) * 10):
        counted.record(0.01)
    result = LoadResult(
        seconds=10.0,
        sent=len(counted),
        completed=len(counted),
        samples=len(counted),
        requests_per_second=rate,
        latency_ms=counted.summary_ms(),
        histogram=counted.to_json(),
        errors={},
        error_examples={},
        answers=(),
        client_cpu_us_per_request=1.0,
    )
    return Sweep(0.1, (Step(rate, True, result),))


def soak_of(*slices, **change):
    made = Soak(
        model="m", deadline_seconds=0.1, sweep=swept(100.0), rate=200.0, slices=slices, p99_ms=90.0, rejected_p99_ms=3.0
    )
    return replace(made, **change)


def failing(soak):
    return [check.what for check in checks(soak) if not check.holds]


def test_a_good_run_holds_in_every_way():
    assert failing(soak_of(GOOD, GOOD, GOOD)) == []


@pytest.mark.parametrize(
    ("soak", "what"),
    [
        (soak_of(GOOD, replace(GOOD, goodput=80.0), replace(GOOD, goodput=80.0)), "goodput"),
        (soak_of(GOOD, replace(GOOD, errors={"500": 1}), GOOD), "fails"),
        (soak_of(replace(GOOD, rejected=0)), "excess"),
        (soak_of(GOOD, rejected_p99_ms=101.0), "at once"),
        (soak_of(GOOD, p99_ms=101.0), "within 100 ms"),
        (soak_of(GOOD, GOOD, GOOD, replace(GOOD, memory_bytes=110 << 20)), "memory"),
    ],
)
def test_each_way_in_which_a_run_can_fail_is_seen(soak, what):
    (found,) = failing(soak)
    assert what in found
    page = markdown(soak, command="c", machine="m", when="w")
    assert page.count("**does not hold**") == 1
    assert page.count("| holds |") == 5


def test_memory_of_the_first_slice_is_no_measure():
    assert failing(soak_of(replace(GOOD, memory_bytes=50 << 20), GOOD, GOOD)) == []


@pytest.mark.slow  # overload of a real server: serving/batching/test_overload
def test_a_short_run_overloads_a_real_server_and_writes_what_it_found(models, tmp_path, make_photo, capsys):
    (tmp_path / "photo.png").write_bytes(make_photo(1))
    arguments = [str(models), "--images", str(tmp_path / "photo.png")]
    quick = ["--seconds", "1", "--step-seconds", "0.3", "--start-rate", "100", "--deadline-ms", "1000"]
    status = main([*arguments, "--model", "tiny", *quick, "--out", str(tmp_path / "found")])
    printed = capsys.readouterr()
    assert status in (0, 1), printed.err  # whether all held depends on what else the machine does
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["offered_per_second"] == pytest.approx(2 * found["sustainable_per_second"], rel=0.01)
    assert len(found["slices"]) == 6
    assert all(one["answered"] + one["rejected"] > 0 for one in found["slices"])
    assert (tmp_path / "found.md").read_text().strip() in printed.out
    assert status == (0 if all(check["holds"] for check in found["checks"]) else 1)
    assert main([*arguments, "--model", "nope"]) == 2
    assert "choose one with --model" in capsys.readouterr().err
