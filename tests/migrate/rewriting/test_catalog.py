"""Every code has a page; every finding of the stages says what it means."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from headrace.errors import MigrateError
from headrace.migrate.rewriting.catalog import page, parts, table
from headrace.migrate.rewriting.codes import CODES, explained
from headrace.migrate.rewriting.rule import all_rules


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rules_page_is_made_of_its_docstring_and_examples(rule) -> None:
    text = page(rule.code.lower())
    assert text.startswith(f"# {rule.code} {rule.name}\n")
    for title, body in parts(rule).items():
        assert body
        assert f"## {title}" in text
        assert body.rpartition("\n")[2] in text
    fixed = [pair for pair in rule.INVALID[:2] if pair[1] is not None]
    assert text.count("```diff") == len(fixed)


def test_pages_of_findings_and_of_nothing() -> None:
    assert page("PS504").startswith("# PS504 no-preprocessing\n")
    with pytest.raises(MigrateError, match="no code 'XX1'"):
        page("XX1")


def test_the_table_lists_every_code() -> None:
    stream = io.StringIO()
    Console(file=stream, width=200).print(table())
    listed = re.findall(r"^(PS\d{3})", stream.getvalue(), re.MULTILINE)
    assert set(listed) >= {rule.code for rule in all_rules()} | set(CODES)
    assert len(listed) == len(set(listed))


def test_codes_are_explained() -> None:
    assert all(name and text.endswith(".") for name, text in CODES.values())
    assert explained("PG120")[0] == "graph-obstacle"
