"""`make zoo`: every family of a catalog through the runtime, each in a process of its own; then the report.

    python tests/zoo/run.py [FAMILY ...] [--retry] [--fresh] [--jobs N]

Results go line by line into build/zoo/results.jsonl, so a run that was killed goes on where it was. A family that takes too
long, or too much memory, or ends its process, is that family's outcome and nobody else's.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import report
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_SECONDS = 300.0
_GIGABYTES = 10.0
_POLL_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one family may take."""

    seconds: float = _SECONDS
    gigabytes: float = _GIGABYTES


class Results:
    """A JSON-lines file: one family a line, the last line of a family counts. Appending is all that is ever done to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[str, dict[str, Any]]:
        """By family. A line that a killed run left half written counts as not there."""
        found = {}
        for line in self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                item = json.loads(line)
                found[item["family"]] = item
        return found

    def add(self, item: dict[str, Any]) -> None:
        """On the disk when this returns."""
        with self._lock, self._path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # ends what a killed run began
            file.write(json.dumps(item).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def run_family(catalog: Path, family: str, limits: Limits, *, threads: int, stop: threading.Event) -> dict[str, Any] | None:
    """The family's outcome, also when its process hangs, grows without bound or crashes; None when `stop` came first."""
    if stop.is_set():
        return None
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        out, log = Path(folder) / "result.json", Path(folder) / "log.txt"
        # The check's own temporary files lie in the folder too, so that they go with it when it is killed.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TMPDIR": folder, "HEADRACE_CACHE": "off"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "check.py"), str(catalog), family, str(out), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        try:
            broken = _watch(process, limits, stop)
        finally:
            _end(process)
        if stop.is_set():
            return None
        if out.exists():
            found = json.loads(out.read_text())
        else:
            stage, why = broken or ("crash", _last_words(process.returncode, log))
            found = {"family": family, "status": "failed", "stage": stage, "why": why}
    return {**found, "total_seconds": round(time.monotonic() - begin, 1)}


def _watch(process: subprocess.Popen[bytes], limits: Limits, stop: threading.Event) -> tuple[str, str] | None:
    """Wait for the process to end, or for `stop`; the limit that it broke, if it did."""
    deadline = time.monotonic() + limits.seconds
    while process.poll() is None and not stop.is_set():
        if time.monotonic() > deadline:
            return "time", f"not done after {limits.seconds:g} s"
        if _resident(process.pid) > limits.gigabytes * (1 << 30):
            return "memory", f"took more than {limits.gigabytes:g} GiB"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
    return None


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(status: int | None, log: Path) -> str:
    ended = f"ended by {signal.Signals(-status).name}" if status and status < 0 else f"ended with status {status}"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{ended}: {lines[-1][:300]}" if lines else ended


def run(
    catalog: Path, families: list[str], results: Results, limits: Limits, *, jobs: int, retry: bool, console: Console
) -> None:
    """Every family without a result, `jobs` at a time; with `retry` also those that failed."""
    known = results.read()
    wanted = [family for family in families if family not in known or (retry and known[family]["status"] == "failed")]
    origin = {"versions": report.versions(), "commit": report.commit(), "date": _today()}
    threads, stop = max(1, (os.cpu_count() or 1) // jobs), threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False), console=console) as progress,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        task = progress.add_task("zoo", total=len(families), completed=len(families) - len(wanted))
        try:  # whatever ends this, from the first submission on, must stop the threads: the pool waits for them
            # A process dies with the thread that started it, and these threads live as long as the pool does.
            running = [pool.submit(run_family, catalog, family, limits, threads=threads, stop=stop) for family in wanted]
            for done in concurrent.futures.as_completed(running):
                outcome = done.result()
                assert outcome is not None, "only the way out sets `stop`"
                item = outcome | origin
                results.add(item)
                progress.console.print(report.line(item), highlight=False, markup=False, soft_wrap=True)
                progress.advance(task)
        finally:
            stop.set()


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="all of the catalog without any")
    parser.add_argument("--catalog", type=Path, default=HERE / "catalog.py")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "zoo", help="where results are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="where zoo.md and zoo.json are written")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="families at a time")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="the most that one family may take")
    parser.add_argument("--gigabytes", type=float, default=_GIGABYTES, help="the most memory that one family may take")
    parser.add_argument("--retry", action="store_true", help="run those again that failed")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    arguments = parser.parse_args()
    known = names_in(arguments.catalog)
    if unknown := sorted(set(arguments.families) - set(known)):
        parser.error(f"no such family: {', '.join(unknown)}; the families are {', '.join(known)}")
    path = arguments.build / "results.jsonl"
    if arguments.fresh:
        path.unlink(missing_ok=True)
    results, console = Results(path), Console()
    run(
        arguments.catalog,
        arguments.families or known,
        results,
        Limits(arguments.seconds, arguments.gigabytes),
        jobs=max(1, arguments.jobs),
        retry=arguments.retry,
        console=console,
    )
    items = [item for family, item in sorted(results.read().items()) if family in known]
    report.write(items, len(known), arguments.out)
    console.print(report.score(items))
    return 0


def names_in(catalog: Path) -> list[str]:
    """The catalog's families, listed in another process: a library that breaks at import must not take the runner along."""
    code = "import sys, check, pathlib; print(*check.load_catalog(pathlib.Path(sys.argv[1])).families())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(catalog.resolve())], cwd=HERE, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{catalog} cannot be read; `make zoo` installs what it needs\n{done.stderr}")
    return done.stdout.split()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
