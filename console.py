"""Where the commands write to, and how."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["check_format", "make_console", "print_error"]

_IN_FILES = 160  # columns of a table where nobody says how wide a line is: eighty break most of its cells

# What steers a terminal, turns the order of a line's characters round, or is half a character, as bytes of a name become that
# are not UTF-8: names of files, and what servers answer, may hold it.
_CONTROLS = (*range(9), *range(11, 32), *range(127, 160))
_ORDER = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_STEERING = {code: chr(code).encode("unicode_escape").decode() for code in (*_CONTROLS, *_ORDER)}


def make_console(*, stderr: bool = False) -> Console:
    """A console that leaves breaking lines to the terminal, which paths can be copied from, and spells out what steers it."""
    from rich.console import Console
    from rich.segment import Segment

    class Spelled(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(segment.text.translate(_STEERING), segment.style)

    terminal = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Spelled(stderr=stderr, soft_wrap=True, width=None if terminal else _IN_FILES, emoji=False)


def check_format(given: str) -> None:
    """For commands whose `--format` is text or json. Raises BadParameter for any other."""
    if given not in ("text", "json"):
        raise typer.BadParameter("must be text or json", param_hint="--format")


def print_error(error: Exception) -> None:
    """`error: ` and what an error says, on the standard error."""
    make_console(stderr=True).print("[bold red]error:[/]", end=" ")
    print(str(error).translate(_STEERING), file=sys.stderr)  # noqa: T201  the message may hold brackets that rich would read as markup
