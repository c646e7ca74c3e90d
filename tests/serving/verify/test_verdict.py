"""Every finding has a line in the documentation, in the same words."""

from __future__ import annotations

from pathlib import Path

from headrace.serving.verify.verdict import FAULTS

PAGE = (Path(__file__).parents[3] / "docs" / "verify.md").read_text(encoding="utf-8")


def test_every_finding_is_on_the_page():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and not line.startswith(("| `http", "| `grpc"))]
    assert rows == [f"| `{name}` | {text} |" for name, text in FAULTS.items()]
