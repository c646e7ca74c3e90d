"""Twice the sustainable load, for as long as asked: what is answered, how fast the rest is told, what memory does.

    python -m tests.benchmarks.serving.soak build/photos/models --seconds 3600 --out docs/reliability

Writes OUT.json and OUT.md. The exit status is 0 when everything held that the table says must hold, else 1.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.errors import BenchError, HeadraceError
from headrace.runtime.artifact.artifact import model_names
from headrace.runtime.base.atomic import write_aside
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.images import choose_images
from headrace.serving.bench.load.histogram import Histogram
from headrace.serving.bench.load.load import LoadResult
from headrace.serving.bench.load.loadgen import run
from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service, only_model

from .page import write_part
from .sustainable import Sweep, find_sustainable, goodput, in_time

__all__ = ["Check", "Slice", "Soak", "checks", "markdown"]

# A minute each, but as many as it takes to see whether memory grows.
_SLICE_SECONDS, _LEAST_SLICES = 60.0, 6
_MEMORY_GROWTH = 1.05


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One stretch of the overload. Latencies are of requests that were answered, from the moment each was due."""

    goodput: float
    answered: int
    rejected: int
    errors: dict[str, int]
    p99_ms: float
    rejected_p99_ms: float
    memory_bytes: int

    @classmethod
    def of(cls, result: LoadResult, limit_seconds: float, memory_bytes: int) -> Slice:
        return cls(
            goodput=goodput(result, limit_seconds),
            answered=result.samples,
            rejected=sum(result.rejected.values()),
            errors=result.errors,
            p99_ms=result.latency_ms.get("p99", math.nan),
            rejected_p99_ms=result.rejected_ms.get("p99", math.nan),
            memory_bytes=memory_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Soak:
    """A whole run: the sweep that found the sustainable rate, and the slices at `rate`, twice that."""

    model: str
    deadline_seconds: float
    sweep: Sweep
    rate: float
    slices: tuple[Slice, ...]
    p99_ms: float
    rejected_p99_ms: float

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "deadline_ms": 1e3 * self.deadline_seconds,
            "sustainable_per_second": round(self.sweep.sustainable, 2),
            "best_goodput_per_second": round(self.sweep.best_goodput, 2),
            "offered_per_second": round(self.rate, 2),
            "p99_ms": self.p99_ms,
            "rejected_p99_ms": self.rejected_p99_ms,
            "checks": [vars(check) for check in checks(self)],
            "slices": [vars(one) for one in self.slices],
            "sweep": [
                {
                    "rate": round(step.rate, 2),
                    "sustained": step.sustained,
                    "goodput": goodput(step.result, self.deadline_seconds),
                }
                for step in self.sweep.steps
            ],
        }


@dataclass(frozen=True)
class Check:
    """One thing that must hold: what, what was found, and whether it does."""

    what: str
    found: str
    holds: bool


def checks(soak: Soak) -> list[Check]:
    """What must hold under twice the sustainable load."""
    median = statistics.median(one.goodput for one in soak.slices)
    best = soak.sweep.best_goodput
    failed = sum(sum(one.errors.values()) for one in soak.slices)
    answered, rejected = (sum(getattr(one, name) for one in soak.slices) for name in ("answered", "rejected"))
    # The first slice still fills buffers and pools; a leak shows in what follows.
    settled = [one.memory_bytes for one in soak.slices[1:]] or [soak.slices[0].memory_bytes]
    growth = settled[-1] / settled[0]
    limit = 1e3 * soak.deadline_seconds
    return [
        Check("goodput within 10 % of the maximum", f"{median:,.1f} of {best:,.1f} requests per second", median >= 0.9 * best),
        Check("no request fails", f"{failed} of {answered + rejected + failed}", failed == 0),
        Check("the excess is rejected", f"{rejected} with 503 or 429", rejected > 0),
        Check("rejections come at once", f"p99 {soak.rejected_p99_ms:.0f} ms", soak.rejected_p99_ms <= limit),
        Check(f"answers come within {limit:g} ms", f"p99 {soak.p99_ms:.0f} ms", soak.p99_ms <= limit),
        Check(
            "memory stays flat after the first slice",
            f"{settled[0] / 2**20:.0f} MiB, then {settled[-1] / 2**20:.0f} MiB",
            growth <= _MEMORY_GROWTH,
        ),
    ]


def markdown(soak: Soak, *, command: str, machine: str, when: str) -> str:
    """The page: how it was measured, and the table."""
    seconds = sum(step.result.seconds for step in soak.sweep.steps[:1]) or 0.0
    lines = [
        "# Reliability under overload",
        "",
        f"`{command}`, {when}, on {machine}. First the rate of Poisson traffic was searched at which 99 % of the requests to "
        f"{soak.model} are answered within {1e3 * soak.deadline_seconds:g} ms, in steps of {seconds:g} s: "
        f"{soak.sweep.sustainable:,.1f} per second. Then twice that came, {soak.rate:,.1f} per second, in {len(soak.slices)} "
        "slices. The load generator ran on the same machine.",
        "",
        "| must hold | found | |",
        "|---|---|---|",
        *(f"| {check.what} | {check.found} | {'holds' if check.holds else '**does not hold**'} |" for check in checks(soak)),
    ]
    return "\n".join(lines) + "\n"


def soak(
    server: Server, model: str, images: Sequence[Path], *, seconds: float, deadline: float, step: float, start: float
) -> Soak:
    """Search from `start` requests per second on, in steps of `step` seconds, then overload a running server for `seconds`.

    Raises BenchError when the server ends under the load.
    """

    def load(rate: float, length: float, seed: int) -> LoadResult:
        request = in_time(
            f"http://127.0.0.1:{server.ready['http']}/v1/classify/{model}",
            tuple(map(str, images)),
            rate=rate,
            deadline=deadline,
            seconds=length,
            warm_up_seconds=min(1.0, length),
            seed=seed,
        )
        result = run(request)
        server.check_alive()
        return result

    sweep = find_sustainable(lambda rate: load(rate, step, 0), limit_seconds=deadline, start=start)
    count = max(_LEAST_SLICES, round(seconds / _SLICE_SECONDS))
    slices, latencies, rejections = [], Histogram(), Histogram()
    for number in range(count):
        result = load(2 * sweep.sustainable, seconds / count, number + 1)
        slices.append(Slice.of(result, deadline, server.memory_bytes()))
        latencies.merge(Histogram.from_json(result.histogram))
        rejections.merge(Histogram.from_json(result.rejected_histogram))
    return Soak(
        model=model,
        deadline_seconds=deadline,
        sweep=sweep,
        rate=2 * sweep.sustainable,
        slices=tuple(slices),
        p99_ms=latencies.percentile_ms(0.99),
        rejected_p99_ms=rejections.percentile_ms(0.99),
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("models", type=Path, help="a model repository")
    parser.add_argument("--model", help="the tensor model in it, where there are several")
    parser.add_argument("--images", type=Path, action="append", default=[], help="image files or folders to send")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to overload it (default 3600)")
    parser.add_argument("--step-seconds", type=float, default=10.0, help="length of each step of the search (default 10)")
    parser.add_argument(
        "--start-rate", type=float, default=8.0, help="requests per second to begin the search with (default 8)"
    )
    parser.add_argument("--deadline-ms", type=float, default=500.0, help="what a request allows (default 500)")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    chosen = parser.parse_args(arguments)
    if min(chosen.seconds, chosen.step_seconds, chosen.start_rate, chosen.deadline_ms) <= 0:
        parser.error("--seconds, --step-seconds, --start-rate and --deadline-ms must be positive")
    try:
        done = _measure(chosen)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = " ".join(["python -m tests.benchmarks.serving.soak", *arguments])
    machine = str(fingerprint().get("cpu", "an unknown processor"))
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    page = markdown(done, command=command, machine=machine, when=when)
    print(page)
    if chosen.out is not None:
        figures = {"command": command, "machine": fingerprint(), "date": when, **done.to_json()}
        write_aside(chosen.out.with_suffix(".json"), json.dumps(figures, indent=1, default=str).encode() + b"\n")
        write_part(chosen.out.with_suffix(".md"), page)
    return 0 if all(check.holds for check in checks(done)) else 1


def _measure(chosen: argparse.Namespace) -> Soak:
    model = chosen.model or only_model(chosen.models)
    if model not in (names := model_names(chosen.models)):
        raise BenchError(f"{chosen.models} holds {', '.join(names) or 'no models'}; choose one with --model")
    with terminate_as_exit(), tempfile.TemporaryDirectory(prefix="headrace-soak-") as name:
        folder = Path(name)
        images = choose_images(
            chosen.images, repository=None, model=chosen.models / model, synthetic_into=folder / "images", limit=256
        )
        service = headrace_service(chosen.models, f"/v1/classify/{model}", trusted=True)
        with Server(service, folder=folder, timeout_seconds=600.0) as server:
            server.wait_ready()
            return soak(
                server,
                model,
                images.files,
                seconds=chosen.seconds,
                deadline=chosen.deadline_ms / 1e3,
                step=chosen.step_seconds,
                start=chosen.start_rate,
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
