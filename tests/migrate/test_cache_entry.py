"""Entries of a cache that several processes make at once, that die on the way, and whose disk is full."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from headrace.errors import MigrateError
from headrace.migrate.cache_entry import kept_folder, made_aside

# Fills argv[1] with argv[2] after a line came in, and says before that it has begun.
PROCESS = """
import sys
from pathlib import Path
from headrace.migrate.cache_entry import made_aside

entry = Path(sys.argv[1])
with made_aside(entry, lambda: (entry / "text").is_file()) as aside:
    (aside / "text").write_text(sys.argv[2])
    print("begun", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def begin():
    """A process that makes an entry, and waits with it."""
    started = []

    def begin(entry, text):
        process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(entry), text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def end(process):
    process.communicate("\n")
    assert process.returncode == 0


def made(entry, text="mine"):
    with made_aside(entry, (entry / "text").is_file) as aside:
        (aside / "text").write_text(text)


def test_of_two_at_once_the_first_to_end_stays(tmp_path, begin):
    entry = tmp_path / "entry"
    first, second = begin(entry, "first"), begin(entry, "second")
    end(second)
    served = (entry / "text").stat().st_ino
    end(first)
    assert (entry / "text").read_text() == "second"
    assert (entry / "text").stat().st_ino == served, "a server may have opened it"
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


def test_one_that_is_stopped_holds_nobody_up(tmp_path, begin):
    entry = tmp_path / "entry"
    stopped = begin(entry, "stopped")
    os.kill(stopped.pid, signal.SIGSTOP)
    made(entry)
    os.kill(stopped.pid, signal.SIGCONT)
    end(stopped)
    assert (entry / "text").read_text() == "mine"


def test_what_a_killed_one_left_is_removed_and_what_a_living_one_makes_stays(tmp_path, begin):
    killed, living = begin(tmp_path / "entry", "killed"), begin(tmp_path / "other", "living")
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.iterdir())) == 2
    made(tmp_path / "entry")
    assert len(list(tmp_path.iterdir())) == 2
    end(living)
    assert {path.name: (path / "text").read_text() for path in tmp_path.iterdir()} == {"entry": "mine", "other": "living"}


def test_an_entry_that_lacks_something_is_replaced(tmp_path):
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "half").touch()
    made(tmp_path / "entry")
    assert [path.name for path in (tmp_path / "entry").iterdir()] == ["text"]


def test_a_block_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="no weather"), made_aside(tmp_path / "entry", lambda: False):
        raise ValueError("no weather")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_said_with_the_remedy(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(MigrateError, match=r"cannot keep what is packaged: File too large; .*HEADRACE_CACHE"):
            made(tmp_path / "entry", "a text" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MigrateError, match="; name another cache folder in HEADRACE_CACHE"):
        kept_folder(tmp_path / "file" / "named")
