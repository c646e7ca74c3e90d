"""Errors that a script handles and only tells of before it gives up: `except Exception as error: print(error); return 1`.

What it could not go on without is in them, so they teach the next attempt as those do that stop a script.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..places import is_users
from ..stage import Stage

_PRINTERS = (
    ("rich.console", "Console", ("print", "log", "print_exception")),
    ("click", None, ("echo", "secho")),
    ("typer", None, ("echo", "secho")),
    ("loguru._logger", "Logger", ("_log",)),
)
"""Libraries by which people print: the module, the class of it, and its functions."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    def tell(original: Any, *args: Any, **named: Any) -> Any:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and _handled_by_user(stage, error):
            stage.handled = error
        return original(*args, **named)

    for owner, name in ((builtins, "print"), (logging.Logger, "handle"), (traceback, "print_exc"), (traceback, "format_exc")):
        stage.wrap(owner, name, tell)
    for module, kind, names in _PRINTERS:
        stage.when_imported(module, partial(_watch, stage, tell, kind, names))
    yield


def _watch(stage: Stage, tell: Callable[..., Any], kind: str | None, names: Sequence[str], library: Any) -> None:
    owner = library if kind is None else getattr(library, kind, None)
    for name in names:
        if owner is not None:
            stage.wrap(owner, name, tell)


def _handled_by_user(stage: Stage, error: Exception) -> bool:
    """Whether the repository's own code caught it, for a failure and not because it asks what is installed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and is_users(frames[0].f_code.co_filename, stage.root) and not isinstance(error, ImportError)
