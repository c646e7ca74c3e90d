"""The benchmark: each service started by itself, driven by the same load generator, in turn, its answers compared.

Two services are never measured at the same time, and never far apart: every round measures one after the other (the
order alternates), so that whatever else the machine does meets both. The one that waits is stopped (SIGSTOP). Every round
starts its services anew: where a process's memory lies, and what it measured of itself at its start, changes its speed by
more than rounds of the same processes differ, so a spread of these would be one that the next run does not keep.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ...errors import BenchError
from ...runtime.artifact.artifact import load_artifact
from ...runtime.artifact.plan import Plan
from ...runtime.base.fingerprint import fingerprint
from ...runtime.base.task import SINGLE_LABEL, Task
from .config import BenchConfig
from .images import ImageSet, choose_images
from .load.answers import LEAST_COSINE
from .load.loadgen import LoadRequest, LoadResult
from .reporting.caveats import TRIES, answer_caveats, count_errors, is_disturbed, speed_caveats
from .reporting.plots import bench_plot
from .reporting.report import bench_report, write_report
from .reporting.result import BenchResult, Measurement
from .servers import Server, Service, machine_seconds, own_seconds, terminate_as_exit
from .services import baseline_service, check_trust, headrace_service, image_path, only_model, under_load

PACKAGES = ("headrace", "torch", "onnxruntime", "openvino", "numpy", "pillow", "fastapi", "uvicorn", "uvloop", "httptools")


def bench(config: BenchConfig, *, console: Console | None = None) -> BenchResult:
    """Measure, print the table, and write bench.json, bench.md, bench.png and the servers' logs into `config.out`.

    Raises what `measure` raises.
    """
    console = console or Console()
    result = measure(config, console=console)
    out = config.out.resolve()
    plot = partial(bench_plot, result)
    write_report(out, "bench", bench_report(result), content=result.to_json(), plot=plot, console=console)
    return result


def measure(config: BenchConfig, *, console: Console, others: Sequence[Service] = (), alone: bool = False) -> BenchResult:
    """Start every service, take its answers, and measure all of them in turn. Only the servers' logs are written.

    `others` serve the same model and are measured between the baseline and Headrace, or with `alone` in Headrace's place; one
    that does not start is left out, with a warning.
    Raises BenchError when a service does not start or ends under load, ArtifactError when the model cannot be read,
    AmbiguousError when `model` is needed, SandboxError for a baseline that nobody trusts. Every process that was started has
    ended when this returns or raises.
    """
    if config.baseline is not None:
        check_trust(config.trust_repository)
    name = config.model or only_model(config.models)
    artifact = load_artifact(config.models / name, trusted=config.trust_repository)
    if artifact.preprocessing is None:
        raise BenchError(
            f"{name} has no recorded preprocessing, so it cannot be sent images; migrate it with an evaluation transform"
        )
    images_path, companion = image_path(config, artifact), f"{name}_classify"
    primary = artifact.task.heads[artifact.task.primary]
    of_classes = primary.kind == SINGLE_LABEL and len(artifact.task.classifying) == 1
    if config.protocol == "grpc" and not of_classes:
        raise BenchError(f"over gRPC the best class is asked for, and {name} answers otherwise; leave --protocol http")
    if config.protocol == "grpc" and not (config.models / companion).is_dir():
        raise BenchError(f"over gRPC images go to {companion}, which is not in {config.models}; migrate or compile writes it")
    out = config.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    outputs = artifact.signature.outputs[artifact.task.primary].classes
    images = choose_images(
        config.images,
        repository=Path(config.baseline["root"]) if config.baseline is not None else None,
        model=config.models / name,
        synthetic_into=out / "images",
        limit=config.max_images,
    )
    plan = artifact.plan_here()
    path = images_path if config.protocol == "http" else f"/{companion}?k={config.k}"
    own = headrace_service(config.models, path, protocol=config.protocol, trusted=config.trust_repository)
    services = [*others] if alone else [*others, own]
    if config.baseline is not None:
        services.insert(0, baseline_service(config, artifact, logs, plan.device))
    with terminate_as_exit(), ExitStack() as stack:
        progress = stack.enter_context(_progress(console))
        run = _Run(config, logs, images, progress)
        servers: list[Server] = []
        left_out: dict[str, str] = {}
        for service in services:
            try:
                servers.append(run.start(stack, service))
            except BenchError as error:
                if service not in others:
                    raise
                left_out[service.name] = _reason(error)
        services = [server.service for server in servers]
        facts = {server.service.name: server.facts() for server in servers}
        answers = {server.service.name: run.answers(server) for server in servers}
        measurements = run.measure(servers)
    labels = list(artifact.labels.names) if artifact.labels is not None else None
    return BenchResult(
        model=name,
        services=tuple(service.name for service in services),
        concurrency=config.concurrency,
        rounds=config.rounds,
        measurements=tuple(measurements),
        answers={service: found.answers for service, found in answers.items()},
        images={"source": images.source, "synthetic": images.synthetic, "files": [str(path) for path in images.files]},
        accuracy=_accuracy(images.truth(labels, outputs) if of_classes else None, answers),
        answered=_answered(artifact.task),
        errors=count_errors(answers, measurements),
        plan=_plan(plan),
        environment=_environment(),
        servers=facts,
        settings=_settings(config),
        warnings=(
            *(f"{name} is left out: {why}" for name, why in left_out.items()),
            *answer_caveats(answers, measurements, synthetic=images.synthetic),
            *speed_caveats(measurements, plan, baseline=config.baseline is not None),
        ),
        left_out=left_out,
    )


class _Run:
    """The part of a benchmark that drives processes, with its progress display."""

    def __init__(self, config: BenchConfig, logs: Path, images: ImageSet, progress: Progress) -> None:
        self._config, self._logs, self._images, self._progress = config, logs, images, progress

    def start(self, stack: ExitStack, service: Service) -> Server:
        """A ready and stopped server; the stack ends it."""
        task = self._progress.add_task(f"start {service.name}", total=None)
        server = stack.enter_context(Server(service, folder=self._logs, timeout_seconds=self._config.start_seconds))
        server.wait_ready()
        server.pause()
        self._progress.update(task, total=1, completed=1)
        return server

    def answers(self, server: Server) -> LoadResult:
        """Every image once. Raises BenchError when none is answered, as nothing could be measured then."""
        task = self._progress.add_task(f"{len(self._images.files)} answers of {server.service.name}", total=None)
        connections = min(4, max(self._config.concurrency))
        result = self._load(server, LoadRequest(kind="once", connections=connections, **self._target(server)), task)
        if not any(answer is not None for answer in result.answers):
            example = next(iter(result.error_examples.values()), "nothing")
            raise BenchError(
                f"{server.service.name} answered none of the images; the first answer said: {example}\n{server.tail()}"
            )
        self._progress.update(task, total=1, completed=1)
        return result

    def measure(self, servers: Sequence[Server]) -> list[Measurement]:
        config, measurements = self._config, []
        each = config.warm_up_seconds + config.seconds
        tasks = {
            concurrency: self._progress.add_task(f"{concurrency} at a time", total=config.rounds * len(servers) * each)
            for concurrency in config.concurrency
        }
        for number in range(config.rounds):
            if number and config.restart:
                self._restart(servers, number)
            for concurrency, task in tasks.items():
                for server in servers if number % 2 == 0 else list(reversed(servers)):
                    measurements.append(self._least_disturbed(server, concurrency, number, task))
                    done = sum(one.concurrency == concurrency for one in measurements)
                    self._progress.update(task, completed=done * each)
        return measurements

    def _least_disturbed(self, server: Server, concurrency: int, number: int, task: TaskID) -> Measurement:
        """The first measurement that other programs hardly disturbed, else the least disturbed of `TRIES`. What chooses is
        their processor time alone, so that no service is favored."""
        found: list[Measurement] = []
        begin = self._progress.tasks[task].completed
        while not found or (is_disturbed(found[-1]) and len(found) < TRIES):
            self._progress.update(task, completed=begin)
            found.append(self._measure_one(server, concurrency, number, task))
        return replace(min(found, key=lambda one: one.other_cores), repeated=len(found) - 1)

    def _measure_one(self, server: Server, concurrency: int, number: int, task: TaskID) -> Measurement:
        request = LoadRequest(
            connections=concurrency,
            processes=self._config.processes,
            warm_up_seconds=self._config.warm_up_seconds,
            seconds=self._config.seconds,
            **self._target(server),
        )
        begin, used, machine, own = time.monotonic(), server.cpu_seconds(), machine_seconds(), own_seconds()
        result = self._load(server, request, task)
        used = server.cpu_seconds() - used
        others = machine_seconds() - machine - used - (own_seconds() - own)
        return Measurement(
            service=server.service.name,
            concurrency=concurrency,
            round=number,
            load=result,
            server_cpu_ms=round(1e3 * used / max(1, result.sent), 3),
            other_cores=round(max(0.0, others) / (time.monotonic() - begin), 2),
            memory_bytes=server.memory_bytes(),
            pss_bytes=server.pss_bytes(),
        )

    def _restart(self, servers: Sequence[Server], number: int) -> None:
        task = self._progress.add_task(f"start all anew, round {number + 1}", total=len(servers))
        for server in servers:
            server.restart()
            server.pause()
            self._progress.advance(task)

    def _target(self, server: Server) -> dict[str, Any]:
        service, files = server.service, tuple(map(str, self._images.files))
        return {"url": server.url, "images": files, "encoding": service.encoding, "field": service.field}

    def _load(self, server: Server, request: LoadRequest, task: TaskID) -> LoadResult:
        """Run the load generator against one server, the only one that is not stopped meanwhile."""
        begin, already = time.monotonic(), self._progress.tasks[task].completed

        def tick() -> None:
            done = min(time.monotonic() - begin, request.warm_up_seconds + request.seconds)
            self._progress.update(task, completed=already + done)

        return under_load(server, request, folder=self._logs, tick=tick)


def _reason(error: BenchError) -> str:
    """What a service that did not start died of: the last exception in its log, of which the error holds the end."""
    exceptions = [line.strip() for line in str(error).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
    return exceptions[-1] if exceptions else " ".join(str(error).split())[-500:]


def _settings(config: BenchConfig) -> dict[str, Any]:
    settings = asdict(replace(config, baseline=None))
    del settings["baseline"]  # it stands in the logs folder as the baseline service got it
    paths = {"models": str(config.models), "out": str(config.out), "images": [str(path) for path in config.images]}
    return {**settings, **paths, "waiting_server": "stopped (SIGSTOP)"}


def _accuracy(truth: Sequence[int] | None, answers: Mapping[str, LoadResult]) -> dict[str, float]:
    if truth is None:
        return {}
    return {
        name: sum(answer == right for answer, right in zip(result.answers, truth, strict=True)) / len(truth)
        for name, result in answers.items()
    }


def _answered(task: Task) -> str:
    """What of the answers is compared."""
    if not task.classifying:
        return f"embedding (a cosine of at least {LEAST_COSINE})"
    if len(task.classifying) > 1:
        return "answer of every head"
    return "top-1 answer" if task.classifying[0].kind == SINGLE_LABEL else "labels above their thresholds"


def _plan(plan: Plan) -> dict[str, Any]:
    winners = {
        str(bucket): {"backend": choice.backend, "precision": choice.precision.name} for bucket, choice in plan.choices.items()
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
