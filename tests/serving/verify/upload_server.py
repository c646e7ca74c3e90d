"""A service as people write it for one model: http.server, Pillow, eager torch, JSON. Each of its steps can be done wrong."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from tests.serving.verify.network import LABELS, MEAN, SIDE, STD, scores


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def resized(image: Image.Image) -> Image.Image:
    """The short side to 20 pixels."""
    width, height = image.size
    size = (20, int(20 * height / width)) if width <= height else (int(20 * width / height), 20)
    return image.resize(size, Image.Resampling.BILINEAR)


def cropped(image: Image.Image) -> Image.Image:
    left, top = round((image.width - SIDE) / 2), round((image.height - SIDE) / 2)
    return image.crop((left, top, left + SIDE, top + SIDE))


def normalized(pixels: np.ndarray) -> np.ndarray:
    """[H, W, 3] of 0 to 255 to [3, H, W]."""
    return ((pixels / 255 - np.array(MEAN)) / np.array(STD)).transpose(2, 0, 1).astype(np.float32)


def softmax(values: np.ndarray) -> np.ndarray:
    shifted = np.exp(values - values.max())
    return shifted / shifted.sum()


def top_classes(values: np.ndarray) -> Any:
    """All classes, the likeliest first."""
    order = np.argsort(-values)
    return {"predictions": [{"class": LABELS[index], "probability": float(values[index])} for index in order]}


@dataclass
class Service:
    """The steps from an image to an answer, in their order."""

    open: Callable[[bytes], Image.Image] = opened
    shape: Callable[[Image.Image], Image.Image] = lambda image: cropped(resized(image))
    normalize: Callable[[np.ndarray], np.ndarray] = normalized
    infer: Callable[[np.ndarray], np.ndarray] = lambda row: scores(row[None])[0]
    activate: Callable[[np.ndarray], np.ndarray] = softmax
    answer: Callable[[np.ndarray], Any] = top_classes
    form_field: str = "file"

    def __call__(self, data: bytes) -> Any:
        pixels = np.asarray(self.shape(self.open(data)), np.float64)
        return self.answer(self.activate(self.infer(self.normalize(pixels))))


def file_of_form(kind: str, body: bytes, name: str) -> bytes:
    """The file of a multipart form. Raises KeyError where there is none of that name."""
    for part in body.split(b"--" + kind.partition("boundary=")[2].strip('"').encode())[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        if f'name="{name}"'.encode() in head:
            return data.removesuffix(b"\r\n")
    raise KeyError(name)


@contextlib.contextmanager
def serving(handle: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """An HTTP server in threads of this process for the length of a block; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            handle(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads, block_on_close = True, False

        def handle_error(self, *_: Any) -> None:
            """Clients that no longer wait are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler: BaseHTTPRequestHandler, content: Any, status: int = 200, kind: str = "application/json") -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextlib.contextmanager
def upload_server(service: Callable[[bytes], Any]) -> Iterator[str]:
    """`POST /predict` with an image as the form's file; whatever fails is 500, as it is in most services."""

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path != "/predict":
            reply(handler, {"error": "not found"}, 404)
            return
        try:
            answer = service(
                file_of_form(handler.headers.get("Content-Type", ""), body, getattr(service, "form_field", "file"))
            )
        except Exception as error:  # noqa: BLE001 - as services do
            reply(handler, {"error": repr(error)}, 500)
            return
        reply(handler, answer)

    with serving(handle) as address:
        yield f"{address}/predict"
