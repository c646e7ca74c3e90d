"""Two servers that answer without a model, under the settings of `headrace serve`: what HTTP itself costs, and the front end.

    python -m tests.benchmarks.serving.echo bare|front MODELS READY.json

Both take a body at /v1/classify/NAME and answer with its length in the form of a classification. "bare" is an ASGI application
of a few lines; "front" is Headrace's whole front end over a data plane that has its models loaded, and does not run them.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from headrace.serving.config import ServeConfig
from headrace.serving.http.app import create_app
from headrace.serving.http.connection import options
from headrace.serving.http.edge import Edge
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane

Message = MutableMapping[str, Any]


class EchoPlane(DataPlane):
    """A data plane that answers at once."""

    async def classify(
        self, name: str, image: bytes, *, version: str = "", count: int = 5, timeout: float | None = None
    ) -> dict[str, Any]:
        """The length of the image, as the index of its only label."""
        return _answer(name, len(image))


async def bare(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    """The same answer from nothing but ASGI: no limits, no routes, no errors."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = json.dumps(_answer(scope["path"].rpartition("/")[2], size), separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _answer(name: str, size: int) -> dict[str, Any]:
    return {"model": name, "version": "1", "predictions": [{"label": None, "index": size, "probability": 1.0}]}


def main(arguments: Sequence[str]) -> int:
    kind, models, ready = arguments
    config = ServeConfig.of(models=Path(models), instances=1)  # which do not run
    app: Any = bare
    if kind == "front":
        repository = ModelRepository(config)
        repository.load(lambda line: print(line, flush=True))
        app = Edge(create_app(EchoPlane(repository, DecodePool(config.images.decoders, limit=config.max_queue), config)))
    answer(app, config, Path(ready))
    return 0


def answer(app: Any, config: ServeConfig, ready: Path) -> None:
    """Serve an ASGI application on a free port of this machine, which is written into `ready`, until the process is ended."""
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    aside = Path(f"{ready}.tmp")
    aside.write_text(json.dumps({"http": bound.getsockname()[1]}))
    aside.replace(ready)  # it appears whole
    uvloop.run(uvicorn.Server(uvicorn.Config(app, **options(config, None))).serve([bound]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
