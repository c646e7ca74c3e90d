"""Compare batching policies in virtual time: `python -m tests.benchmarks.simulation --help`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from headrace.runtime.base.atomic import write_aside

from .compare import MACHINES, TRAFFIC, compare, trace_kind
from .report import markdown, plot
from .traffic import read_trace


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.simulation", description=__doc__)
    parser.add_argument("--target-ms", type=float, default=15.0, help="answer 99 %% of the requests within this (default 15)")
    parser.add_argument("--requests", type=int, default=30_000, help="requests per simulated run (default 30000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--machine", choices=[*MACHINES], action="append", help="only this one; may be repeated")
    parser.add_argument("--traffic", choices=[*TRAFFIC], action="append", help="only this kind; may be repeated")
    parser.add_argument("--trace", type=Path, help="also a recorded trace: a CSV file with the column seconds, or a JSON list")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use (default: all cores)")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.png")
    chosen = parser.parse_args(arguments)
    if chosen.target_ms <= 0 or chosen.requests < 100 or chosen.jobs < 1:
        parser.error("--target-ms and --jobs must be positive, --requests at least 100")
    if chosen.out is not None and not chosen.out.absolute().parent.is_dir():
        parser.error(f"--out: {chosen.out.parent} is not a folder")
    traffic = {name: TRAFFIC[name] for name in chosen.traffic or TRAFFIC}
    machines = chosen.machine or list(MACHINES)
    if chosen.trace is not None:
        try:
            traffic["trace"] = trace_kind(read_trace(chosen.trace))
        except ValueError as error:
            parser.error(str(error))
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        outcomes = list(
            compare(
                pool,
                target=chosen.target_ms / 1e3,
                requests=chosen.requests,
                seed=chosen.seed,
                machines=machines,
                traffic=traffic,
            )
        )
    sys.stdout.write(markdown(outcomes))
    if chosen.out is not None:
        result = {
            "command": f"python -m tests.benchmarks.simulation --requests {chosen.requests} --out docs/{chosen.out.name}",
            "traffic": [*traffic],
            "target_ms": chosen.target_ms,
            "requests": chosen.requests,
            "seed": chosen.seed,
            "machines": {name: MACHINES[name].to_json() for name in machines},
            "outcomes": [outcome.to_json() for outcome in outcomes],
        }
        write_aside(chosen.out.with_suffix(".json"), json.dumps(result, indent=1).encode() + b"\n")
        write_aside(chosen.out.with_suffix(".png"), plot(outcomes, target_ms=chosen.target_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
