"""Each message that docs/troubleshooting.md quotes still stands in the code."""

import re

import pytest

from tests.messages import ROOT, messages

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^### `(.*)`(?: \((?:PS\d+|\d+)\))?$", PAGE, re.MULTILINE)


def test_every_entry_quotes_a_message():
    assert len(QUOTED) == len(re.findall(r"^### ", PAGE, re.MULTILINE)) > 30


@pytest.mark.parametrize("quoted", QUOTED)
def test_the_message_stands_in_the_code(quoted):
    parts = [re.escape(part) for part in re.split(r"\s*…\s*", quoted.removeprefix("…").removesuffix("…").strip())]
    found = re.search(r"\s*…?\s*".join(parts), messages())
    assert found, f"no file of the package says {quoted!r}; docs/troubleshooting.md must quote what is said today"


@pytest.mark.parametrize("code", sorted(set(re.findall(r"\bPS\d{3}\b", PAGE))))
def test_the_codes_are_those_of_findings(code):
    known = (ROOT / "migrate" / "rewriting" / "codes.py").read_text()
    assert re.search(rf"^{code} ", known, re.MULTILINE), f"{code} is no finding"
