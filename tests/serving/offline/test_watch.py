"""What is shown of the stages, on terminals of any width and elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from headrace.serving.offline.plan import Plan
from headrace.serving.offline.progress import Progress
from headrace.serving.offline.stages import Shares, StageReport
from headrace.serving.offline.watch import line, table

REPORTS = [
    StageReport("read", Shares(0.1, 0, 0.9), Shares(0.2, 0.0, 0.8), 4, 1234.4, (2, 2)),
    StageReport("model", Shares(0.98, 0.02, 0), Shares(0.99, 0.01, 0), 1, 7.25, (0, 2)),
    StageReport("stage 0", Shares(0.5, 0.25, 0.25), None, 1, inner=True),
]


@pytest.fixture
def progress():
    return Progress(Plan(folder=Path(), shards=(), base="", left_out=0), done={}, errors=3)


def drawn(progress, reports, width):
    console = Console(file=io.StringIO(), width=width, soft_wrap=True)
    console.print(table(progress, reports, width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 30, 43, 44, 65, 66, 91, 92, 200])
def test_the_table_fits(progress, width):
    shown = drawn(progress, REPORTS, width)
    assert max(map(len, shown.splitlines())) <= max(width, 26)
    if width >= 30:
        for name in ("read", "model", "20%", "80%", "99%", "50%"):
            assert name in shown
    assert ("workers" in shown) == (width >= 44)
    assert ("1,234" in shown and "2 of 2" in shown and "7.2" in shown) == (width >= 66)
    assert ("20% (10%)" in shown) == (width >= 92)


def test_what_is_not_known_is_not_made_up(progress):
    reports = [StageReport("read", Shares(0.5)), StageReport("model", Shares(0.25))]  # as a cluster tells it
    rows = [row.split() for row in drawn(progress, reports, 100).splitlines()]
    assert ["read", "-", "50%", "-", "-", "-", "-"] in rows
    assert "no stage has told yet" in drawn(progress, [], 100)
    assert line(progress, reports).endswith("busy/starved/blocked: read 50%/-/-, model 25%/-/-")
    assert line(progress, []) == str(progress)


def test_a_line_has_the_last_seconds(progress):
    assert line(progress, REPORTS).endswith("read 20%/0%/80%, model 99%/1%/0%, stage 0 50%/25%/25%")
    assert "\n" not in line(progress, REPORTS)
