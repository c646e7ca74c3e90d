import json

import pytest

from headrace.migrate.proving.rehearsal_protocol import Rehearsal, RehearsalReport, StandIn


def test_a_request_comes_back_as_written():
    request = Rehearsal(
        root="/r", script="a.py", made="/m", argv=("--x", "1"), image=(32, 32), standins=("time",), caches=("/c",)
    )
    assert Rehearsal.from_json(request.to_json()) == request
    assert Rehearsal.from_json(Rehearsal(root="/r", script="a.py", made="/m").to_json()).standins is None


def test_no_edge_at_all_is_not_all_edges():
    assert Rehearsal.from_json(Rehearsal(root="/r", script="a.py", made="/m", standins=()).to_json()).standins == ()


def test_a_report_comes_back_as_written():
    report = RehearsalReport(
        ended="stopped", why="so", standins=(StandIn(edge="data", what="x.png", where="a.py:3"),), attempts=2
    )
    assert RehearsalReport.from_json(report.to_json()) == report
    assert not report.ok
    assert not report.user_data


def test_data_is_the_users_until_some_was_made():
    assert RehearsalReport(ended="finished", standins=(StandIn(edge="device", what="CPU"),)).user_data
    for edge in ("servers", "functions"):
        assert not RehearsalReport(ended="finished", standins=(StandIn(edge=edge, what="called with a made image"),)).user_data


@pytest.mark.parametrize(
    "wrong",
    [
        {"ended": "well"},
        {"attempts": {}},
        {"user_weights": "yes"},
        {"why": ["a"]},
        {"standins": [{"edge": 1, "what": "x"}]},
        {"standins": "data"},
        {"more": 1},
    ],
)
def test_a_report_of_a_hostile_child_is_no_report(wrong):
    with pytest.raises(ValueError, match="no complete message"):
        RehearsalReport.from_json(json.dumps({"ended": "finished", **wrong}))
