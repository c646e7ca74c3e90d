"""Run the user's code: a subprocess with a timeout, a memory bound, no network, a clean environment and bounded output.

`run` never raises for what the program does: a crash, a timeout or a broken limit is a `Completed` value that says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Literal

import psutil

from . import bubblewrap
from .disk_use import DiskUse
from .visible_files import stored_weights, visible_files

GIBIBYTE = 2**30
INTERPRETER = os.path.join(os.path.realpath(os.path.dirname(sys.executable)), os.path.basename(sys.executable))
"""This one by a path without `..` and links: the folders on the way are not shown behind the walls."""
LINES, COLUMNS = 24, 80  # of the terminal at which nobody sits
# Names that programs need and that carry no secret; everything else of the caller's environment stays out.
PASSED_ON = (
    "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
SPINS = "20000"
"""For so many turns, 0.2 ms, torch's threads wait for each other awake, which is longer than a model pauses between two layers;
of the 3 ms of OpenMP's own, a machine that does something else beside them loses more than they compute."""
CONFINE = Path(__file__).with_name("confine.py")
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two looks at a program that runs: its candidates are timed meanwhile."""
_FASTEST_MEMORY, _FASTEST_DISK = 4 * GIBIBYTE, 2 * GIBIBYTE
"""Bytes per second that a program can fill at most, or nearly so."""
_MOST_SEEN = 10_000
_IDLE = 0.01
_MOST_PATIENCE = 3.0
TIME_LIMIT = "the time limit"
"""What is said last of a run that was ended by it."""
_BLANK = " \t\r│╭╮╰╯─┃┏┓┗┛━"
"""What stands around what is said, as the boxes of command lines."""
Stopped = Literal["timeout", "idle", "memory", "processes", "output", "disk", "isolation"]


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a program ended. `exit` is its status (128 + n for signal n); `stopped` names the limit it broke, if any."""

    argv: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str
    stopped: Stopped | None
    seconds: float
    isolation: Mapping[str, bool]

    @property
    def ok(self) -> bool:
        return self.exit == 0 and self.stopped is None

    @property
    def why(self) -> str | None:
        """One sentence about a failure, ending in what the program itself said last; None when all went well."""
        if self.ok:
            return None
        if self.stopped is not None:
            return {
                "timeout": f"stopped after {self.seconds:.0f} s, {TIME_LIMIT}",
                "idle": f"stopped after {self.seconds:.0f} s: it computed nothing for long, waiting for what does not come",
                "memory": "stopped: it used more memory than the limit",
                "processes": "stopped: it started more processes than the limit",
                "output": "stopped: it printed without end",
                "disk": "stopped: it wrote more to disk than the limit",
                "isolation": f"not run, since it could not be isolated: {self.stderr}",
            }[self.stopped]
        lines = [said for line in self.stderr.splitlines() if (said := line.strip(_BLANK))]
        return lines[-1][:500] if lines else f"ended with exit status {self.exit}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on one run: seconds of wall clock, bytes of memory over all its processes, and so on."""

    timeout: float = 600.0
    idle: float | None = None
    """Seconds in which it must compute something, where it is not to wait for what may never come."""
    memory_bytes: int = 8 * GIBIBYTE
    file_bytes: int = 16 * GIBIBYTE
    disk_bytes: int = 16 * GIBIBYTE
    """What all its files together may grow by."""
    processes: int = 256
    output_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in ("timeout", "idle", "memory_bytes", "file_bytes", "disk_bytes", "processes", "output_bytes"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"sandbox limit {name} must be positive, got {getattr(self, name)}")


def patience() -> float:
    """How many times longer than alone a program may take here now, since the machine does other work: as many as there are
    processes for each core, and three times at most."""
    return min(_MOST_PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def own_folders(scratch: Path) -> dict[str, str]:
    """The variables by which a home and a folder for temporary files lie in `scratch`, where they are made."""
    folders = {"HOME": scratch / "home", "TMPDIR": scratch / "tmp"}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {name: str(folder) for name, folder in folders.items()}


def clean_environment(scratch: Path, *, trusted: bool = False, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without the caller's secrets, whose home, caches and temporary files lie inside `scratch`."""
    environment = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
    environment |= own_folders(scratch)
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"}
    environment["GOMP_SPINCOUNT"] = SPINS
    environment |= stored_weights()
    if not trusted:  # torch.load then refuses pickles that could run code, whatever the script asks for
        environment["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    return environment | dict(extra or {})


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    writable: Iterable[Path],
    readable: Iterable[Path] = (),
    trusted: bool = False,
    limits: Limits | None = None,
    on_line: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Completed:
    """Run `argv` in `cwd` at a terminal where nobody types, and end all when it ends, breaks a limit, or `stop` is set.

    Of files it sees Python, its packages, the system's libraries and what is in `writable` and `readable`; it can write the
    former alone; the network is cut off. Where the platform does not allow that, it is not run, unless it is `trusted`: then
    it sees all files, and `Completed.isolation` says what holds. `on_line` sees each line of output, on another thread.
    """
    once = partial(
        _run, argv, cwd=cwd, environment=environment, writable=list(writable), readable=list(readable), trusted=trusted,
        limits=limits or Limits(), on_line=on_line, stop=stop,
    )  # fmt: skip
    program = bubblewrap.installed() if sys.platform == "linux" and not trusted else None
    if program is not None and bubblewrap.is_wanted():
        return once(program=program)
    done = once(program=None)
    if done.stopped == "isolation" and program is not None:
        instead = once(program=program)
        return done if instead.stopped == "isolation" else instead
    return done


def _run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    writable: Iterable[Path],
    readable: Iterable[Path],
    trusted: bool,
    limits: Limits,
    on_line: Callable[[str], None] | None,
    stop: threading.Event | None,
    program: str | None,
) -> Completed:
    """`run` once, with walls of our own or those that the `program` builds, which is bubblewrap."""
    writable = [folder.resolve() for folder in writable]
    disk = DiskUse(writable)
    limits = replace(limits, disk_bytes=max(1, disk.allowance(limits.disk_bytes)))
    status_read, status_write = os.pipe()
    settings = {
        "status_fd": status_write,
        "memory_bytes": limits.memory_bytes + 2 * GIBIBYTE,  # per process; the sum over all is watched below
        "file_bytes": limits.file_bytes,
        "tasks": 8192,
        "processes": limits.processes,
        "shared_memory_bytes": limits.memory_bytes // 2,
        "network": False,
        "trusted": trusted,
        "walled": program is not None,
        "home": environment.get("HOME", "/"),
        "writable": [str(folder) for folder in writable],
        "readable": [str(path) for path in (*visible_files(environment), *readable)],
    }
    command = [INTERPRETER, "-I", str(CONFINE), json.dumps(settings), *argv]
    handles: list[int] = []
    if program is not None:
        command, handles = bubblewrap.arguments(program, settings, command, cwd)
    started = time.monotonic()
    stopped: Stopped | None = None
    with _silent_terminal() as terminal:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(status_write, *handles),
        )
        for handle in (status_write, *handles):
            os.close(handle)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [_Reader(process.stdout, limits.output_bytes, on_line), _Reader(process.stderr, limits.output_bytes, None)]
        watch = _Watch(process.pid)
        try:
            pause = _SHORTEST
            while stopped is None and process.poll() is None and not (stop is not None and stop.is_set()):
                stopped = _broken_limit(limits, started, watch, readers, disk)
                if stopped is None:
                    longest = _LONGEST if stop is None else _LONGEST / 4
                    growing = (
                        longest if watch.shares else 1.5 * pause
                    )  # to count what forks share is dear, so not at once again
                    pause = min(growing, longest, _time_to_limit(limits, started, watch, disk))
                    _wait(process, max(_SHORTEST, pause))
        finally:
            _end(process, watch)
            for reader in readers:
                reader.join()
            with open(status_read, encoding="utf-8") as file:
                status, *events = file.read().splitlines() or ["{}"]
    held = json.loads(status)
    if program is not None and not held:  # bubblewrap ended before
        held = {"refused": readers[1].text().strip() or f"{program} ended with status {process.returncode}"}
    refused = held.pop("refused", None)
    if events == ["processes"]:
        stopped = "processes"
    if stopped is None and disk.growth((), now=True) > limits.disk_bytes:  # it was done before it was counted
        stopped = "disk"
    if refused is not None:
        stopped = "isolation"
    return Completed(
        argv=tuple(argv),
        exit=process.returncode if process.returncode >= 0 else 128 - process.returncode,
        stdout=readers[0].text(),
        stderr=readers[1].text() if refused is None else refused,
        stopped=stopped,
        seconds=time.monotonic() - started,
        isolation=held,
    )


@contextlib.contextmanager
def _silent_terminal() -> Iterator[int]:
    """A file descriptor for a child's standard input, for as long as the block lasts.

    It is a pseudo terminal of 24 lines and 80 columns, because many training scripts ask `stty size` for the width of their
    progress bar and end where there is no terminal. Every read from it returns at once, with nothing: that is what termios(3)
    says of a terminal without canonical mode, with VMIN and VTIME 0, where nothing was typed. Where the platform has no pseudo
    terminals, it is the null device.
    """
    try:
        import termios

        master, slave = os.openpty()
    except (ImportError, OSError):
        yield subprocess.DEVNULL
        return
    try:
        termios.tcsetwinsize(slave, (LINES, COLUMNS))
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~(termios.ICANON | termios.ECHO)
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 0, 0
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        yield slave
    finally:
        os.close(slave)
        os.close(master)


class _Reader(threading.Thread):
    """Drains one pipe for ever, but keeps only the first and the last part of what came."""

    KEPT = 512 * 1024

    def __init__(self, pipe: IO[bytes], limit: int, on_line: Callable[[str], None] | None) -> None:
        super().__init__(daemon=True)
        self._pipe, self._limit, self._on_line = pipe, limit, on_line
        self._head, self._tail, self._line = bytearray(), bytearray(), bytearray()
        self.count = 0
        self.start()

    def run(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65536):
                self.count += len(chunk)
                free = self.KEPT - len(self._head)
                self._head += chunk[:free]
                self._tail = (self._tail + chunk[free:])[-self.KEPT :] if free < len(chunk) else self._tail
                if self._on_line is not None:
                    self._lines(chunk, self._on_line)

    def _lines(self, chunk: bytes, on_line: Callable[[str], None]) -> None:
        *lines, rest = (bytes(self._line) + chunk).split(b"\n")
        self._line = bytearray(rest[-65536:])
        for line in lines:
            on_line(line.decode("utf-8", "replace").rstrip("\r"))

    @property
    def overflown(self) -> bool:
        return self.count > self._limit

    def text(self) -> str:
        dropped = self.count - len(self._head) - len(self._tail)
        gap = f"\n... {dropped} bytes not kept ...\n".encode() if dropped > 0 else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


class _Watch:
    """The processes below one process, remembered, so that those that changed their parent are found again."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._seen: dict[int, psutil.Process] = {}
        self._worked = 0.0, time.monotonic()
        self.resident = 0
        """Bytes, when they were last counted."""
        self.shares = False
        """Whether they showed more than the limit then, most of which they shared."""

    def look(self) -> list[psutil.Process]:
        self._seen = {pid: process for pid, process in self._seen.items() if process.is_running()}
        waiting = [self._root, *self._seen]
        while waiting and len(self._seen) < _MOST_SEEN:
            for child in _children(waiting.pop()):
                if child not in self._seen:
                    with contextlib.suppress(psutil.Error):
                        self._seen[child] = psutil.Process(child)
                        waiting.append(child)
        return list(self._seen.values())

    def is_idle(self, seconds: float) -> bool:
        """Whether they did so little for so long that they can only wait: less than `_IDLE` of what one core does."""
        work = 0.0
        for process in self._seen.values():
            with contextlib.suppress(psutil.Error):
                work += sum(process.cpu_times()[:4])
        if abs(work - self._worked[0]) >= _IDLE * seconds:  # less of it where a process has ended
            self._worked = work, time.monotonic()
        return time.monotonic() - self._worked[1] > seconds


def _children(pid: int) -> list[int]:
    """Of a process, by its threads: to look through all processes of the machine takes a hundred times longer."""
    found: list[int] = []
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # another system, or a kernel without
        with contextlib.suppress(psutil.Error):
            found = [child.pid for child in psutil.Process(pid).children()]
        return found
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children") as file,
            ):
                found += [int(child) for child in file.read().split()]
    return found


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until the process ends, at most so long, without looking."""
    with contextlib.suppress(OSError, AttributeError):  # before Linux 5.3, and elsewhere
        handle = os.pidfd_open(process.pid)
        try:
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            waiting.poll(1000 * seconds)
        finally:
            os.close(handle)
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


def _time_to_limit(limits: Limits, started: float, watch: _Watch, disk: DiskUse) -> float:
    """The seconds that even a program that hurries needs to break the next limit."""
    return min(
        limits.timeout - (time.monotonic() - started),
        (limits.memory_bytes - watch.resident) / _FASTEST_MEMORY,
        (limits.disk_bytes - disk.growth(())) / _FASTEST_DISK,
    )


def _broken_limit(limits: Limits, started: float, watch: _Watch, readers: list[_Reader], disk: DiskUse) -> Stopped | None:
    if time.monotonic() - started > limits.timeout:
        return "timeout"
    if any(reader.overflown for reader in readers):
        return "output"
    processes = watch.look()
    if limits.idle is not None and watch.is_idle(limits.idle):
        return "idle"
    if len(processes) > limits.processes:
        return "processes"
    if disk.growth(processes) > limits.disk_bytes:
        return "disk"
    watch.resident = _memory(processes, exact=False)
    watch.shares = watch.resident > limits.memory_bytes
    if watch.shares:  # or forks share most of it: how soon to look again is told by what they have
        watch.resident = _memory(processes, exact=True)
    return "memory" if watch.resident > limits.memory_bytes else None


def _memory(processes: list[psutil.Process], *, exact: bool) -> int:
    """Resident bytes; `exact` shares out pages that several processes map, which takes the kernel longer to count.

    Counting ends after half a second: while programs fork without end it would take for ever, and they must be stopped.
    """
    total = 0
    deadline = time.monotonic() + 0.5
    for process in processes:
        if time.monotonic() > deadline:
            break
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss if exact else process.memory_info().rss
    return total


def _end(process: subprocess.Popen[bytes], watch: _Watch) -> None:
    """Kill whatever is left: the process group, and every descendant that was ever seen."""
    survivors = watch.look()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # which may not have a group yet, where it is stopped as it starts
    for survivor in survivors:
        with contextlib.suppress(psutil.Error):
            survivor.kill()
    process.wait()
