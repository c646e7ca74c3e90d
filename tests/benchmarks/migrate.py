"""`make bench-migrate`: how fast the migrator reads and rewrites, in source lines per second of one core.

The repository is made of copies of tests/migrate/corpus, each in a folder of its own, until it has the lines asked for; a real
one is given with --repository. Survey and rewrite run in this process, one thread, --repeats times; the figures are medians of
processor time, with the fastest and the slowest beside them. --profile shows where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import platform
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import survey

CORPUS = Path(__file__).resolve().parents[1] / "migrate/corpus"
GOAL_LINES, GOAL_SECONDS = 2000, 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000, help="of the repository that is made")
    parser.add_argument("--repository", type=Path, help="measure this one instead")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="one run under cProfile, and what took longest")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.repository or made(Path(scratch), arguments.lines)
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(lambda: rewrite(survey(root)))
            pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
            return
        found = measured(root, arguments.repeats)
    print(json.dumps(found, indent=1))
    low, seconds = found["lines_per_second"]["median"], found["survey_seconds"]["median"]
    what = f"{low:,.0f} lines/s for survey and rewrite (goal {GOAL_LINES:,}), survey {seconds:.1f} s of one core"
    print(f"{found['lines']:,} lines: {what}")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    if low < GOAL_LINES or (found["lines"] <= 20_500 and seconds > GOAL_SECONDS):
        sys.exit("slower than the goal")


def made(scratch: Path, lines: int) -> Path:
    """A repository of at least so many lines of Python."""
    repositories = sorted(path.parent / "repository" for path in CORPUS.glob("*/case.json"))
    count = copies = 0
    while count < lines:
        source = repositories[copies % len(repositories)]
        target = scratch / f"part_{copies // len(repositories):03}" / source.parent.name
        shutil.copytree(source, target)
        count += sum(len(path.read_bytes().splitlines()) for path in target.rglob("*.py"))
        copies += 1
    return scratch


def measured(root: Path, repeats: int) -> dict[str, object]:
    surveys: list[float] = []
    both: list[float] = []
    for _ in range(repeats):
        surveyed, first = timed(lambda: survey(root))
        changes, second = timed(lambda surveyed=surveyed: rewrite(surveyed))
        surveys.append(first)
        both.append(first + second)
    lines = sum(len(file.lines) for file in surveyed.files)
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "files": len(surveyed.files),
        "lines": lines,
        "scripts": len(surveyed.scripts),
        "rewritten": sum(change.changed for change in changes),
        "repeats": repeats,
        "survey_seconds": spread(surveys),
        "lines_per_second": spread([lines / seconds for seconds in both]),
    }


def timed(work: Callable[[], object]) -> tuple[object, float]:
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def spread(values: list[float]) -> dict[str, float]:
    figures = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 3) for name, value in figures.items()}


if __name__ == "__main__":
    main()
