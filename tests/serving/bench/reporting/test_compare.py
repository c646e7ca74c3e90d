"""What changed between two runs, beyond the spread that both state."""

import copy
import io
import json

import pytest
from rich.console import Console

from headrace.errors import BenchError
from headrace.serving.bench.reporting.compare import changes, changes_report, differences, read_result


def spread(median, low, high):
    return {"median": median, "low": low, "high": high}


OLD = {
    "model": "net",
    "contenders": ["baseline", "headrace"],
    "summary": [
        {
            "concurrency": 16,
            "contenders": {
                "baseline": {"requests_per_second": spread(10.0, 9.0, 11.0)},
                "headrace": {"requests_per_second": spread(100.0, 95.0, 105.0)},
            },
            "to_first": {"headrace": spread(10.0, 9.5, 10.5)},
        }
    ],
    "environment": {"fingerprint": {"cpu": "one", "cores": 2}},
}


def newer(*, baseline, headrace, ratio):
    new = copy.deepcopy(OLD)
    entry = new["summary"][0]
    entry["contenders"]["baseline"]["requests_per_second"] = baseline
    entry["contenders"]["headrace"]["requests_per_second"] = headrace
    entry["to_first"]["headrace"] = ratio
    return new


def test_only_spreads_that_do_not_touch_are_changes():
    new = newer(baseline=spread(11.5, 11.0, 12.0), headrace=spread(120.0, 106.0, 130.0), ratio=spread(9.0, 8.0, 9.4))
    verdicts = {(change.what, change.service): change.verdict for change in changes(OLD, new)}
    assert verdicts == {
        ("rate", "baseline"): "within the spread",  # it touches at 11
        ("rate", "headrace"): "higher",
        ("ratio", "headrace"): "lower",
    }


def test_the_same_run_changed_nothing_and_the_table_says_so():
    assert {change.verdict for change in changes(OLD, OLD)} == {"within the spread"}
    assert differences(OLD, OLD) == []
    console = Console(file=io.StringIO(), width=120)
    console.print(changes_report(OLD, OLD).terminal())
    assert "0 of 3 figures changed beyond the spread" in console.file.getvalue()


def test_the_table_marks_changes_and_another_machine():
    new = newer(baseline=spread(10.0, 9.0, 11.0), headrace=spread(200.0, 190.0, 210.0), ratio=spread(20.0, 19.0, 21.0))
    new["environment"] = {"fingerprint": {"cpu": "another", "cores": 2}}
    console = Console(file=io.StringIO(), width=120)
    console.print(changes_report(OLD, new).terminal())
    text = console.file.getvalue()
    assert "2 of 3 figures changed" in text
    assert "higher" in text
    assert "cpu: one then, another now" in text


def test_services_that_only_one_run_has_are_left_out():
    new = copy.deepcopy(OLD)
    new["summary"][0]["contenders"]["int8"] = {"requests_per_second": spread(1.0, 1.0, 1.0)}
    new["summary"][0]["contenders"]["headrace"] = {"requests_per_second": None}
    assert [(change.what, change.service) for change in changes(OLD, new)] == [("rate", "baseline"), ("ratio", "headrace")]


def test_runs_of_different_models_are_refused():
    with pytest.raises(BenchError, match="different models"):
        changes(OLD, {**OLD, "model": "other"})


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), ("{", "not JSON"), ("[1]", "not what headrace bench")])
def test_what_is_no_result_is_refused(tmp_path, content, message):
    path = tmp_path / "old.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BenchError, match=message):
        read_result(path)
    path.write_text(json.dumps(OLD))
    assert read_result(path) == OLD
