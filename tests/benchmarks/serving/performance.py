"""The recorded performance, docs/performance.json and .md, out of what the tools beside it wrote, and the check against it.

    python -m tests.benchmarks.serving.performance record FOLDER --command "make performance" --out docs/performance
    python -m tests.benchmarks.serving.performance check WATERFALL.json --recorded docs/performance*.json

FOLDER holds waterfall.json and, if they were measured, sweep.json and bench.json (of peers). `check` takes the record of its
machine and model, and ends with status 1 when a step's ratio to the PyTorch service fell below the recorded one beyond both
spreads and a margin, and 2 when nothing can be compared. Rates are not compared: they hold for a moment of a machine, ratios
within a round outlast it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import BenchError
from headrace.runtime.base.atomic import write_aside
from headrace.serving.bench.reporting.compare import read_result
from headrace.serving.bench.reporting.result import WITHIN, Spread

from .performance_page import markdown

__all__ = ["check", "record", "record_of"]

FORMAT = 1
MARGIN = 0.05
_MACHINE = ("cpu", "cores", "gpus")
_KEPT = (
    "name",
    "title",
    "runs",
    "why",
    "requests_per_second",
    "p50_ms",
    "p99_ms",
    "to_previous",
    "to_start",
    "agreed",
    "compared",
)


def record(folder: Path, command: str) -> dict[str, Any]:
    """What is worth keeping of the runs in a folder. Raises BenchError where waterfall.json is not there."""
    run = _waterfall(folder / "waterfall.json")
    found: dict[str, Any] = {
        "format": FORMAT,
        "command": command,
        "model": run["model"],
        "environment": run["environment"],
        "images": run["images"]["source"],
        "rounds": run["settings"]["rounds"],
        "restart": run["settings"].get("restart", False),
        "seconds": run["settings"]["seconds"],
        "concurrency": run["summary"][0]["concurrency"],
        "warnings": run["warnings"],
        "waterfall": [{**{key: step[key] for key in _KEPT}, "pss_bytes": step["pss_bytes"]} for step in run["waterfall"]],
    }
    if (folder / "sweep.json").is_file():
        swept = read_result(folder / "sweep.json")
        levels = [{"concurrency": item["concurrency"], **item["contenders"]["headrace"]} for item in swept["summary"]]
        found["sweep"] = {"levels": levels, **swept["capacity"]}
    if (folder / "bench.json").is_file():
        peers = read_result(folder / "bench.json")
        (level,) = peers["summary"]
        found["peers"] = {
            "concurrency": level["concurrency"],
            "services": level["contenders"],
            "headrace_is_faster": level["ratios"],
            "left_out": peers["left_out"],
        }
    return found


def check(recorded: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[str, Spread, Spread, str]]:
    """(step, recorded, now, what is wrong or "") for each recorded step: its ratio to the first service."""
    now = {step["name"]: step for step in run["waterfall"]}
    lines = []
    for step in recorded["waterfall"]:
        if step["to_start"] is None:
            continue
        old, found = Spread(**step["to_start"]), now.get(step["name"], {}).get("to_start")
        if found is None:
            why = now.get(step["name"], {}).get("why") or "it is no step any more"
            lines.append((step["title"], old, Spread(median=0.0, low=0.0, high=0.0), f"not measured: {why}"))
            continue
        new = Spread(**found)
        fell = new.high < (1 - MARGIN) * old.low
        lines.append((step["title"], old, new, f"fell to {new.median / old.median:.0%} of the recorded ratio" if fell else ""))
    return lines


def record_of(records: Mapping[Path, Mapping[str, Any]], run: Mapping[str, Any]) -> tuple[Path, Mapping[str, Any]]:
    """The record of the machine and the model of a run. Raises BenchError saying what the records are of."""
    reasons = []
    here = run["environment"]["fingerprint"]
    for path, recorded in records.items():
        there = recorded["environment"]["fingerprint"]
        differing = [f"{key} {there.get(key)}" for key in _MACHINE if there.get(key) != here.get(key)]
        differing += [f"model {recorded['model']}"] if recorded["model"] != run["model"] else []
        if not differing:
            return path, recorded
        reasons.append(f"{path} is of {', '.join(differing)}")
    machine = ", ".join(f"{key} {here.get(key)}" for key in _MACHINE)
    raise BenchError(
        f"no recorded ratios are of this machine and model ({machine}, model {run['model']}): {'; '.join(reasons)}. Record "
        "some here first: make performance PERFORMANCE_OUT=docs/performance-NAME"
    )


def _waterfall(path: Path) -> dict[str, Any]:
    run = read_result(path)
    if "waterfall" not in run:
        raise BenchError(f"{path} holds no waterfall; python -m tests.benchmarks.serving.waterfall writes one")
    return run


def _check(given: argparse.Namespace) -> int:
    records = {}
    for path in given.recorded:
        try:
            records[path] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BenchError(f"{path} cannot be read ({error}); `make performance` records it") from error
    run = _waterfall(given.run)
    path, recorded = record_of(records, run)
    print(f"beside {path}, recorded on {recorded['environment']['time'][:10]}")
    lines = check(recorded, run)
    for title, old, new, wrong in lines:
        figures = (
            f"recorded {old.median:.2f}x ({old.low:.2f}-{old.high:.2f}), now {new.median:.2f}x ({new.low:.2f}-{new.high:.2f})"
        )
        beside = new.against(old)
        mark = "FAILED" if wrong else "ok" if beside == WITHIN else beside
        print(f"{mark:<7}{title}: {figures}{f': {wrong}' if wrong else ''}")
    failed = sum(bool(wrong) for *_, wrong in lines)
    agreeing = sum(new.against(old) == WITHIN for _, old, new, _ in lines)
    print(f"{agreeing} of {len(lines)} ratios agree within the spreads; {failed} fell by {MARGIN:.0%} more than that")
    return int(failed > 0)


def _record(given: argparse.Namespace) -> int:
    found = record(given.folder, given.command)
    write_aside(given.out.with_suffix(".json"), (json.dumps(found, indent=1) + "\n").encode())
    write_aside(given.out.with_suffix(".md"), markdown(found).encode())
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = parser.add_subparsers(required=True)
    recording = tasks.add_parser("record", help="write the record and its page")
    recording.add_argument("folder", type=Path, help="what the benchmarks wrote into")
    recording.add_argument("--command", required=True, help="what made the figures, to stand beside them")
    recording.add_argument("--out", type=Path, default=Path("docs/performance"), help="without its suffixes")
    recording.set_defaults(task=_record)
    checking = tasks.add_parser("check", help="compare a run with the record")
    checking.add_argument("run", type=Path, help="a waterfall.json")
    checking.add_argument("--recorded", type=Path, nargs="+", default=[Path("docs/performance.json")])
    checking.set_defaults(task=_check)
    given = parser.parse_args(arguments)
    try:
        return int(given.task(given))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
