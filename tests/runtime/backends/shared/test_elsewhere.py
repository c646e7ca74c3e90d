"""Processes that end in every way."""

import pytest

from headrace.runtime.backends.shared.elsewhere import died_of


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("print('well')", ""),
        ("import sys; sys.exit(sys.argv[1] != 'given')", ""),
        ("import os; os.kill(os.getpid(), 11)", "signal SIGSEGV"),
        ("import sys; print('a library is missing', file=sys.stderr); sys.exit(3)", "status 3: a library is missing"),
        ("raise OSError('no such\\nfile')", "status 1: file"),
    ],
)
def test_how_it_ended(code, how):
    assert died_of(code, ["given"]) == how


def test_what_never_ends():
    assert died_of("import time; time.sleep(600)", seconds=0.5) == "no answer in 0.5 s"
