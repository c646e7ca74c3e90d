"""Keep libraries' progress chatter off the user's terminal while one of their calls runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator

_LOCK = threading.RLock()


@contextlib.contextmanager
def silence(*prefixes: str) -> Iterator[None]:
    """Within the block, loggers under the prefixes say only errors, and Python warnings are dropped.

    Levels are restored after. Logger levels belong to the process, so blocks on different threads take turns.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = [
            name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in prefixes and "__trace" not in name
        ]
        loggers = [logging.getLogger(name) for name in {*known, *prefixes}]  # torch.__trace feeds draft_export
        levels = {logger: logger.level for logger in loggers}
        try:
            _set(dict.fromkeys(loggers, logging.CRITICAL))
            yield
        finally:
            _set(levels)


def _set(levels: dict[logging.Logger, int]) -> None:
    """As by `setLevel`, which after each of them has all loggers forget what they are enabled for: that takes long."""
    for logger, level in levels.items():
        logger.level = level
    logging.root.setLevel(logging.root.level)
