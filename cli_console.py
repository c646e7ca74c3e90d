"""Where the commands write to, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_format", "make_console"]


def make_console(*, stderr: bool = False) -> Console:
    """A console that leaves it to the terminal to break lines, so that paths can be copied."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True)


def check_format(given: str) -> None:
    """For commands whose `--format` is text or json. Raises BadParameter for any other."""
    if given not in ("text", "json"):
        raise typer.BadParameter("must be text or json", param_hint="--format")
