"""The recorded performance: its page says what the record says, and the check fails for what fell, and for nothing else."""

import copy
import json

import pytest

from headrace.errors import BenchError
from tests.benchmarks.serving.performance import check, main, record


def spread(median, low=None, high=None):
    return {"median": median, "low": median * 0.98 if low is None else low, "high": median * 1.02 if high is None else high}


def step(name, rate, to_start, why=""):
    return {
        "name": name,
        "title": f"the step {name}",
        "runs": "" if why else f"runs {name}",
        "why": why,
        "requests_per_second": None if why else spread(rate),
        "p50_ms": None if why else spread(5.0),
        "p99_ms": None if why else spread(9.0),
        "to_previous": None if why or to_start is None else spread(1.5),
        "to_start": None if why or to_start is None else spread(to_start),
        "agreed": None if why else 63,
        "compared": None if why else 64,
        "rss_bytes": 1 << 28,
        "pss_bytes": None if why else 1 << 27,
    }


ENVIRONMENT = {
    "fingerprint": {"cpu": "a CPU", "cores": 2, "gpus": [], "versions": {"torch": "2.13.0", "openvino": None}},
    "time": "2026-11-21T10:00:00+00:00",
}
RUN = {
    "model": "net",
    "contenders": ["baseline", "batching"],
    "summary": [{"concurrency": 16, "contenders": {}, "to_first": {}}],
    "environment": ENVIRONMENT,
    "images": {"source": "64 images given"},
    "settings": {"rounds": 5, "seconds": 5.0, "restart": True},
    "warnings": ["a warning of the run"],
    "left_out": {},
    "waterfall": [step("baseline", 10.0, None), step("batching", 30.0, 3.0), step("int8", 0, None, why="top-1 fell")],
}
SWEEP = {
    **RUN,
    "summary": [
        {
            "concurrency": level,
            "contenders": {"headrace": {"requests_per_second": spread(rate), "p50_ms": spread(4.0), "p99_ms": spread(8.0)}},
        }
        for level, rate in ((1, 40.0), (8, 90.0))
    ],
    "capacity": {
        "knee": 8,
        "best": 8,
        "roof": {"precision": "int8", "rows_per_second": 241.0},
        "shares": {"served": 0.37, "session": 0.61},
        "machine": {
            "peaks": {"int8": {"operations_per_second": 2.0e12, "by": "openvino"}},
            "copy_bytes_per_second": 3.0e10,
            "batches": [{"batch": 8, "runs": "openvino int8", "precision": "int8", "rows_per_second": spread(147.0)}],
            "roofs": {"int8": {"1": 200.0, "8": 241.0}},
        },
    },
}
PEERS = {
    **RUN,
    "summary": [
        {
            "concurrency": 16,
            "contenders": {
                "baseline": {"requests_per_second": spread(10.0), "p99_ms": spread(99.0)},
                "headrace": {"requests_per_second": spread(100.0), "p99_ms": None},
            },
            "ratios": {"baseline": spread(10.0)},
        }
    ],
    "left_out": {"ray": "it is not installed"},
}


@pytest.fixture
def folder(tmp_path):
    for name, content in (("waterfall", RUN), ("sweep", SWEEP), ("bench", PEERS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_the_page_says_what_was_recorded(folder):
    assert main(["record", str(folder), "--command", "make it", "--out", str(folder / "performance")]) == 0
    recorded = json.loads((folder / "performance.json").read_text())
    assert recorded == json.loads(json.dumps(record(folder, "make it")))
    page = (folder / "performance.md").read_text()
    for part in (
        "Written by `make it` on 2026-11-21: 2 cores of a CPU; torch 2.13.0",
        "5 interleaved rounds of 5 s, for each of which the services were started anew,",
        "| the step batching (runs batching) | 30.0 (29.4-30.6)/s | 9.0 | 1.50x (1.47-1.53) | 3.00x (2.94-3.06) |",
        "| 98.44 % of 64 | 128 MB |",
        "- the step int8: top-1 fell",
        "knee is at 8",
        "61% of it, the server 37%",
        "2,000 GOP/s (openvino)",
        "ray is left out: it is not installed",
        "| baseline | 10.0 (9.8-10.2)/s | 99.0 | 10.00x (9.80-10.20) |",
        "a warning of the run",
    ):
        assert part in page, part


def test_the_waterfall_alone_is_enough_and_needed(folder):
    (folder / "sweep.json").unlink()
    (folder / "bench.json").unlink()
    assert set(record(folder, "x")) & {"sweep", "peers"} == set()
    (folder / "waterfall.json").write_text(json.dumps(PEERS | {"waterfall": None}))
    (folder / "waterfall.json").unlink()
    with pytest.raises(BenchError, match=r"waterfall\.json"):
        record(folder, "x")


def changed(**changes):
    run = copy.deepcopy(RUN)
    for entry in run["waterfall"]:
        if entry["name"] in changes:
            entry["to_start"] = changes[entry["name"]]
    return run


@pytest.mark.parametrize(
    ("ratio", "fails", "agrees"),
    [
        (spread(3.0), False, True),
        (spread(9.0), False, False),  # faster is fine
        (spread(2.0, 1.9, 3.0), False, True),  # the spreads touch
        (spread(2.83), False, False),  # below by less than the margin
        (spread(2.5), True, False),
    ],
)
def test_a_ratio_fails_below_both_spreads_and_the_margin(folder, ratio, fails, agrees, capsys):
    recorded = record(folder, "x")
    lines = check(recorded, changed(batching=ratio))
    assert [bool(wrong) for *_, wrong in lines] == [fails]
    (folder / "recorded.json").write_text(json.dumps(recorded))
    (folder / "now.json").write_text(json.dumps(changed(batching=ratio)))
    assert main(["check", str(folder / "now.json"), "--recorded", str(folder / "recorded.json")]) == int(fails)
    said = capsys.readouterr().out
    assert ("FAILED" in said) == fails
    assert f"{int(agrees)} of 1 ratios agree within the spreads" in said


def test_a_step_that_is_gone_fails_with_its_reason(folder):
    run = copy.deepcopy(RUN)
    run["waterfall"][1] = step("batching", 0, None, why="its service did not start")
    ((_, _, _, wrong),) = check(record(folder, "x"), run)
    assert "its service did not start" in wrong
    run["waterfall"].pop(1)
    ((_, _, _, wrong),) = check(record(folder, "x"), run)
    assert "no step any more" in wrong


def test_the_record_of_this_machine_and_model_is_taken(folder, capsys):
    recorded = record(folder, "x")
    elsewhere = {**ENVIRONMENT, "fingerprint": {**ENVIRONMENT["fingerprint"], "cpu": "another"}}
    others = {"machine": {**recorded, "environment": elsewhere}, "model": {**recorded, "model": "other"}}
    for name, content in (*others.items(), ("own", recorded)):
        (folder / f"of-{name}.json").write_text(json.dumps(content))
    paths = [str(folder / f"of-{name}.json") for name in ("machine", "model", "own")]
    assert main(["check", str(folder / "waterfall.json"), "--recorded", *paths]) == 0
    assert f"beside {paths[2]}, recorded on 2026-11-21" in capsys.readouterr().out
    assert main(["check", str(folder / "waterfall.json"), "--recorded", *paths[:2]]) == 2
    said = capsys.readouterr().err
    for part in (
        f"{paths[0]} is of cpu another",
        f"{paths[1]} is of model other",
        "cpu a CPU",
        "PERFORMANCE_OUT=docs/performance-NAME",
    ):
        assert part in said, said
    assert main(["check", str(folder / "waterfall.json"), "--recorded", str(folder / "none.json")]) == 2
    assert "make performance" in capsys.readouterr().err
