import logging

from headrace import GraphConfig
from headrace.runtime.tuning.cuts import Cuts


def test_nothing_left_out_is_no_line():
    assert Cuts().line(GraphConfig(), "cpu", 100.0) == ""


def test_the_line_names_what_was_left_out_and_the_seconds_that_would_be_enough(caplog):
    cuts = Cuts()
    cuts.add("batch 8", 4.0)
    cuts.add_alone(4, 3.0)
    cuts.add("batch 8", 2.0)
    cuts.add_alone(2, 1.0)
    line = cuts.line(GraphConfig(max_tuning_seconds=10), "cpu", 10.0)
    alone = "sessions for one batch size alone (batch 2, 4)"
    assert line == f"max_tuning_seconds=10 was not enough for batch 8, {alone}; about 22 would be"
    assert caplog.messages == []  # whoever gives less than the default gives it knowingly
    with caplog.at_level(logging.WARNING, "headrace.tuning"):
        assert cuts.line(GraphConfig(), "cpu", 40.0) in caplog.messages
