"""Measures the stages of a server and the server itself in turn, so that a simulation from the one can be held to the other.

Every round measures decoding and batches (`probe`), what handling a request costs (`hollow`), then the server in closed loops
and under Poisson traffic, at twice what it can do among others. All of it shares one machine, the load generator too, and
what waits is stopped or sleeps.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.errors import BenchError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.bench.images import choose_images
from headrace.serving.bench.load.load import LoadRequest, LoadResult
from headrace.serving.bench.servers import Server, Service, terminate_as_exit
from headrace.serving.bench.services import headrace_service, only_model, under_load

from ..serving.rounds import Rounds
from ..serving.sustainable import SERVER_SHARE, in_time
from .stages import FORMAT
from .summary import Found, served_of, server_profile, stages_of

__all__ = ["MeasureConfig", "measure"]

# Of the most requests per second in closed loops: what a server may be given, and an overload.
LOADS = (0.6, 2.0)


@dataclass(frozen=True, kw_only=True)
class MeasureConfig:
    """What to measure and how long: in each of `rounds`, `stage_seconds` of stages and `seconds` of each kind of traffic.

    `deadline` is what a request of the Poisson traffic allows, in seconds.
    """

    models: Path
    model: str | None = None
    images: tuple[Path, ...] = ()
    connections: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    rounds: int = 3
    seconds: float = 4.0
    stage_seconds: float = 14.0
    deadline: float = 0.5
    start_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or min(self.seconds, self.stage_seconds, self.deadline) <= 0 or not self.connections:
            raise ValueError("rounds must be at least 1, seconds, stage_seconds and deadline positive, connections some")


def measure(config: MeasureConfig, *, command: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """The content of docs/stages.json. Raises BenchError when a part fails, or the server an answer."""
    name = config.model or only_model(config.models)
    load_artifact(config.models / name, trusted=True)  # whether it can be read, before anything is started
    with terminate_as_exit(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-stages-")))
        chosen = choose_images(
            config.images, repository=None, model=config.models / name, synthetic_into=folder / "images", limit=128
        )
        files = tuple(str(path) for path in chosen.files)
        progress("starting the stages, the hollow server and the server")
        probe = stack.enter_context(_probe(config.models / name, files, folder / "probe.log"))
        route = f"/v1/classify/{name}"
        hollow_command = (sys.executable, "-m", "tests.benchmarks.scale.hollow", str(config.models.resolve()), "{ready}")
        hollow, server = (
            stack.enter_context(Server(service, folder=folder, timeout_seconds=config.start_seconds))
            for service in (
                Service(name="hollow", command=hollow_command, path=route),
                headrace_service(config.models, route, trusted=True),
            )
        )
        for one in (hollow, server):
            one.wait_ready()
            one.pause()
        instances, profile = server_profile(server.log.read_text(errors="replace"), name)
        found = Found()
        for number in range(config.rounds):
            progress(f"round {number + 1} of {config.rounds}: the stages")
            found.probed.append(probe.measure(config.stage_seconds))
            for connections in (1, 8):
                request = LoadRequest(
                    url=hollow.url, images=files, connections=connections, seconds=config.seconds / 2, warm_up_seconds=0.5
                )
                found.hollow.append(_loaded(hollow, request, folder))
            progress(f"round {number + 1} of {config.rounds}: the server")
            _serve(config, server, files, folder, found, seed=number)
        facts = probe.ready
    images = [Path(file).stat().st_size for file in files]
    stages = stages_of(found) | {key: facts[key] for key in ("decoders", "max_delay_ms", "max_queue")}
    return {
        "format": FORMAT,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": fingerprint(),
        "model": name,
        "images": chosen.source,
        "image_bytes": round(statistics.fmean(images)),
        "rounds": config.rounds,
        "seconds": config.seconds,
        "stages": stages | {"instances": instances, "profile_ms": profile},
        "served": served_of(found, config.deadline, SERVER_SHARE),
    }


def _serve(config: MeasureConfig, server: Server, files: tuple[str, ...], folder: Path, found: Found, *, seed: int) -> None:
    """Every kind of traffic once. The rates of the first round are those of all."""
    for connections in config.connections:
        request = LoadRequest(url=server.url, images=files, connections=connections, seconds=config.seconds)
        found.served.setdefault(f"closed {connections}", []).append(_loaded(server, request, folder))
    firsts = [runs[0][0].requests_per_second for kind, runs in found.served.items() if kind.startswith("closed")]
    for share in LOADS:
        rate = round(share * max(firsts), 1)
        request = in_time(server.url, files, rate=rate, deadline=config.deadline, seconds=2 * config.seconds, seed=seed)
        found.served.setdefault(f"open {rate}", []).append(_loaded(server, request, folder))


def _loaded(server: Server, request: LoadRequest, folder: Path) -> tuple[LoadResult, float]:
    """What the load generator saw, and the server's processor seconds per request."""
    before = server.cpu_seconds()
    result = under_load(server, request, folder=folder)
    used = server.cpu_seconds() - before
    if result.errors:
        example = next(iter(result.error_examples.values()), "nothing")
        raise BenchError(f"{server.service.name} failed requests: {result.errors}; the first said: {example}")
    if not result.samples:
        raise BenchError(f"{server.service.name} answered nothing in {request.seconds:g} s; measure longer with --seconds")
    return result, used / max(1, result.sent)


def _probe(folder: Path, files: Sequence[str], log: Path) -> Rounds:
    """The process that measures stages."""
    command = [sys.executable, "-m", "tests.benchmarks.scale.probe", str(folder.resolve()), *files]
    return Rounds(command, log, what="measuring the stages")
