"""Assertions of the script's own that stand-ins do not fulfil: the next attempt passes over them, and this is told.

`assert len(dataset) == 50000` and `assert set(message.missing_keys) == {"fc.weight", "fc.bias"}` judge what nobody has here.
"""

from __future__ import annotations

import ast
import contextlib
import traceback
from collections.abc import Iterator

from ..source import PASSED_OVER, assertion
from ..stage import Stage


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    for said in stage.learned.get(PASSED_OVER, ()):
        stage.note("assertions", f"{said} was passed over")
    yield


def passes_over(stage: Stage, error: BaseException) -> bool:
    """An assertion that failed in the repository's own code where anything stood in, and of which nothing else is known.

    One that always fails says no more than `raise` does, and what follows it was never meant to run.
    """
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if type(error) is not AssertionError or not places or not stage.standins:
        return False
    path, line = places[-1]
    here = [node for node in stage.assertions.get(path, ()) if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return any(not isinstance(node.test, ast.Constant) and stage.add(PASSED_OVER, assertion(node)) for node in here)
