"""Generated and recorded traffic."""

import json
import math
import statistics

import pytest

from tests.benchmarks.simulation.traffic import Arrival, bursts, diurnal, mixed, poisson, read_trace, rescaled

KINDS = {"poisson": poisson, "bursts": bursts, "diurnal": diurnal}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_times_rise_keep_the_mean_rate_and_repeat_by_seed(kind):
    times = kind(500.0, 100.0, seed=3)
    assert times == sorted(times)
    assert all(0 <= at < 100.0 for at in times)
    assert len(times) == pytest.approx(50_000, rel=0.06)
    assert times == kind(500.0, 100.0, seed=3) != kind(500.0, 100.0, seed=4)


def _per_window(times, length):
    counts = [0] * (int(times[-1] / length) + 1)
    for at in times:
        counts[int(at / length)] += 1
    return counts


def test_bursts_are_burstier_than_poisson():
    def dispersion(times):  # variance over mean of the counts in 50 ms: 1 for Poisson traffic
        counts = _per_window(times, 0.05)
        return statistics.variance(counts) / statistics.mean(counts)

    assert dispersion(poisson(500.0, 100.0)) == pytest.approx(1.0, abs=0.15)
    assert dispersion(bursts(500.0, 100.0)) > 5


def test_bursts_may_fall_silent_between():
    assert len(bursts(500.0, 100.0, peak=5.0, share=0.2)) == pytest.approx(50_000, rel=0.1)


def test_a_day_has_its_peak_and_its_trough():
    quarters = _per_window(diurnal(1000.0, 4.0, period=4.0, swing=0.6), 1.0)
    assert quarters[0] > 1.25 * 1000
    assert quarters[2] < 0.75 * 1000


def test_mixed_draws_by_weight():
    arrivals = mixed(poisson(1000.0, 20.0), rows={1: 3.0, 4: 1.0}, timeouts={0.015: 1.0, 0.1: 1.0}, priorities={0: 0.9, 1: 0.1})
    count = len(arrivals)
    assert sum(one.rows == 4 for one in arrivals) / count == pytest.approx(0.25, abs=0.02)
    assert sum(one.timeout == 0.1 for one in arrivals) / count == pytest.approx(0.5, abs=0.02)
    assert sum(one.priority for one in arrivals) / count == pytest.approx(0.1, abs=0.02)


def test_traces_are_read_from_csv_and_json(tmp_path):
    table = tmp_path / "trace.csv"
    table.write_text("seconds,rows,timeout_ms,priority\n1700000000.5,2,15,1\n1700000000.25,,,\n")
    expected = [Arrival(0.0), Arrival(0.25, 2, 0.015, 1)]
    assert read_trace(table) == expected
    (tmp_path / "trace.json").write_text(json.dumps([{"seconds": 8.25, "rows": 2, "timeout_ms": 15, "priority": 1}, 8.0]))
    assert read_trace(tmp_path / "trace.json") == expected


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "second\n1\n", "entry 1"),
        ("a.csv", "seconds\n1\nnan\n", "arrival"),
        ("a.csv", "seconds\n1\nsoon\n", "entry 2"),
        ("a.csv", "seconds\n", "no entries"),
        ("a.json", "{}", "list"),
        ("a.json", "[", "not JSON"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=says):
        read_trace(tmp_path / name)
    with pytest.raises(ValueError, match="cannot read"):
        read_trace(tmp_path / "gone.csv")


def test_rescaling_keeps_the_rhythm():
    arrivals = rescaled([Arrival(0.0), Arrival(1.0, 3), Arrival(4.0)], rate=20.0)
    assert [one.at for one in arrivals] == pytest.approx([0.0, 0.025, 0.1])
    assert [one.rows for one in arrivals] == [1, 3, 1]
    with pytest.raises(ValueError, match="two requests"):
        rescaled([Arrival(1.0)], 5.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: poisson(0.0, 1.0),
        lambda: poisson(1.0, math.inf),
        lambda: bursts(1.0, 1.0, peak=6.0, share=0.2),
        lambda: diurnal(1.0, 1.0, swing=1.5),
        lambda: Arrival(-1.0),
        lambda: Arrival(0.0, 0),
        lambda: Arrival(0.0, 1, 0.0),
    ],
)
def test_impossible_traffic_is_refused(make):
    with pytest.raises(ValueError, match="need"):
        make()
