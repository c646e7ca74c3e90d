"""The comparison of policies: it finds rates that are known, repeats by seed, and Headrace's policy loses to none."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from tests.benchmarks.simulation.compare import MACHINES, TRAFFIC, Candidate, candidates, compare, sustainable, trace_kind
from tests.benchmarks.simulation.report import markdown, plot
from tests.benchmarks.simulation.rivals import FixedWindow
from tests.benchmarks.simulation.simulate import Machine
from tests.benchmarks.simulation.traffic import Arrival

ROOT = Path(__file__).parents[3]


def _even(rate, seconds, timeout, seed):
    return [Arrival(number / rate, 1, timeout) for number in range(int(rate * seconds))]


def test_the_sustainable_rate_of_a_device_without_batching_is_its_rate():
    one_by_one = Candidate("one", "", lambda: FixedWindow(delay=0.0))
    found = sustainable(one_by_one, _even, Machine(profile={1: 0.01}), target=0.05, requests=2000, seed=0)
    assert found == pytest.approx(100, rel=0.01)


def test_a_trace_keeps_its_rhythm_at_any_rate():
    kind = trace_kind([Arrival(float(second)) for second in (0, 1, 2, 30, 31, 32)])
    arrivals = kind(10.0, 6.0, 0.015, 1)
    assert len(arrivals) == 60
    assert {one.timeout for one in arrivals} == {0.015}
    times = [one.at for one in arrivals]
    assert times == sorted(times)
    assert times[-1] < 6.0 + 1.0
    gaps = sorted(second - first for first, second in pairwise(times))
    assert gaps[-1] > 5 * gaps[len(gaps) // 2]


@pytest.fixture(scope="module")
def outcomes():
    with ThreadPoolExecutor(1) as pool:
        return list(compare(pool, requests=1500, machines=["wide"], traffic={"poisson": TRAFFIC["poisson"]}))


def test_every_policy_is_measured_and_headraces_is_among_the_best(outcomes):
    assert [one.policy for one in outcomes] == list(dict.fromkeys(one.name for one in candidates(MACHINES["wide"], 0.015)))
    ours = outcomes[0]
    for one in outcomes[1:]:
        assert ours.sustainable >= 0.97 * one.sustainable
        assert ours.overloaded >= 0.97 * one.overloaded
    assert 0 < ours.sustainable < MACHINES["wide"].rows_per_second


def test_the_table_and_the_plot(outcomes):
    lines = markdown(outcomes).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert f"{outcomes[0].sustainable:,.0f}" in lines[2]
    assert plot(outcomes, target_ms=15.0).startswith(b"\x89PNG")


@pytest.mark.slow  # what it compares, writes and draws: above
def test_the_command_writes_json_and_a_plot(tmp_path, warm_python):
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds\n" + "".join(f"{number * number / 500}\n" for number in range(200)))
    command = ["-m", "tests.benchmarks.simulation", "--requests", "100", "--machine", "narrow"]
    command += ["--traffic", "poisson", "--trace", str(trace), "--jobs", "1", "--out", str(tmp_path / "found")]
    done = warm_python(command, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "| narrow | trace |" in done.stdout
    result = json.loads((tmp_path / "found.json").read_text())
    assert len(result["outcomes"]) == 8
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    wrong = warm_python([*command, "--trace", str(tmp_path / "gone.csv")], cwd=ROOT)
    assert wrong.returncode == 2
    assert "cannot read the trace" in wrong.stderr
