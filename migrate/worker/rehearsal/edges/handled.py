"""Errors that a script handles and only tells of before it gives up: `except Exception as error: print(error); return 1`.

What it could not go on without is in them, so they teach the next attempt as those do that stop a script.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from ..places import is_users
from ..stage import Stage


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    def tell(original: Any, *args: Any, **named: Any) -> Any:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and _handled_by_user(stage, error):
            stage.handled = error
        return original(*args, **named)

    for owner, name in ((builtins, "print"), (logging.Logger, "handle"), (traceback, "print_exc"), (traceback, "format_exc")):
        stage.wrap(owner, name, tell)
    yield


def _handled_by_user(stage: Stage, error: Exception) -> bool:
    """Whether the repository's own code caught it, for a failure and not because it asks what is installed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and is_users(frames[0].f_code.co_filename, stage.root) and not isinstance(error, ImportError)
