"""Where the commands write to, and how."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_format", "make_console", "print_error"]


def make_console(*, stderr: bool = False) -> Console:
    """A console that leaves it to the terminal to break lines, so that paths can be copied."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True)


def check_format(given: str) -> None:
    """For commands whose `--format` is text or json. Raises BadParameter for any other."""
    if given not in ("text", "json"):
        raise typer.BadParameter("must be text or json", param_hint="--format")


def print_error(error: Exception) -> None:
    """`error: ` and what an error says, on the standard error."""
    make_console(stderr=True).print("[bold red]error:[/]", end=" ")
    print(error, file=sys.stderr)  # noqa: T201  the message may hold brackets that rich would read as markup
