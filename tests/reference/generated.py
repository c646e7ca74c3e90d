"""What stands in the generated pages: each from the code, or for llms.txt from the pages themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.reference.command_line import commands
from tests.reference.llms import llms
from tests.reference.python_names import python_names
from tests.reference.rule_pages import rule_pages

ROOT = Path(__file__).parents[2]
# llms.txt last: it reads the first lines of the others.
GENERATED: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": commands,
    "docs/reference/python.md": python_names,
    "docs/reference/rules.md": rule_pages,
    "docs/llms.txt": llms,
}
