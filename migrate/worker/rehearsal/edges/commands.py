"""Commands of an installed package: a file that only defines what one calls has that called, as the command would."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from pathlib import Path

from ....survey.entry_points import called_by_commands
from ..stage import Stage


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    name = called_by_commands(Path(stage.root)).get(stage.request.script)
    if name is not None:
        stage.at_end(lambda: _call(name))
    yield


def _call(name: str) -> None:
    sys.exit(operator.attrgetter(name)(sys.modules["__main__"])())
