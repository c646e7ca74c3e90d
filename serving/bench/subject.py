"""What a benchmark measures: a model of a repository, served by `headrace serve`, under the load generator."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import AmbiguousError, BenchError
from ...runtime.artifact.artifact import model_names
from .load.load import LoadRequest, LoadResult
from .servers import Server, Service, run_to_end

__all__ = ["HEADRACE", "headrace_service", "only_model", "under_load"]

HEADRACE = "headrace"


def only_model(models: Path) -> str:
    """The name of the model in a repository that holds one. Raises BenchError for none, AmbiguousError for several."""
    names = model_names(models)
    if not names:
        raise BenchError(f"no model in {models}; `headrace migrate REPO --out DIR` writes DIR/models")
    if len(names) > 1:
        raise AmbiguousError(f"{models} holds {len(names)} models", candidates=names, flag="--model")
    return names[0]


def headrace_service(
    models: Path, path: str, *, name: str = HEADRACE, protocol: str = "http", options: Sequence[str] = ()
) -> Service:
    """`headrace serve` of a repository on free ports, with more options; `path` is the route that is measured."""
    command = [sys.executable, "-m", "headrace", "serve", str(models.resolve()), "--ready-file", "{ready}"]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *options]
    return Service(name=name, command=tuple(command), path=path, protocol=protocol)


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
