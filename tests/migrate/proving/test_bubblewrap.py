"""Programs run behind bubblewrap's walls as behind our own: results, limits, and what goes wrong. The attacks on both stand in
tests/migrate/attacks/test_sandbox.py."""

import sys
from pathlib import Path

import pytest

from headrace.migrate.proving.bubblewrap import VARIABLE, installed
from headrace.migrate.proving.confined_run import Completed, Limits, clean_environment, run

pytestmark = pytest.mark.skipif(installed() is None, reason="bubblewrap is not installed")


@pytest.fixture(autouse=True)
def by_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "bubblewrap")


def confined(place: Path, code: str, **limits: float) -> Completed:
    environment = clean_environment(place)
    return run(
        [sys.executable, "-c", code], cwd=place, environment=environment, writable=[place], readable=[place.parent / "data"],
        limits=Limits(**{"timeout": 60.0, **limits}),  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_a_program_does_comes_back(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("given")
    code = (
        "import getpass; print(open('../data/x').read(), getpass.getuser()); open('made', 'w').write('x'); raise SystemExit(3)"
    )
    done = confined(tmp_path / "place", code)
    assert (done.exit, done.stdout.split()[0], done.stopped) == (3, "given", None), done
    assert (tmp_path / "place/made").read_text() == "x"
    assert all(done.isolation.values())
    done = confined(tmp_path / "place", "open('../data/x', 'w')")
    assert "Read-only" in str(done.why)


@pytest.mark.parametrize(
    ("code", "limits", "stopped"),
    [
        ("import time; time.sleep(60)", {"timeout": 1.5}, "timeout"),
        ("import os, time\nfor _ in range(40):\n  os.fork() or time.sleep(30)\ntime.sleep(30)", {"processes": 20}, "processes"),
        ("while True: print('x' * 1000)", {"output_bytes": 10**5}, "output"),
    ],
)
def test_limits_hold(tmp_path: Path, code: str, limits: dict[str, float], stopped: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    assert confined(place, code, **limits).stopped == stopped


def test_what_bubblewrap_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin/bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'bwrap: no luck today' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:/usr/bin:/bin")
    (tmp_path / "place").mkdir()
    done = confined(tmp_path / "place", "print(1)")
    assert done.stopped == "isolation"
    assert "no luck today" in str(done.why)
