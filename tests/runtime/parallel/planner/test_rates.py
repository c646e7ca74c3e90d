"""Rates from files, and the seconds that follow."""

import json

import pytest

from headrace.errors import InputError
from headrace.runtime.parallel.planner.rates import Link, Rates, read_rates

GIVEN = {
    "linear": 1e12,
    "conv": 1e12,
    "matmul": 1e12,
    "memory": 1e11,
    "operator": 0.0,
    "links": [{"latency": 1e-5, "bandwidth": 1e10}],
}


def test_collectives_follow_the_rings_formulas():
    link = Link(1e-5, 1e10)
    assert link.seconds("all_reduce", 1e9, 4) == pytest.approx(6e-5 + 0.15)
    assert link.seconds("all_gather", 1e9, 4) == pytest.approx(3e-5 + 0.075)
    assert link.seconds("point_to_point", 1e9, 2) == pytest.approx(1e-5 + 0.1)
    assert link.seconds("all_reduce", 1e9, 1) == 0
    measured = Link(1e-5, 1e10, {"all_reduce": (1e-3, 1e9)})
    assert measured.seconds("all_reduce", 1e9, 4) == pytest.approx(1e-3 + 1.5)
    assert measured.seconds("all_gather", 1e9, 4) == link.seconds("all_gather", 1e9, 4)


def test_operators_take_what_bounds_them():
    rates = Rates.from_json(GIVEN, 1)
    assert rates.seconds("linear", 1e12, 1e6, training=False) == pytest.approx(1.0)
    assert rates.seconds("linear", 1e12, 1e6, training=True) == pytest.approx(3.0)
    assert rates.seconds("pointwise", 0.0, 1e11, training=False) == pytest.approx(1.0)
    assert rates.seconds("view", 0.0, 0.0, training=True) == 0
    measured = Rates.from_json({**GIVEN, "operators": {"linear_3": 0.5}, "share": 0.25}, 1)
    assert measured.seconds("linear", 1e12, 1e6, training=True, name="linear_3", share=0.25) == pytest.approx(0.5)
    assert measured.seconds("linear", 1e12, 1e6, training=True, name="linear_3", share=1.0) == pytest.approx(2.0)


def test_a_file_comes_back_as_it_was_written(tmp_path):
    rates = Rates.from_json({**GIVEN, "operators": {"conv": 0.1}, "update": 1e9, "crowding": 1.9}, 2)
    (tmp_path / "rates.json").write_text(json.dumps(rates.to_json()))
    assert read_rates(tmp_path / "rates.json", 2) == rates


@pytest.mark.parametrize(
    "change",
    [
        {"linear": 0},
        {"linear": "fast"},
        {"conv": float("nan")},
        {"links": []},
        {"links": [{"latency": 1}]},
        {"links": 3},
        {"links": [{"latency": 1e-5, "bandwidth": 1e9}] * 2},
        {"links": [{"latency": -1, "bandwidth": 1e9}]},
        {"links": [{"latency": 0, "bandwidth": 1e9, "measured": {"gossip": [1, 2]}}]},
        {"operators": {"a": -1}},
        {"share": 0},
        {"crowding": 0.5},
        {"crowding": float("nan")},
    ],
)
def test_what_can_be_no_rate_is_refused(change):
    with pytest.raises(InputError, match="rates"):
        Rates.from_json({**GIVEN, **change}, 1)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="nothing.json"):
        read_rates(tmp_path / "nothing.json", 1)
    (tmp_path / "no.json").write_text("[")
    with pytest.raises(InputError, match="no.json"):
        read_rates(tmp_path / "no.json", 1)
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match="rates"):
        read_rates(tmp_path / "list.json", 1)
