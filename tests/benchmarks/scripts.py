"""What a migrated script takes beside its original: both run in turns, as their user runs them.

    python -m tests.benchmarks.scripts --original examples/digits --migrated build/demo/digits "evaluate.py" "predict.py a.png"

Cold is with an empty cache folder, warm with that of the run before. The promise is 1.1 times the original's time and a second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run(folder: Path, command: str, cache: str) -> tuple[float, float, str]:
    """Seconds on the clock and of the processors, and what was printed. Raises CalledProcessError."""
    environment = {**os.environ, "HEADRACE_CACHE": cache}
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, processors, done.stdout


def measured(original: Path, migrated: Path, command: str, rounds: int) -> dict[str, Any]:
    """Medians of both, the migrated one cold and warm."""
    times: dict[str, list[tuple[float, float]]] = {"original": [], "cold": [], "warm": []}
    printed = set()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name, folder in (("original", original), ("cold", migrated), ("warm", migrated)):
                *taken, text = run(folder, command, cache)
                times[name].append((taken[0], taken[1]))
                printed.add(text)
    seconds = {name: statistics.median(wall for wall, _ in taken) for name, taken in times.items()}
    allowed = 1.1 * seconds["original"] + 1
    return {
        "command": f"python {command}",
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "spread": {name: [round(min(taken)[0], 2), round(max(taken)[0], 2)] for name, taken in times.items()},
        "cpu_seconds": {name: round(statistics.median(cpu for _, cpu in taken), 2) for name, taken in times.items()},
        "holds": max(seconds["cold"], seconds["warm"]) <= allowed,
        "printed_alike": len(printed) == 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", type=Path, required=True, help="The repository as it was.")
    parser.add_argument("--migrated", type=Path, required=True, help="What headrace migrate --out wrote.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="Also write the JSON here.")
    parser.add_argument("commands", nargs="+", help='A script and its arguments, as in "predict.py a.png".')
    options = parser.parse_args()
    rows = []
    for command in options.commands:
        row = measured(options.original, options.migrated, command, options.rounds)
        rows.append(row)
        took, verdict = row["seconds"], "holds" if row["holds"] else "MISSED"
        alike = "" if row["printed_alike"] else "; printed otherwise"
        now = f"{took['cold']:.1f} s cold, {took['warm']:.1f} s warm"
        print(f"{row['command']}: {took['original']:.1f} s -> {now}: {verdict}{alike}")
    content = {"machine": {"cores": os.cpu_count(), "load": os.getloadavg()}, "rounds": options.rounds, "scripts": rows}
    if options.out is not None:
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
