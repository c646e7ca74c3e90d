"""The catalog of rules: a table, and for each code a page made of the rule's own docstring and examples."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import TYPE_CHECKING

from ...errors import MigrateError
from .codes import CODES, explained
from .rule import Rule, all_rules
from .selftest import PARTS

if TYPE_CHECKING:
    from rich.table import Table


def table() -> Table:
    """Every rule with its code, name, safety and what it does; then the findings of the other stages."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for column in ("code", "name", "fix", "what"):
        made.add_column(column, overflow="fold")
    for rule in all_rules():
        made.add_row(rule.code, rule.name, rule.safety, escape(parts(rule)["What it does"].partition(". ")[0].rstrip(".")))
    for code in sorted(CODES):
        name, text = CODES[code]
        made.add_row(code, name, "", escape(text.partition(". ")[0].rstrip(".")), style="dim")
    return made


def page(code: str) -> str:
    """The page of one code, in Markdown. Raises MigrateError for a code that is none."""
    rule = next((rule for rule in all_rules() if rule.code == code.upper()), None)
    if rule is not None:
        return rule_page(rule)
    if code.upper() in CODES:
        name, text = explained(code.upper())
        return f"# {code.upper()} {name}\n\n{text}\n"
    raise MigrateError(f"there is no code {code!r}; headrace rules lists them all")


def rule_page(rule: Rule) -> str:
    """The parts of the docstring, the examples as diffs, and what the rule leaves alone."""
    described = parts(rule)
    lines = [f"# {rule.code} {rule.name}", "", f"Fix: **{rule.safety}**", ""]
    for title in ("What it does", "Why", "Example"):
        lines += [f"## {title}", "", described[title], ""]
    for source, fixed in rule.INVALID[:2]:
        lines += [*_block(source, fixed), ""]
    lines += ["## Fix safety", "", described["Fix safety"], ""]
    if rule.VALID:
        lines += ["## Left alone", "", *_block(rule.VALID[0], None), ""]
    return "\n".join(lines)


def parts(rule: Rule) -> dict[str, str]:
    """The docstring's parts by their headings; empty where one is missing."""
    text = inspect.cleandoc(rule.__doc__ or "")
    titles = [part.rstrip(":") for part in PARTS]
    pieces = re.split(rf"^({'|'.join(titles)}):", text, flags=re.MULTILINE)
    found = {title: body.strip()[:1].upper() + body.strip()[1:] for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}
    return {title: found.get(title, "") for title in titles}


def _block(before: str, after: str | None) -> list[str]:
    """A source as a fenced block, or its change as a fenced diff; the fence is longer than any in it."""
    body = before.splitlines()
    kind = "python"
    if after is not None:
        body = list(difflib.unified_diff(body, after.splitlines(), lineterm="", n=2))[2:]
        kind = "diff"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", before + (after or ""))), default=0))
    return [f"{fence}{kind}", *body, fence]
