"""docs/reference/rules.md: each rule and finding, as `headrace rules CODE` explains it."""

from __future__ import annotations

import re

from headrace.migrate.rewriting.catalog import page
from headrace.migrate.rewriting.codes import CODES
from headrace.migrate.rewriting.rule import all_rules

INTRODUCTION = """# Rules and findings

What `headrace rules CODE` says, for all codes. A fix is **safe** where what the program computes stays the same, **unsafe**
where behavior may change, which takes `--unsafe`, and **manual** where there is none and the place is only remarked.
`--select` and `--ignore` take codes and their beginnings ([migrate](../migrate.md)). `make reference` writes this page.
"""


def rule_pages() -> str:
    """The page: the rules by their codes, then the findings of the other stages."""
    lines = [INTRODUCTION]
    for code in (*(rule.code for rule in all_rules()), *sorted(CODES)):
        # Its parts are paragraphs here, for the page would have four hundred headings.
        text = re.sub(r"^## (.*)$", r"**\1.**", page(code), flags=re.MULTILINE)
        lines += [re.sub(r"^# ", "## ", text).rstrip(), ""]
    return "\n".join(lines).rstrip() + "\n"
