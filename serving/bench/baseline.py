"""The service people deploy first, as the yardstick: FastAPI on uvicorn, PyTorch eager in fp32, Pillow, one image at a time.

    python -m headrace.serving.bench.baseline --recipe RECIPE.json --preprocessing PREPROCESSING.json --port 0 --ready-file FILE

It is written as tutorials write it, and not slower: `model.eval()`, `torch.no_grad()`, uvicorn's defaults (uvloop and
httptools), torch's default threads, the process's default allocator, and an `async def` handler, which measured faster than
a threadpool one. `--framework` has another framework run the model, in the same service. It takes the same request as
Headrace's own route, an image as the body, and answers in the same shape, so that one client drives both.
"""

from __future__ import annotations

import argparse
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
from PIL import Image, ImageOps, UnidentifiedImageError

from ...errors import SandboxError
from ...migrate.worker.recipe import Recipe, build_model
from ...runtime.images.preprocessing import opencv_resize
from ...specs import Pad, Preprocessing, Resize
from .config import FRAMEWORKS
from .frameworks import by_hand

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


def transform(preprocessing: Preprocessing) -> Callable[[Image.Image], torch.Tensor]:
    """The usual transform: a Pillow image in, float32 [C, H, W] out."""
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)

    def apply(image: Image.Image) -> torch.Tensor:
        if preprocessing.upright:
            image = ImageOps.exif_transpose(image)
        image = image.convert(preprocessing.mode)
        for step in preprocessing.geometry:
            if isinstance(step, Resize):
                height, width = step.output_size(image.height, image.width)
                if step.library == "opencv":
                    image = Image.fromarray(opencv_resize(np.array(image), height, width, step.interpolation))
                else:
                    image = image.resize((width, height), _FILTERS[step.interpolation])
            elif isinstance(step, Pad):
                height, width = step.output_size(image.height, image.width)
                top, left = step.corner(image.height, image.width)
                canvas = Image.new(image.mode, (width, height), step.fill if len(step.fill) > 1 else step.fill[0])
                canvas.paste(image, (left, top))
                image = canvas
            else:
                top, left = step.corner(image.height, image.width)
                image = image.crop((left, top, left + step.size[1], top + step.size[0]))
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
    labels: Sequence[str] | None = None,
    probabilities: bool = False,
    device: str = "cpu",
) -> FastAPI:
    """The application: `POST /v1/classify/{name}`. `model` is a module, or any function of a float32 batch on the device.

    `probabilities` says that the model's output needs no softmax.
    """
    app = FastAPI()
    to_tensor = transform(preprocessing)
    if isinstance(model, torch.nn.Module):
        model = model.eval().to(device)

    @app.post("/v1/classify/{model_name}")
    async def classify(model_name: str, request: Request, k: int = 5) -> dict[str, Any]:
        if model_name != name:
            raise HTTPException(404, f"unknown model {model_name!r}; this service has {name!r}")
        try:
            image = Image.open(io.BytesIO(await request.body()))
            batch = to_tensor(image).unsqueeze(0).to(device)
        except (UnidentifiedImageError, OSError) as error:
            raise HTTPException(400, f"not an image: {error}") from error
        with torch.no_grad():
            output = model(batch)
        scores = _first(output)[0].flatten()  # [classes, 1, 1] of a fully convolutional network
        if not probabilities:
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


def _first(output: Any) -> torch.Tensor:
    """Models with auxiliary heads return several tensors; the first is the classification."""
    if isinstance(output, torch.Tensor):
        return output
    return _first(next(iter(output.values())) if isinstance(output, dict) else output[0])


class _Server(uvicorn.Server):
    """Says in a file when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace.serving.bench.baseline", description="The naive PyTorch service, for comparison."
    )
    parser.add_argument("--recipe", type=Path, required=True, help="JSON: how the model is built")
    parser.add_argument("--preprocessing", type=Path, required=True, help="JSON: what Preprocessing.to_json wrote")
    parser.add_argument("--name", default="model", help="the model's name in the route")
    parser.add_argument("--labels", type=Path, help="one label per line")
    parser.add_argument("--probabilities", action="store_true", help="the model's output already is probabilities")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--framework", default="eager", choices=["eager", *FRAMEWORKS], help="what runs the model")
    parser.add_argument("--input", default="3,224,224", help="C,H,W of a row, for frameworks that need an example")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--ready-file", type=Path, help="written as JSON once the service listens")
    options = parser.parse_args(arguments)

    preprocessing = Preprocessing.from_json(json.loads(options.preprocessing.read_text()))
    labels = options.labels.read_text().splitlines() if options.labels else None
    # Building the model changes the working directory, so paths are made absolute before it.
    ready_file = options.ready_file.resolve() if options.ready_file else None
    device = options.device if options.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = build_model(Recipe.from_json(json.loads(options.recipe.read_text())))
    except SandboxError as error:
        print(f"{error.output}\nbaseline: {error}", file=sys.stderr)  # noqa: T201
        return 1
    row = [int(side) for side in options.input.split(",")]
    run = model if options.framework == "eager" else by_hand(model, options.framework, row, device)
    app = create_app(run, preprocessing, name=options.name, labels=labels, probabilities=options.probabilities, device=device)

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    port = listener.getsockname()[1]

    def ready() -> None:
        print(f"baseline ready: http://{options.host}:{port}/v1/classify/{options.name}", flush=True)  # noqa: T201
        if ready_file is not None:
            facts = {"http": port, "pid": os.getpid(), "device": device, "threads": torch.get_num_threads()}
            aside = ready_file.with_name(ready_file.name + ".tmp")
            aside.write_text(json.dumps(facts))
            os.replace(aside, ready_file)

    # Access logs would only cost the baseline; everything else is uvicorn's default.
    _Server(uvicorn.Config(app, access_log=False, log_level="warning"), ready).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
