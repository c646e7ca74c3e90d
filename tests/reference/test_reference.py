"""The generated pages are those that the code gives today, and name all that there is."""

import re
import sys

import pytest

import headrace
from headrace.cli import COMMANDS
from headrace.migrate.rewriting.rule import all_rules
from tests.reference.generated import GENERATED, ROOT


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_page_is_not_stale(path, monkeypatch):
    if path.endswith("rules.md") and sys.version_info >= (3, 12):
        pytest.skip("a rule shows what only Python before 3.12 refuses")
    monkeypatch.setenv("COLUMNS", "80")
    assert (ROOT / path).read_text() == GENERATED[path](), f"{path} is not of today's code; `make reference` writes it"


def test_the_pages_name_all_that_there_is():
    headings = {path: re.findall(r"^## (.*)$", (ROOT / path).read_text(), re.MULTILINE) for path in GENERATED}
    assert {f"headrace {name}" for name in COMMANDS} <= set(headings["docs/reference/cli.md"])
    assert {f"headrace.{name}" for name in headrace.__all__} - {"headrace.__version__"} <= set(
        headings["docs/reference/python.md"]
    )
    assert {f"{rule.code} {rule.name}" for rule in all_rules()} <= set(headings["docs/reference/rules.md"])
