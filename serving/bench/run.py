"""The benchmark: each service started by itself, driven by the same load generator, in turn, its answers compared.

Two services are never measured at the same time, and never far apart: every round measures one after the other (the
order alternates), so that whatever else the machine does meets both. The one that waits is stopped (SIGSTOP).
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ...errors import BenchError
from ...runtime.artifact import Artifact, load_artifact
from ...runtime.fingerprint import fingerprint
from ...runtime.plan import Plan
from ...specs import Preprocessing
from .images import ImageSet, choose_images
from .loadgen import LoadRequest, LoadResult
from .notes import answer_notes, count_errors, speed_notes
from .report import plot, result_table, write_aside
from .result import BenchResult, Measurement
from .servers import Contender, Server, machine_seconds, own_seconds, terminate_as_exit
from .subject import only_model, penstock_service, under_load

BASELINE = "baseline"
PACKAGES = ("penstock", "torch", "onnxruntime", "openvino", "numpy", "pillow", "fastapi", "uvicorn", "uvloop", "httptools")


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What to measure. `models` is the model repository; `model` may be left out when it holds one.

    `baseline` is the recipe of the original model (a dict as `migrate` resolves it) or None to measure Penstock alone;
    `preprocessing` is the baseline's, by default the model's own. `images` are files or folders; without any, see
    `choose_images`. Every concurrency is measured `rounds` times for `seconds` each, after `warm_up_seconds`.
    `device` is the baseline's: "cpu", "cuda", or "auto" for the one that the model's plan is for. `protocol` is "http" or
    "grpc", which the baseline does not speak. `processes` of the load generator share the connections.
    `peers` are other services of the same model, measured between the two; those that do not start are left out, with a
    warning.
    """

    models: Path
    out: Path
    model: str | None = None
    images: tuple[Path, ...] = ()
    baseline: Mapping[str, Any] | None = None
    preprocessing: Preprocessing | None = None
    concurrency: tuple[int, ...] = (1, 4, 16)
    rounds: int = 3
    seconds: float = 5.0
    warm_up_seconds: float = 1.0
    start_seconds: float = 300.0
    max_images: int = 256
    k: int = 5
    device: str = "auto"
    protocol: str = "http"
    processes: int = 1
    peers: tuple[Contender, ...] = ()

    def __post_init__(self) -> None:
        if (
            not self.concurrency
            or any(number < 1 for number in self.concurrency)
            or len(set(self.concurrency)) < len(self.concurrency)
        ):
            raise ValueError(f"concurrency must be different positive numbers, got {self.concurrency}")
        for name in ("rounds", "max_images", "k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seconds <= 0 or self.start_seconds <= 0 or self.warm_up_seconds < 0:
            raise ValueError("seconds and start_seconds must be positive, warm_up_seconds not negative")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.protocol not in ("http", "grpc"):
            raise ValueError(f"protocol must be 'http' or 'grpc', got {self.protocol!r}")
        if self.protocol == "grpc" and self.baseline is not None:
            raise ValueError("protocol 'grpc' measures Penstock alone: the baseline service speaks HTTP only")
        if not 1 <= self.processes <= min(self.concurrency):
            raise ValueError(f"processes must be from 1 to the lowest concurrency, got {self.processes}")


def bench(config: BenchConfig, *, console: Console | None = None) -> BenchResult:
    """Measure, print the table, and write bench.json, bench.png and the servers' logs into `config.out`.

    Raises BenchError when a service does not start or ends under load, ArtifactError when the model cannot be read,
    AmbiguousError when `model` is needed. Every process that was started has ended when this returns or raises.
    """
    console = console or Console()
    name = config.model or only_model(config.models)
    artifact = load_artifact(config.models / name)
    if artifact.preprocessing is None:
        raise BenchError(
            f"{name} has no recorded preprocessing, so it cannot be sent images; migrate it with an evaluation transform"
        )
    companion = f"{name}_classify"
    if config.protocol == "grpc" and not (config.models / companion).is_dir():
        raise BenchError(f"over gRPC images go to {companion}, which is not in {config.models}; migrate or compile writes it")
    out = config.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    outputs = artifact.signature.outputs[0].classes
    images = choose_images(
        config.images,
        repository=Path(config.baseline["root"]) if config.baseline is not None else None,
        model=config.models / name,
        synthetic_into=out / "images",
        limit=config.max_images,
    )
    plan = artifact.plan_here()
    device = plan.device if config.device == "auto" else config.device
    contenders = _contenders(config, name, artifact, logs, device)
    with terminate_as_exit(), ExitStack() as stack:
        progress = stack.enter_context(_progress(console))
        run = _Run(config, logs, images, progress)
        servers, left_out = [], []
        for contender in contenders:
            try:
                servers.append(run.start(stack, contender))
            except BenchError as error:
                if contender not in config.peers:
                    raise
                left_out.append(f"{contender.name} is left out: {' '.join(str(error).split())[-500:]}")
        contenders = [server.contender for server in servers]
        facts = {server.contender.name: server.facts() for server in servers}
        answers = {server.contender.name: run.answers(server) for server in servers}
        measurements = run.measure(servers)
    labels = list(artifact.labels.names) if artifact.labels is not None else None
    result = BenchResult(
        model=name,
        contenders=tuple(contender.name for contender in contenders),
        concurrency=config.concurrency,
        rounds=config.rounds,
        measurements=tuple(measurements),
        answers={contender: found.answers for contender, found in answers.items()},
        images={"source": images.source, "synthetic": images.synthetic, "files": [str(path) for path in images.files]},
        accuracy=_accuracy(images.truth(labels, outputs), answers),
        errors=count_errors(answers, measurements),
        plan=_plan(plan),
        environment=_environment(),
        servers=facts,
        settings=_settings(config),
        warnings=(
            *left_out,
            *answer_notes(answers, measurements, synthetic=images.synthetic),
            *speed_notes(measurements, plan, baseline=device if config.baseline is not None else None),
        ),
    )
    write_aside(out / "bench.json", json.dumps(result.to_json(), indent=1, default=str).encode())
    write_aside(out / "bench.png", plot(result))
    console.print(result_table(result))
    console.print(f"Written: {out / 'bench.json'}, {out / 'bench.png'}; server logs in {logs}", highlight=False, soft_wrap=True)
    return result


class _Run:
    """The part of a benchmark that drives processes, with its progress display."""

    def __init__(self, config: BenchConfig, logs: Path, images: ImageSet, progress: Progress) -> None:
        self._config, self._logs, self._images, self._progress = config, logs, images, progress

    def start(self, stack: ExitStack, contender: Contender) -> Server:
        """A ready and stopped server; the stack ends it."""
        task = self._progress.add_task(f"start {contender.name}", total=None)
        server = stack.enter_context(Server(contender, folder=self._logs, timeout_seconds=self._config.start_seconds))
        server.wait_ready()
        server.pause()
        self._progress.update(task, total=1, completed=1)
        return server

    def answers(self, server: Server) -> LoadResult:
        """Every image once. Raises BenchError when none is answered, as nothing could be measured then."""
        task = self._progress.add_task(f"{len(self._images.files)} answers of {server.contender.name}", total=None)
        connections = min(4, max(self._config.concurrency))
        result = self._load(server, LoadRequest(kind="once", connections=connections, **self._target(server)), task)
        if not any(answer is not None for answer in result.answers):
            example = next(iter(result.error_examples.values()), "nothing")
            raise BenchError(
                f"{server.contender.name} answered none of the images; the first answer said: {example}\n{server.tail()}"
            )
        self._progress.update(task, total=1, completed=1)
        return result

    def measure(self, servers: Sequence[Server]) -> list[Measurement]:
        config, measurements = self._config, []
        each = config.warm_up_seconds + config.seconds
        for concurrency in config.concurrency:
            task = self._progress.add_task(f"{concurrency} at a time", total=config.rounds * len(servers) * each)
            for number in range(config.rounds):
                for position, server in enumerate(servers if number % 2 == 0 else list(reversed(servers))):
                    request = LoadRequest(
                        connections=concurrency,
                        processes=config.processes,
                        warm_up_seconds=config.warm_up_seconds,
                        seconds=config.seconds,
                        **self._target(server),
                    )
                    begin, used, machine, own = time.monotonic(), server.cpu_seconds(), machine_seconds(), own_seconds()
                    result = self._load(server, request, task)
                    used = server.cpu_seconds() - used
                    others = machine_seconds() - machine - used - (own_seconds() - own)
                    measurements.append(
                        Measurement(
                            contender=server.contender.name,
                            concurrency=concurrency,
                            round=number,
                            load=result,
                            server_cpu_ms=round(1e3 * used / max(1, result.sent), 3),
                            other_cores=round(max(0.0, others) / (time.monotonic() - begin), 2),
                            memory_bytes=server.memory_bytes(),
                        )
                    )
                    self._progress.update(task, completed=(number * len(servers) + position + 1) * each)
        return measurements

    def _target(self, server: Server) -> dict[str, Any]:
        contender, files = server.contender, tuple(map(str, self._images.files))
        return {"url": server.url, "images": files, "encoding": contender.encoding, "field": contender.field}

    def _load(self, server: Server, request: LoadRequest, task: TaskID) -> LoadResult:
        """Run the load generator against one server, the only one that is not stopped meanwhile."""
        begin, already = time.monotonic(), self._progress.tasks[task].completed

        def tick() -> None:
            done = min(time.monotonic() - begin, request.warm_up_seconds + request.seconds)
            self._progress.update(task, completed=already + done)

        return under_load(server, request, folder=self._logs, tick=tick)


def _contenders(config: BenchConfig, name: str, artifact: Artifact, folder: Path, device: str) -> list[Contender]:
    path = f"/v1/classify/{name}?k={config.k}"
    own_path = path if config.protocol == "http" else f"/{name}_classify?k={config.k}"
    penstock = penstock_service(config.models, own_path, protocol=config.protocol)
    if config.baseline is None:
        return [*config.peers, penstock]
    recipe, preprocessing = folder / "recipe.json", folder / "preprocessing.json"
    recipe.write_text(json.dumps(dict(config.baseline)))
    steps = config.preprocessing or artifact.preprocessing
    assert steps is not None, "checked before"
    preprocessing.write_text(json.dumps(steps.to_json()))
    naive = [
        sys.executable,
        "-m",
        "penstock.serving.bench.baseline",
        "--recipe",
        str(recipe),
        "--preprocessing",
        str(preprocessing),
    ]
    naive += ["--name", name, "--port", "0", "--ready-file", "{ready}", "--device", device]
    if artifact.labels is not None:
        labels = folder / "labels.txt"
        labels.write_text("".join(f"{label}\n" for label in artifact.labels.names))
        naive += ["--labels", str(labels)]
    if artifact.probabilities:
        naive += ["--probabilities"]
    return [Contender(name=BASELINE, command=tuple(naive), path=path), *config.peers, penstock]


def _settings(config: BenchConfig) -> dict[str, Any]:
    settings = asdict(replace(config, baseline=None, preprocessing=None))
    del settings["baseline"], settings["preprocessing"]  # they stand in the logs folder as the baseline got them
    paths = {"models": str(config.models), "out": str(config.out), "images": [str(path) for path in config.images]}
    return {**settings, **paths, "waiting_server": "stopped (SIGSTOP)"}


def _accuracy(truth: Sequence[int] | None, answers: Mapping[str, LoadResult]) -> dict[str, float]:
    if truth is None:
        return {}
    return {
        name: sum(answer == right for answer, right in zip(result.answers, truth, strict=True)) / len(truth)
        for name, result in answers.items()
    }


def _plan(plan: Plan) -> dict[str, Any]:
    winners = {
        str(bucket): {"backend": choice.backend, "precision": choice.precision} for bucket, choice in plan.choices.items()
    }
    return {"portable": plan.portable, "reason": plan.reason, "device": plan.device, "winners": winners}


def _environment() -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "fingerprint": fingerprint(),
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=not console.is_terminal)
