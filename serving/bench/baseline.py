"""The service people deploy first, as the yardstick: FastAPI on uvicorn, PyTorch eager in fp32, Pillow, one image at a time.

    python -m headrace.serving.bench.baseline SETTINGS.json READY.json

SETTINGS.json holds `recipe` and `preprocessing`, the model's `name`, its `task` with the labels, and the `device`; READY.json
is written once the service listens.

It is written as tutorials write it, and not slower: `model.eval()`, `torch.no_grad()`, uvicorn's defaults (uvloop and
httptools), torch's default threads, the process's default allocator, and an `async def` handler, which measured faster than
a threadpool one. It takes the same request as Headrace's own route, an image as the body, and answers in the same shape, so
that one client drives both.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from PIL import Image, UnidentifiedImageError

from ...errors import SandboxError
from ...migrate.worker.recipe import Recipe, build_model
from ...runtime.base.atomic import write_aside
from ...runtime.base.structure import flatten
from ...runtime.base.task import SINGLE_LABEL, Head, Task
from ...runtime.images.preprocessing import Preprocessor
from ...specs import Preprocessing
from ..protocol.results import classified, embedded


def transform(preprocessing: Preprocessing) -> Callable[[Image.Image], torch.Tensor]:
    """The usual transform: a Pillow image in, float32 [C, H, W] out."""
    shapes = Preprocessor(preprocessing.to_json()["steps"])  # Pillow's own resize, pad and crop
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)

    def apply(image: Image.Image) -> torch.Tensor:
        image = shapes.shape(shapes.load(image), shapes.geometry)
        pixels = np.array(image)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().mul_(preprocessing.scale)
        tensor = tensor.sub_(mean).div_(std)
        return tensor.flip(0) if preprocessing.channels == "BGR" else tensor  # mean and std are per RGB channel

    return apply


def create_app(
    model: Callable[[torch.Tensor], Any],
    preprocessing: Preprocessing,
    *,
    name: str,
    task: Task,
    device: str = "cpu",
) -> FastAPI:
    """The application: `POST /v1/classify/{name}` or `/v1/embed/{name}`, by what the outputs of the model are. `model` is a
    module, or any function of a float32 batch on the device."""
    app = FastAPI()
    only = task.classifying[0] if len(task.classifying) == 1 and task.classifying[0].kind == SINGLE_LABEL else None
    to_tensor = transform(preprocessing)
    if isinstance(model, torch.nn.Module):
        model = model.eval().to(device)

    async def outputs_of(model_name: str, request: Request) -> list[torch.Tensor]:
        if model_name != name:
            raise HTTPException(404, f"unknown model {model_name!r}; this service has {name!r}")
        try:
            image = Image.open(io.BytesIO(await request.body()))
            batch = to_tensor(image).unsqueeze(0).to(device)
        except (UnidentifiedImageError, OSError) as error:
            raise HTTPException(400, f"not an image: {error}") from error
        with torch.no_grad():
            return flatten(model(batch), torch.is_tensor, lambda where, value: None)[0]

    def named(outputs: list[torch.Tensor]) -> dict[str, Any]:
        return {head.output: value.cpu().numpy() for head, value in zip(task.heads, outputs, strict=True)}

    @app.post("/v1/embed/{model_name}")
    async def embed(model_name: str, request: Request) -> dict[str, Any]:
        return {"model": name, "version": "1", **embedded(task, named(await outputs_of(model_name, request)))}

    @app.post("/v1/classify/{model_name}")
    async def classify(model_name: str, request: Request, k: int = 5) -> dict[str, Any]:
        outputs = await outputs_of(model_name, request)
        if only is None:
            return {"model": name, "version": "1", **classified(task, named(outputs), k)}
        scores, labels = outputs[task.primary][0].flatten(), only.labels  # [classes, 1, 1] of a fully convolutional network
        if not only.probabilities:
            scores = torch.softmax(scores, dim=0)
        values, indices = torch.topk(scores, min(k, len(scores)))
        return {
            "model": name,
            "version": "1",
            "predictions": [
                {"label": labels[index] if labels else None, "index": index, "probability": value}
                for index, value in zip(indices.tolist(), values.tolist(), strict=True)
            ],
        }

    return app


def _head(written: dict[str, Any]) -> Head:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in written.items()}
    return Head(**values)


class _Server(uvicorn.Server):
    """Says in a file when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def main(
    arguments: Sequence[str], prepare: Callable[[torch.nn.Module, str], Callable[[torch.Tensor], Any]] | None = None
) -> int:
    """Serve as the file of settings says. `prepare` makes of the model and its device what runs it, or the model does."""
    # Building the model changes the working directory, so paths are made absolute before it.
    settings, ready_file = json.loads(Path(arguments[0]).read_text()), Path(arguments[1]).resolve()
    device = settings["device"] if settings["device"] != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = build_model(Recipe.from_json(settings["recipe"]))
    except SandboxError as error:
        print(f"{error.output}\nbaseline: {error}", file=sys.stderr)  # noqa: T201
        return 1
    app = create_app(
        model if prepare is None else prepare(model, device),
        Preprocessing.from_json(settings["preprocessing"]),
        name=settings["name"],
        task=Task(tuple(_head(head) for head in settings["task"]["heads"])),
        device=device,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def ready() -> None:
        print(f"baseline ready: http://127.0.0.1:{port}/v1/classify/{settings['name']}", flush=True)  # noqa: T201
        facts = {"http": port, "pid": os.getpid(), "device": device, "threads": torch.get_num_threads()}
        write_aside(ready_file, json.dumps(facts).encode())

    # Access logs would only cost the baseline; everything else is uvicorn's default.
    _Server(uvicorn.Config(app, access_log=False, log_level="warning"), ready).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
