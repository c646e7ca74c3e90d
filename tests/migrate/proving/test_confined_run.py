"""The user's code runs bounded: whatever it does, the caller gets a value, and nothing outside its scratch folder changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from headrace.migrate.proving import confined_run
from headrace.migrate.proving.confined_run import INTERPRETER, Completed, Limits, clean_environment, run
from headrace.migrate.proving.visible_files import visible_files


def python(tmp_path: Path, code: str, **limits: float) -> Completed:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    bounds = Limits(**{"timeout": 60, **limits})  # type: ignore[arg-type]
    return run(
        [sys.executable, "-c", code], cwd=scratch, environment=clean_environment(scratch), writable=[scratch], limits=bounds
    )


def test_a_good_program_gives_its_output_line_by_line(tmp_path: Path) -> None:
    lines: list[str] = []
    done = run(
        [sys.executable, "-c", "import sys; print('one'); print('two'); print('oops', file=sys.stderr)"],
        cwd=tmp_path,
        environment=clean_environment(tmp_path),
        writable=[tmp_path],
        on_line=lines.append,
    )
    assert done.ok
    assert done.why is None
    assert (done.stdout, done.stderr, lines) == ("one\ntwo\n", "oops\n", ["one", "two"])


def test_a_failure_ends_in_the_programs_own_last_line(tmp_path: Path) -> None:
    done = python(tmp_path, "raise FileNotFoundError('data/test not found, run prepare.py first')")
    assert done.exit == 1
    assert done.why == "FileNotFoundError: data/test not found, run prepare.py first"


def test_what_is_said_in_a_box_is_found(tmp_path: Path) -> None:
    box = "╭─ Error ─────╮\n│ Missing argument 'MODEL_PATH'.  │\n╰─────────────╯\n"
    done = python(tmp_path, f"import sys; sys.stderr.buffer.write({box.encode()!r}); sys.exit(2)")
    assert done.why == "Missing argument 'MODEL_PATH'."


def test_the_status_of_a_signal(tmp_path: Path) -> None:
    done = python(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert (done.exit, done.why) == (139, "ended with exit status 139")


def test_a_terminal_where_nobody_types(tmp_path: Path) -> None:
    """`stty size` and its like work, and all who read get the end of the input, however often they ask."""
    code = """
        import os, sys
        print(os.popen("stty size").read().split(), os.get_terminal_size(0), sys.stdin.isatty())
        print([sys.stdin.read() for _ in range(5)], list(sys.stdin), [os.read(0, 100) for _ in range(5000)][-1])
        with open("/dev/tty") as terminal:
            print(terminal.read())
    """
    done = python(tmp_path, textwrap.dedent(code))
    first, second = done.stdout.splitlines()
    assert first == "['24', '80'] os.terminal_size(columns=80, lines=24) True"
    assert second == "['', '', '', '', ''] [] b''"
    assert "/dev/tty" in (done.why or "")  # nobody's terminal can be reached by its name


def test_no_input_no_secrets_and_no_unsafe_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert "EOFError" in (python(tmp_path, "input('name? ')").why or "")
    done = python(tmp_path, "import os; print(os.environ)")
    assert "hunter2" not in done.stdout
    assert "'TORCH_FORCE_WEIGHTS_ONLY_LOAD': '1'" in done.stdout
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in clean_environment(tmp_path, trusted=True)


@pytest.mark.parametrize(
    ("code", "limits", "stopped"),
    [
        ("while True: pass", {"timeout": 0.5}, "timeout"),
        ("import time, signal; signal.signal(15, signal.SIG_IGN); time.sleep(1000)", {"timeout": 1}, "timeout"),
        # Below, where a child does the work.
        pytest.param("while True: pass", {"idle": 1, "timeout": 4}, "timeout", marks=pytest.mark.slow),
        ("import os\nif os.fork(): os.wait()\nelse:\n  while True: pass", {"idle": 0.5, "timeout": 1.5}, "timeout"),
        ("import threading; threading.Event().wait()", {"idle": 1}, "idle"),
        ("import os, time\nif os.fork(): os.wait()\ntime.sleep(1000)", {"idle": 1}, "idle"),
        ("x = []\nwhile True: x.append(bytearray(50_000_000))", {"memory_bytes": 200_000_000}, "memory"),
        ("import os\nwhile True: os.fork()", {"processes": 40}, "processes"),
        ("while True: print('y' * 10_000)", {"output_bytes": 3_000_000}, "output"),
        ("import os\nwhile True: os.write(2, b'n' * 100_000)", {"output_bytes": 3_000_000}, "output"),
    ],
)
def test_what_does_not_end_by_itself_is_stopped(tmp_path: Path, code: str, limits: dict[str, float], stopped: str) -> None:
    done = python(tmp_path, code, **limits)
    assert done.stopped == stopped
    assert not done.ok
    assert "stopped" in (done.why or "")
    assert len(done.stdout) < 3_000_000


def test_processes_that_share_their_memory_are_counted_exactly_and_not_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shows what all share as its own, together more than the limit; what each really has is dear to count."""
    counts: list[int] = []
    count = confined_run._memory

    def counted(processes: list[psutil.Process], *, exact: bool) -> int:
        found = count(processes, exact=exact)
        if exact:
            counts.append(found)
        return found

    monkeypatch.setattr(confined_run, "_memory", counted)
    code = (
        "import os, time\nshared = b'x' * 300_000_000\nchildren = []\nfor _ in range(15):\n    children.append(os.fork())\n"
        "    if not children[-1]:\n        time.sleep(3)\n        os._exit(0)\nfor child in children:\n    os.waitpid(child, 0)"
    )
    done = python(tmp_path, code, memory_bytes=4_000_000_000)
    assert done.ok
    assert counts, "what all of them show is above the limit"
    assert max(counts) < 2_000_000_000
    assert len(counts) <= 2 + done.seconds / 0.8, "0.85 s is the soonest that as much more could be there"


def test_a_program_that_runs_on_is_looked_at_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    look = confined_run._Watch.look

    def counted(watch: confined_run._Watch) -> list[psutil.Process]:
        found = look(watch)
        looks.append(len(found))
        return found

    monkeypatch.setattr(confined_run._Watch, "look", counted)
    started = time.process_time()
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(4)'])"
    done = python(tmp_path, code)
    assert done.ok
    assert 5 <= len(looks) <= 11 + done.seconds, "some at the beginning, then one a second, also where all takes longer"
    assert max(looks) == 3, "init, the program, and what it started"
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("pidfd", [True, False])
def test_the_end_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pidfd: bool) -> None:
    if not pidfd:
        monkeypatch.delattr(confined_run.os, "pidfd_open", raising=False)
    monkeypatch.setattr(confined_run, "_SHORTEST", 250)
    done = python(tmp_path, "import time; time.sleep(0.5)", timeout=1000)
    assert done.ok
    assert done.seconds < 200


def test_processes_that_leave_the_group_end_too(tmp_path: Path) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(98765)
    os._exit(0)
os.wait()
time.sleep(0.5)
print('the parent ends')
"""
    done = python(tmp_path, code)
    assert done.ok

    def left() -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline"])
        return [process for process in found if any("98765" in part for part in process.info["cmdline"] or [])]

    end = time.monotonic() + 60  # a killed process needs the processor once more
    while left() and time.monotonic() < end:
        time.sleep(0.05)
    assert left() == []


@pytest.mark.parametrize("shown", [False, True])
def test_nothing_outside_the_scratch_folder_can_be_changed_nor_read_unless_shown(tmp_path: Path, shown: bool) -> None:
    precious = tmp_path / "shown/precious.txt"
    precious.parent.mkdir()
    precious.write_text("keep me")
    code = f"""
import os
open("mine", "w").write("x")
print(os.path.exists("mine"), os.path.exists({str(precious)!r}))
os.remove({str(precious)!r})
"""
    (tmp_path / "scratch").mkdir()
    done = run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "scratch",
        environment=clean_environment(tmp_path / "scratch"),
        writable=[tmp_path / "scratch"],
        readable=[precious.parent] if shown else [],
    )
    if done.stopped == "isolation":
        pytest.skip("this platform lets no process change its own view of the file system")
    assert done.stdout == f"True {shown}\n"
    assert ("Read-only file system" if shown else "No such file") in (done.why or "")
    assert precious.read_text() == "keep me"


def test_no_network_but_loopback(tmp_path: Path) -> None:
    code = """
import socket
server = socket.create_server(('127.0.0.1', 0))
socket.create_connection(server.getsockname(), 2)
print('loopback works')
socket.create_connection(('192.0.2.1', 9), 2)
"""
    done = python(tmp_path, code)
    if not done.isolation.get("network"):
        pytest.skip("this platform lets no process cut itself off the network")
    assert done.stdout == "loopback works\n"
    assert "unreachable" in (done.why or "")


def test_limits_are_validated() -> None:
    with pytest.raises(ValueError, match="timeout must be positive"):
        Limits(timeout=0)


MANY = "for i in range(4000): open(f'{i}.bin', 'wb').write(bytes(2**20))"
HIDDEN = """
import os, time
for i in range(4):
    file = open("x", "wb")
    os.unlink("x")
    for _ in range(2000):
        file.write(bytes(2**20))
"""


@pytest.mark.parametrize("code", [MANY, HIDDEN, f"import os\nif os.fork() == 0:\n {MANY}\nelse: os.wait()"])
def test_many_files_may_not_fill_the_disk(tmp_path: Path, code: str) -> None:
    done = python(tmp_path, code, disk_bytes=40 * 2**20)
    assert done.stopped == "disk"
    assert not done.ok
    assert done.why == "stopped: it wrote more to disk than the limit"


def test_a_quick_program_that_wrote_too_much_is_found_out_too(tmp_path: Path) -> None:
    done = python(tmp_path, "open('x', 'wb').write(bytes(2**23))", disk_bytes=2**22)
    assert done.stopped == "disk"


def test_what_lay_there_and_what_is_written_again_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "data.bin").write_bytes(bytes(2**24))
    code = "import time\nfor i in range(60):\n open('best.pth', 'wb').write(bytes(2**20)); time.sleep(0.01)"
    assert python(tmp_path, code, disk_bytes=2**23).ok
    sparse = "file = open('sparse', 'wb'); file.seek(2**34 - 1); file.write(b'x')"
    assert python(tmp_path, sparse, disk_bytes=2**23, file_bytes=2**35).ok


@pytest.mark.parametrize(
    ("load", "cores", "times"), [(0.0, 4, 1.0), (4.0, 4, 1.0), (9.0, 4, 2.25), (100.0, 4, 3.0), (2.0, None, 2.0)]
)
def test_patience_grows_with_what_else_the_machine_does(
    monkeypatch: pytest.MonkeyPatch, load: float, cores: int | None, times: float
) -> None:
    monkeypatch.setattr(confined_run.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(confined_run.os, "cpu_count", lambda: cores)
    assert confined_run.patience() == times


def test_an_interpreter_that_was_called_by_way_of_another_folder_runs(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\nfrom headrace.migrate.proving.sandbox import Sandbox\nassert '..' in sys.executable\n"
        "scratch = pathlib.Path(sys.argv[1])\nbox = Sandbox(scratch=scratch)\n"
        "print(box.run(['-c', 'import numpy; print(numpy.ones(2).sum())'], box.writable_folder()).stdout)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    called = os.path.relpath(sys.executable, scratch)
    done = subprocess.run([called, "-c", code, scratch], cwd=scratch, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "2.0", done.stderr


@pytest.mark.parametrize("trusted", [False, True])
def test_nothing_is_run_for_a_starter_that_was_killed_meanwhile(tmp_path: Path, trusted: bool) -> None:
    """It is killed before the walls stand, when no signal tells of its end yet; nobody reads the status any more then."""
    status_read, status_write = os.pipe()
    os.close(status_read)
    settings = {
        "status_fd": status_write, "memory_bytes": 2**32, "file_bytes": 2**20, "tasks": 100, "processes": 10,
        "shared_memory_bytes": 2**20, "network": False, "trusted": trusted, "walled": False, "home": str(tmp_path),
        "writable": [str(tmp_path)], "readable": [str(path) for path in visible_files({})],
    }  # fmt: skip
    program = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    try:
        subprocess.run(
            [INTERPRETER, "-I", str(confined_run.CONFINE), json.dumps(settings), *program], pass_fds=[status_write],
            cwd=tmp_path, env=clean_environment(tmp_path), check=False,
        )  # fmt: skip
    finally:
        os.close(status_write)
    assert not (tmp_path / "ran").exists()


WITHOUT_NAMESPACES = """
import sys
from pathlib import Path
from headrace.migrate.proving import confine
from headrace.migrate.proving.confined_run import clean_environment, run
assert confine._libc().prctl(confine.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert confine._deny_system_calls()
place = Path(sys.argv[1])
run(
    [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"], cwd=place, trusted=True,
    environment=clean_environment(place), writable=[place], on_line=lambda line: print(line, flush=True),
)
"""


def test_without_namespaces_a_program_ends_with_what_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_NAMESPACES, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        program = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    psutil.wait_procs([program], timeout=60)
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
