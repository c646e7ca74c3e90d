"""The services of a benchmark: the original repository's behind plain PyTorch and Headrace's own; and one under load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ...errors import AmbiguousError, BenchError, SandboxError
from ...runtime.artifact.artifact import Artifact, model_names
from ...trust import REMEDY, is_trusted
from ..protocol.results import image_routes
from .config import BenchConfig
from .load.load import LoadRequest, LoadResult
from .servers import Server, Service, run_to_end

BASELINE, HEADRACE = "baseline", "headrace"


def only_model(models: Path) -> str:
    """The name of the model in a repository that holds one. Raises BenchError for none, AmbiguousError for several."""
    names = model_names(models)
    if not names:
        raise BenchError(f"no model in {models}; `headrace migrate REPO --out DIR` writes DIR/models")
    if len(names) > 1:
        raise AmbiguousError(f"{models} holds {len(names)} models", candidates=names, flag="--model")
    return names[0]


def check_trust(asked: bool) -> None:
    """Raise SandboxError unless the original model's code may run: a sandbox would change what is measured."""
    if not is_trusted(asked):
        raise SandboxError(
            f"the original model would run beside Headrace with your rights: {REMEDY}; a model repository alone needs no trust"
        )


def headrace_service(
    models: Path, path: str, *, name: str = HEADRACE, protocol: str = "http", options: Sequence[str] = (), trusted: bool = False
) -> Service:
    """`headrace serve` of a repository on free ports, with more options; `path` is the route that is measured."""
    command = [sys.executable, "-m", "headrace", "serve", str(models.resolve()), "--ready-file", "{ready}"]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *options]
    command += ["--trust-repository"] if trusted else []
    return Service(name=name, command=tuple(command), path=path, protocol=protocol)


def image_path(config: BenchConfig, artifact: Artifact) -> str:
    """The route at which a model answers images. Raises BenchError where it gives neither labels nor embeddings."""
    routes = image_routes(artifact.task)
    if not routes:
        given = ", ".join(f"{head.output} ({head.described})" for head in artifact.task.heads)
        raise BenchError(f"{artifact.name} gives neither labels nor embeddings, so no image is answered: {given}")
    return f"/v1/classify/{artifact.name}?k={config.k}" if "classify" in routes else f"/v1/embed/{artifact.name}"


def baseline_service(config: BenchConfig, artifact: Artifact, folder: Path, device: str) -> Service:
    """The original model behind a plain PyTorch service. `folder` takes the file that says what it serves."""
    assert config.baseline is not None, "there is one"
    assert artifact.preprocessing is not None, "checked before"
    settings = {
        "recipe": dict(config.baseline),
        "preprocessing": artifact.preprocessing.to_json(),
        "name": artifact.name,
        "task": asdict(artifact.task),
        "device": device,
    }
    file = folder / "baseline.json"
    file.write_text(json.dumps(settings))
    command = (sys.executable, "-m", "headrace.serving.bench.baseline", str(file), "{ready}")
    return Service(name=BASELINE, command=command, path=image_path(config, artifact))


def under_load(server: Server, request: LoadRequest, *, folder: Path, tick: Callable[[], None] = lambda: None) -> LoadResult:
    """Run the load generator, in a process of its own, against a stopped server, which runs meanwhile and is stopped again.

    `folder` takes what the two say to each other, and the generator's log. Raises BenchError when either ends before its time.
    """
    source, target = folder / "loadgen.request.json", folder / "loadgen.result.json"
    source.write_text(json.dumps(request.to_json()))
    target.unlink(missing_ok=True)
    limit = request.warm_up_seconds + request.seconds + 2 * request.timeout_seconds
    if request.kind == "once":
        limit = request.timeout_seconds * len(request.images)
    server.resume()
    try:
        command = [sys.executable, "-m", "headrace.serving.bench.load.loadgen", str(source), str(target)]
        run_to_end(command, log=folder / "loadgen.log", timeout_seconds=limit, tick=tick)
        server.check_alive()
    finally:
        server.pause()
    return LoadResult.from_json(json.loads(target.read_text()))
