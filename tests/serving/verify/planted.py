"""Services of one network with one fault each, and the name that it must be given."""

from __future__ import annotations

import copy
import io
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.nn import functional as F

from tests.serving.verify.network import LABELS, MEAN, SIDE, STD, network, scores
from tests.serving.verify.upload_server import Service, cropped, normalized, opened, resized, softmax


@dataclass(frozen=True)
class Planted:
    """`fault` is what must be said, of which `says` is a part."""

    fault: str
    service: Callable[[], Callable[[bytes], Any]]
    says: str = ""


def _image(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def _of_torch(mode: str) -> Callable[[Image.Image], Image.Image]:
    """Resized as a tensor without antialias, as torchvision did for years."""

    def shape(image: Image.Image) -> Image.Image:
        size = resized(image).size[::-1]
        tensor = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float()
        small = F.interpolate(tensor[None], size=size, mode=mode, align_corners=False, antialias=False)[0]
        return cropped(Image.fromarray(small.clamp(0, 255).round().byte().permute(1, 2, 0).numpy()))

    return shape


def _filtered(how: Image.Resampling) -> Callable[[Image.Image], Image.Image]:
    return lambda image: cropped(image.resize(resized(image).size, how))


def _moved(image: Image.Image) -> Image.Image:
    image = resized(image)
    left, top = max(0, round((image.width - SIDE) / 2) - 1), max(0, round((image.height - SIDE) / 2) - 1)
    return image.crop((left, top, left + SIDE, top + SIDE))


def _letterboxed(image: Image.Image) -> Image.Image:
    ratio = SIDE / max(image.size)
    width, height = (max(1, int(side * ratio)) for side in image.size)
    if image.width >= image.height:
        width, height = SIDE, max(1, int(SIDE * image.height / image.width))
    else:
        width, height = max(1, int(SIDE * image.width / image.height)), SIDE
    canvas = Image.new("RGB", (SIDE, SIDE))
    canvas.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((SIDE - width) // 2, (SIDE - height) // 2))
    return canvas


def _alpha_on_white(data: bytes) -> Image.Image:
    image = _image(data)
    if not image.has_transparency_data:
        return image.convert("RGB")
    canvas = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB")


def _without_alpha(data: bytes) -> Image.Image:
    """np.array of the file as it is, which only fits three channels."""
    image = _image(data)
    if image.mode in ("RGBA", "LA"):
        raise ValueError("operands could not be broadcast together with shapes (16,16,4) (3,)")
    return image.convert("RGB")


def _indices(data: bytes) -> Image.Image:
    image = _image(data)
    return Image.fromarray(np.asarray(image)).convert("RGB") if image.mode == "P" else image.convert("RGB")


def _high_byte(data: bytes) -> Image.Image:
    image = _image(data)
    if image.mode != "I;16":
        return image.convert("RGB")
    return Image.fromarray((np.asarray(image) // 256).astype(np.uint8)).convert("RGB")


def _cmyk_inverted(data: bytes) -> Image.Image:
    image = _image(data)
    return Image.fromarray(255 - np.asarray(image), "CMYK").convert("RGB") if image.mode == "CMYK" else image.convert("RGB")


def _rounded(dtype: torch.dtype) -> Callable[[np.ndarray], np.ndarray]:
    low = copy.deepcopy(network()).to(dtype)

    def infer(row: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return low(torch.from_numpy(row[None]).to(dtype)).float().numpy()[0]

    return infer


def _int8() -> Service:
    """Weights and what they meet in 8 bits, one scale per tensor: not as the judge simulates it."""
    low = copy.deepcopy(network())

    def eight(values: torch.Tensor) -> torch.Tensor:
        scale = values.abs().max() / 127
        return (values / scale).round() * scale

    with torch.no_grad():
        for layer in low:
            if hasattr(layer, "weight"):
                layer.weight.copy_(eight(layer.weight))

    def infer(row: np.ndarray) -> np.ndarray:
        values = torch.from_numpy(row[None])
        with torch.no_grad():
            for layer in low:
                values = layer(eight(values) if hasattr(layer, "weight") else values)
        return values.numpy()[0]

    return Service(infer=infer)


def _dropout() -> Service:
    model, lock = copy.deepcopy(network()), threading.Lock()

    def infer(row: np.ndarray) -> np.ndarray:
        with torch.no_grad(), lock:
            values = model[:5](torch.from_numpy(row[None]))
            return model[5](F.dropout(values, 0.3, training=True)).numpy()[0]

    return Service(infer=infer)


def exchanging() -> Callable[[bytes], Any]:
    """Answers of requests that overlap are given to each other."""
    plain, lock = Service(), threading.Condition()
    waiting: list[list[Any]] = []

    def handle(data: bytes) -> Any:
        answer = plain(data)
        with lock:
            if waiting:
                other = waiting.pop()
                other[1] = answer
                lock.notify_all()
                return other[0]
            mine = [answer, None]
            waiting.append(mine)
            lock.wait_for(lambda: mine[1] is not None, timeout=0.02)
            if mine[1] is None:
                waiting.remove(mine)
                return answer
            return mine[1]

    return handle


def neighbors() -> Callable[[bytes], Any]:
    """Scores that depend on how many requests are under way: a batch norm that was left in training mode does so."""
    plain, lock, running = Service(), threading.Lock(), itertools.count()
    active = [0]

    def handle(data: bytes) -> Any:
        with lock:
            active[0] += 1
        try:
            next(running)
            threading.Event().wait(0.01)
            others = active[0] - 1
            service = replace(plain, infer=lambda row: scores(row[None])[0] * (1 + 0.1 * others))
            return service(data)
        finally:
            with lock:
                active[0] -= 1

    return handle


def _labels(order: list[int]) -> Callable[[np.ndarray], Any]:
    return lambda values: [{"label": LABELS[order[index]], "score": float(values[index])} for index in np.argsort(-values)]


ALPHABETICAL = sorted(range(len(LABELS)), key=LABELS.__getitem__)

FAULTS: dict[str, Planted] = {
    "BGR": Planted("channel-order", lambda: Service(normalize=lambda p: normalized(p[:, :, ::-1])), "BGR"),
    "BGR after normalizing": Planted("channel-order", lambda: Service(normalize=lambda p: normalized(p)[::-1]), "BGR"),
    "bicubic": Planted("resize-filter", lambda: Service(shape=_filtered(Image.Resampling.BICUBIC)), "bicubic"),
    "nearest": Planted("resize-filter", lambda: Service(shape=_filtered(Image.Resampling.NEAREST)), "nearest"),
    "no antialias": Planted("antialias", lambda: Service(shape=_of_torch("bilinear")), "without antialias"),
    "bicubic, no antialias": Planted("antialias", lambda: Service(shape=_of_torch("bicubic")), "bicubic without antialias"),
    "squeezed": Planted("resize-shape", lambda: Service(shape=lambda i: i.resize((SIDE, SIDE), 2)), "squeezed to 16x16"),
    "no margin": Planted("resize-shape", lambda: Service(shape=lambda i: cropped(_short(i, 16))), "resized to 16, then"),
    "letterboxed": Planted("resize-shape", lambda: Service(shape=_letterboxed), "black is added"),
    "crop off by one": Planted("crop-offset", lambda: Service(shape=_moved), "off by 1 rows and 1 columns"),
    "crop at the corner": Planted("crop-offset", lambda: Service(shape=lambda i: resized(i).crop((0, 0, 16, 16))), "top left"),
    "not normalized": Planted("normalization", lambda: Service(normalize=lambda p: _chw(p / 255)), "left out"),
    "mean and std exchanged": Planted(
        "normalization", lambda: Service(normalize=lambda p: _chw((p / 255 - np.array(STD)) / np.array(MEAN))), "exchanged"
    ),
    "ImageNet's statistics": Planted(
        "normalization", lambda: Service(normalize=lambda p: _chw((p / 255 - _IMAGENET[0]) / _IMAGENET[1])), "ImageNet's"
    ),
    "0 to 255": Planted("scale", lambda: Service(normalize=lambda p: _chw((p - np.array(MEAN)) / np.array(STD))), "0 to 255"),
    "divided twice": Planted("scale", lambda: Service(normalize=lambda p: normalized(p / 255)), "divided by 255"),
    "rows for columns": Planted("layout", lambda: Service(normalize=lambda p: normalized(p).swapaxes(1, 2)), "swapped"),
    "reshaped": Planted("layout", lambda: Service(normalize=_reshaped), "instead of transposed"),
    "EXIF applied": Planted("exif", lambda: Service(open=lambda d: ImageOps.exif_transpose(_image(d)).convert("RGB")), "EXIF"),
    "colors to gray": Planted("grayscale", lambda: Service(open=lambda d: opened(d).convert("L").convert("RGB")), "gray"),
    "alpha on white": Planted("alpha", lambda: Service(open=_alpha_on_white), "white"),
    "alpha fails": Planted("refused", lambda: Service(open=_without_alpha), "HTTP 500"),
    "palette indices": Planted("palette", lambda: Service(open=_indices), "indices"),
    "16 bits to 8": Planted("16-bit", lambda: Service(open=_high_byte), "divided by 256"),
    "CMYK inverted": Planted("cmyk", lambda: Service(open=_cmyk_inverted), "inverted"),
    "softmax missing": Planted("softmax", lambda: Service(activate=lambda values: values), "missing"),
    "softmax twice": Planted("softmax", lambda: Service(activate=lambda values: softmax(softmax(values))), "twice"),
    "sigmoid": Planted("softmax", lambda: Service(activate=lambda values: 1 / (1 + np.exp(-values))), "sigmoid"),
    "softmax over the batch": Planted("softmax", lambda: Service(activate=np.ones_like), "over the batch"),
    "labels sorted": Planted("label-order", lambda: Service(answer=_labels(ALPHABETICAL)), "alphabetical"),
    "labels off by one": Planted("label-order", lambda: Service(answer=_labels([1, 2, 3, 4, 5, 6, 0])), "one after it"),
    "fp16": Planted("precision", lambda: Service(infer=_rounded(torch.float16)), "fp16"),
    "bf16": Planted("precision", lambda: Service(infer=_rounded(torch.bfloat16)), "bf16"),
    "int8": Planted("precision", _int8, "int8"),
    "other weights": Planted("model", lambda: Service(infer=lambda row: scores(row[None], network(9))[0]), "other weights"),
    "dropout": Planted("nondeterministic", _dropout, "second time"),
    "constant": Planted("constant", lambda: Service(infer=lambda row: np.arange(7.0)), "same answer"),
    "requests exchanged": Planted("exchanged-rows", exchanging, "exchanged"),
    "depends on load": Planted("load", neighbors, "otherwise than alone"),
}


_IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def _chw(values: np.ndarray) -> np.ndarray:
    return values.transpose(2, 0, 1).astype(np.float32)


def _reshaped(pixels: np.ndarray) -> np.ndarray:
    values = (pixels / 255 - np.array(MEAN)) / np.array(STD)
    return values.reshape(3, SIDE, SIDE).astype(np.float32)


def _short(image: Image.Image, side: int) -> Image.Image:
    width, height = image.size
    size = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    return image.resize(size, Image.Resampling.BILINEAR)
