"""The table with which `make demo` ends."""

from examples.demo import summary_table
from tests.serving.bench.reporting.test_report import result, shown


def test_one_table_over_several_models():
    text = shown(summary_table([result(model="digits"), result(model="photos[1]", services=("headrace",))]), width=100)
    assert "digits" in text
    assert "photos[1]" in text
    assert "4.00x" in text
