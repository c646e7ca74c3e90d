"""Where the commands write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["make_console"]


def make_console(*, stderr: bool = False) -> Console:
    """A console that leaves it to the terminal to break lines, so that paths can be copied."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True)
