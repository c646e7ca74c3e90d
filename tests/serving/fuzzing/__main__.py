"""Grammar-based fuzzing of a real server, over HTTP/1.1, HTTP/2 and gRPC.

    python tests/serving/fuzzing --cases 100000 --out docs/fuzzing.json
    python tests/serving/fuzzing --case 7:4711          one case again, with all that it sends and what comes back

The exit status is 0 when no rule was broken. docs/fuzzing.md says what the rules are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from campaign import Campaign, Result, grammars, make, sent
from case import Problem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from schema import explore
from world import serving

from headrace.runtime.base.fingerprint import fingerprint

_VERSIONS = (
    "schemathesis",
    "uvicorn",
    "httptools",
    "fastapi",
    "starlette",
    "grpcio",
    "protobuf",
    "pillow",
    "simplejpeg",
    "numpy",
    "h11",
    "python-multipart",
)


def main(arguments: list[str]) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python tests/serving/fuzzing", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=3000, help="how many (default 3000)")
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--connections", type=int, default=16, help="cases at a time (default 16)")
    parser.add_argument("--stretch", type=int, help="cases between two looks at the server (default: a fortieth, 500 at least)")
    parser.add_argument("--frontends", type=int, default=0, help="processes that take requests (default 0: one for all)")
    parser.add_argument("--only", choices=sorted(grammars()), help="cases of one grammar")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="one case again")
    parser.add_argument(
        "--hold",
        type=Path,
        metavar="FILE",
        help="pause between stretches while this file exists, for what else the machine does",
    )
    parser.add_argument(
        "--out", type=Path, help="write what was found as JSON, beside what stands there of other numbers of front ends"
    )
    parser.add_argument("--schema", type=int, default=0, help="cases that schemathesis makes from /openapi.json (default 0)")
    parser.add_argument("--log", type=Path, help="keep the server's log here")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the server, too, and removes shared memory
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    seed, number = (int(part) for part in chosen.case.split(":")) if chosen.case else (chosen.seed, None)
    seed = secrets.randbelow(10**6) if seed is None else seed
    with (
        tempfile.TemporaryDirectory(prefix="headrace-fuzzing-") as folder,
        serving(Path(folder), frontends=chosen.frontends) as (server, world),
    ):
        if number is not None:
            name, case = make(seed, number, world, grammars())
            outcome = asyncio.run(Campaign(server, world, seed=seed).one(number))
            console.print(name, case, sent(case), outcome, server.output, sep="\n", markup=False)
            return 1 if outcome.problems else 0
        console.print(f"{chosen.cases} cases of seed {seed}")
        result = _run(chosen, console, server, world, seed)
        schema, wrong = explore(server.url, chosen.schema, number=seed) if chosen.schema else ({}, [])
        for what in wrong:
            result.add(Problem(f"{seed}:schema", "schemathesis", what, ""))
        if chosen.log is not None:
            chosen.log.write_bytes(server.log.read_bytes())
    for problem in result.problems:
        console.print(f"\n{problem.case} {problem.grammar}: {problem.what}\n  sent: {problem.sent}", markup=False)
    report = _report(chosen, result) | {"schemathesis": dict(sorted(schema.items()))}
    console.print(_summary(result), markup=False)
    if chosen.out is not None:
        before = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
        chosen.out.write_text(json.dumps({**before, f"frontends {chosen.frontends}": report}, indent=1) + "\n")
    return 1 if result.found else 0


def _run(chosen: argparse.Namespace, console: Console, server: Any, world: Any, seed: int) -> Result:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("cases", total=chosen.cases)

        def hold() -> None:
            if not console.is_terminal:
                console.print(f"{campaign.result.cases} done, {campaign.result.found} problems")
            while chosen.hold is not None and chosen.hold.exists():
                time.sleep(1)

        campaign = Campaign(
            server,
            world,
            seed=seed,
            connections=chosen.connections,
            only=chosen.only,
            each=lambda: progress.advance(task),
            between=hold,
        )
        return asyncio.run(campaign.run(chosen.cases, chosen.stretch or max(500, chosen.cases // 40)))


def _report(chosen: argparse.Namespace, result: Result) -> dict[str, Any]:
    return {
        "command": " ".join(
            ["python tests/serving/fuzzing", *(word for word in sys.argv[1:] if word != "--hold" and word != str(chosen.hold))]
        ),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": fingerprint(),
        "versions": {"python": sys.version.partition(" ")[0], **{name: metadata.version(name) for name in _VERSIONS}},
        "seed": result.seed,
        "frontends": chosen.frontends,
        "connections": chosen.connections,
        "cases": result.cases,
        "seconds": round(result.seconds, 1),
        "problems": result.found,
        "examples": [vars(problem) for problem in result.problems],
        "grammars": {name: dict(sorted(counts.items())) for name, counts in sorted(result.counts.items())},
        "held": [vars(one) for one in result.held],
    }


def _summary(result: Result) -> str:
    lines = [f"{result.cases} cases of seed {result.seed} in {result.seconds:.0f} s, {result.found} problems"]
    lines += [
        f"  {name}: {sum(counts.values())}: " + ", ".join(f"{count} {status}" for status, count in counts.most_common())
        for name, counts in sorted(result.counts.items())
    ]
    if result.held:
        first, last = result.held[0], result.held[-1]
        lines.append(
            f"  held after {first.cases} and {last.cases} cases: "
            f"{first.rss_bytes / 2**20:.0f} and {last.rss_bytes / 2**20:.0f} MiB, "
            f"{first.files} and {last.files} files, {first.threads} and {last.threads} threads"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
