"""What `make demo` ends with."""

from pathlib import Path

import pytest

from examples.demo import EXAMPLES, next_commands, summary_table
from tests.serving.bench.reporting.test_report import result, shown


def test_one_table_over_several_models():
    text = shown(summary_table([result(model="digits"), result(model="photos[1]", services=("headrace",))]))
    assert "digits" in text
    assert "photos[1]" in text
    assert "4.00x" in text


@pytest.mark.parametrize("errors", [None, {"baseline": {}, "headrace": {"503": 7}}])
def test_it_fits_a_terminal_with_whole_headings(errors):
    text = shown(summary_table([result(model="efficientnet_lite0", errors=errors), result(model="photos")]))
    assert max(map(len, text.splitlines())) <= 80
    headings = ("model", "service", "req/s", "p50 / p99", "speed-up", "top-1")
    for word in (*headings, "unanswered)", *(["7 failed"] if errors else [])):
        assert word in text
    assert "…" not in text


def test_the_next_commands_are_three_and_name_what_is_there(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    commands = next_commands("efficientnet_lite0")
    assert [command.split()[0] for command in commands] == ["headrace", "curl", "headrace"]
    assert commands[0] == f"headrace serve {Path('examples/imagenet')}"
    assert commands[2].startswith("headrace export examples/imagenet --to onnx")
