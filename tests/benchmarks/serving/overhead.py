"""What serving costs beside decoding and the model, and the front end beside bare HTTP: both pairs in turn, in one run.

    python -m tests.benchmarks.serving.overhead MODELS [--model NAME] [--images DIR] [--out FILE]     (make bench-serving)

The first pair is a loop of decoding and sessions without a server (`bare_loop`) and `headrace serve` under a closed loop of
connections; the second a bare ASGI application and Headrace's front end with no model run (`echo`). Each measurement has all
cores, the load generator included; what waits is stopped or sleeps. A ratio is the median over rounds of served to bare.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.errors import BenchError, HeadraceError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.base.atomic import write_aside
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.images import choose_images
from headrace.serving.bench.load.loadgen import LoadRequest
from headrace.serving.bench.servers import Server, Service, terminate_as_exit
from headrace.serving.bench.services import headrace_service, only_model, under_load

from .rounds import Rounds

ECHO_BYTES = 60_000
GOALS = {"decode and session": 0.85, "echo of 60 kB": 0.75}


@dataclass(frozen=True, kw_only=True)
class OverheadConfig:
    """What to measure. Every service is measured `rounds` times for `seconds`, after `warm_up_seconds` under load.

    Each form of the bare loop is tried for `trial_seconds` first.
    """

    models: Path
    folder: Path
    model: str | None = None
    images: tuple[Path, ...] = ()
    rounds: int = 5
    seconds: float = 4.0
    warm_up_seconds: float = 1.0
    connections: int = 16
    trial_seconds: float = 1.0
    start_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.connections < 1 or self.seconds <= 0 or self.warm_up_seconds < 0:
            raise ValueError("rounds and connections must be at least 1, seconds positive, warm_up_seconds not negative")


def measure(config: OverheadConfig, console: Console) -> dict[str, Any]:
    """Both pairs; raises BenchError when a service fails, or answers anything but what was asked."""
    name = config.model or only_model(config.models)
    config.folder.mkdir(parents=True, exist_ok=True)
    folder = config.models / name
    load_artifact(folder, trusted=True)  # whether it can be read, before anything is started
    chosen = choose_images(config.images, repository=None, model=folder, synthetic_into=config.folder / "images", limit=128)
    images = tuple(str(path) for path in chosen.files)
    body = config.folder / "body.bin"
    body.write_bytes(os.urandom(ECHO_BYTES))
    route = f"/v1/classify/{name}"
    rates: dict[str, dict[str, list[float]]] = {}
    with terminate_as_exit(), ExitStack() as stack:

        def server(service: Service, files: tuple[str, ...]) -> Callable[[], float]:
            started = stack.enter_context(Server(service, folder=config.folder, timeout_seconds=config.start_seconds))
            console.print(f"starting {service.name}")
            started.wait_ready()
            started.pause()
            return lambda: _under_load(config, started, files)

        def echo(kind: str) -> Service:
            command = (sys.executable, "-m", "tests.benchmarks.serving.echo", kind, str(config.models), "{ready}")
            return Service(name=kind, command=command, path=route)

        console.print("starting the bare loop")
        loop = stack.enter_context(_bare_loop(config, folder, images))
        console.print(f"the bare loop runs with {loop.ready}")
        pairs = {
            "decode and session": {
                "bare": lambda: float(loop.measure(config.seconds)["images_per_second"]),
                "served": server(headrace_service(config.models, route, name="served", trusted=True), images),
            },
            "echo of 60 kB": {
                "bare": server(echo("bare"), (str(body),)),
                "served": server(echo("front"), (str(body),)),
            },
        }
        for what, services in pairs.items():
            rates[what] = {kind: [] for kind in services}
            for number in range(config.rounds):
                for kind in services if number % 2 == 0 else reversed(services):
                    rates[what][kind].append(services[kind]())
                console.print(f"{what}: round {number + 1} of {config.rounds}")
    return {
        "command": "make bench-serving",
        "model": name,
        "images": chosen.source,
        "connections": config.connections,
        "seconds": config.seconds,
        "machine": fingerprint(),
        "pairs": {what: _summary(found) | {"goal": GOALS[what]} for what, found in rates.items()},
    }


def table(result: dict[str, Any]) -> Table:
    """The pairs as people read them."""
    shown = Table(title="What serving costs (per second, medians)")
    for column in ("", "bare", "served", "served / bare", "goal"):
        shown.add_column(column, justify="left" if not column else "right")
    for what, found in result["pairs"].items():
        ratio = found["ratio"]
        low, high = found["ratio_least"], found["ratio_most"]
        cells = (
            f"{found['bare']:,.0f}",
            f"{found['served']:,.0f}",
            f"{ratio:.2f} ({low:.2f}-{high:.2f})",
            f"{found['goal']:.2f}",
        )
        shown.add_row(what, *cells)
    return shown


def _bare_loop(config: OverheadConfig, folder: Path, images: Sequence[str]) -> Rounds:
    """The process that decodes and runs without a server."""
    command = [sys.executable, "-m", "tests.benchmarks.serving.bare_loop", str(folder), str(config.trial_seconds), *images]
    return Rounds(command, config.folder / "bare-loop.log", what="the bare loop")


def _under_load(config: OverheadConfig, server: Server, files: tuple[str, ...]) -> float:
    """Answers per second; raises BenchError when one was an error."""
    request = LoadRequest(
        url=server.url,
        images=files,
        connections=config.connections,
        warm_up_seconds=config.warm_up_seconds,
        seconds=config.seconds,
    )
    result = under_load(server, request, folder=config.folder)
    if result.errors:
        example = next(iter(result.error_examples.values()), "nothing")
        raise BenchError(f"{server.service.name} failed requests: {result.errors}; the first said: {example}")
    return result.requests_per_second


def _summary(found: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [served / bare for served, bare in zip(found["served"], found["bare"], strict=True)]
    return {
        **{kind: round(statistics.median(rates), 1) for kind, rates in found.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_least": round(min(ratios), 3),
        "ratio_most": round(max(ratios), 3),
        "rounds": {kind: [round(rate, 1) for rate in rates] for kind, rates in found.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", type=Path, help="a model repository")
    parser.add_argument("--model", help="where there are several")
    parser.add_argument("--images", type=Path, nargs="*", default=(), help="files or folders; by default the model's sample")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--trial-seconds", type=float, default=1.0, help="of each form of the bare loop, to find the fastest")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=Path("build/bench-serving"), help="for logs and scratch files")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    try:
        config = OverheadConfig(
            models=given.models.resolve(), folder=given.folder.resolve(), model=given.model, images=tuple(given.images),
            rounds=given.rounds, seconds=given.seconds, warm_up_seconds=given.warm_up, connections=given.connections,
            trial_seconds=given.trial_seconds,
        )  # fmt: skip
        result = measure(config, console)
    except (HeadraceError, ValueError) as error:
        console.print(f"[red]{error}", style="red")
        return 1
    if given.out is not None:
        write_aside(given.out, (json.dumps(result, indent=1) + "\n").encode())
    console.print(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
