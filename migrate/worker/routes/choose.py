"""`python -m headrace.migrate.worker.routes.choose REQUEST.json`: images that an application is to be asked about.

A template is told from chance only by answers that differ. So of many made images those are taken for which the package itself
says different classes, surely and unsurely; where it is sure of all, mixtures of two of them are added, which lie between
classes.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ....errors import HeadraceError
from .package import PackagedModel

CANDIDATES = 160
_MIXED = 48
_QUALITY = 95


def main(arguments: list[str]) -> int:
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    out = Path(request["out"])
    try:
        model = PackagedModel(Path(request["package"]))
        images = chosen(model, request["count"])
    except HeadraceError as error:
        (out / "chosen.json").write_text(json.dumps({"why": str(error)}), encoding="utf-8")
        return 0
    names = [f"photo-{number}.jpg" for number in range(len(images))]
    for name, image in zip(names, images, strict=True):
        (out / name).write_bytes(image)
    (out / "chosen.json").write_text(json.dumps({"images": names, "classes": model.classes}), encoding="utf-8")
    return 0


def chosen(model: PackagedModel, count: int) -> list[bytes]:
    """So many images, of as many classes as can be had."""
    pictures = list(made(CANDIDATES, seed=0))
    scores = model.scores([jpeg(picture) for picture in pictures])
    mixtures = list(mixed(pictures, scores, _MIXED))
    if mixtures:
        scores = np.concatenate([scores, model.scores([jpeg(picture) for picture in mixtures])])
        pictures += mixtures
    return [jpeg(pictures[index]) for index in spread(scores, count)]


def made(count: int, seed: int) -> Iterator[np.ndarray]:
    """Pictures [height, width, 3] of clouds, stripes, spots and noise in all colors, of different sizes."""
    random = np.random.default_rng(seed)
    for number in range(count):
        height, width = (int(side) for side in random.integers(64, 288, 2))
        coarse = random.uniform(0, 255, (*random.integers(1, 9, 2), 3))
        picture = np.asarray(
            Image.fromarray(coarse.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC), np.float64
        )
        kind = number % 4
        if kind == 1:
            waves = (
                np.sin(np.arange(width) * random.uniform(0.02, 0.8))
                if number % 8 == 1
                else np.sin(np.arange(height) * random.uniform(0.02, 0.8))[:, None]
            )
            picture = (
                picture + (waves * 120)[..., None]
                if number % 8 == 1
                else picture + (waves * 120)[..., None] * np.ones((1, width, 1))
            )
        elif kind == 2:
            away = np.hypot(
                np.arange(height)[:, None] - height * random.uniform(0.3, 0.7),
                np.arange(width) - width * random.uniform(0.3, 0.7),
            )
            picture = np.where(
                (away < min(height, width) * random.uniform(0.15, 0.45))[..., None], random.uniform(0, 255, 3), picture
            )
        elif kind == 3:
            picture = picture + random.normal(0, random.uniform(5, 90), picture.shape)
        yield np.clip(picture, 0, 255).astype(np.uint8)


def mixed(pictures: Sequence[np.ndarray], scores: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Mixtures of two pictures of different classes."""
    random, best = np.random.default_rng(1), scores.argmax(1)
    others = [np.flatnonzero(best != label) for label in best]
    fit = [index for index in range(len(pictures)) if len(others[index])]
    for _ in range(count if fit else 0):
        one = int(random.choice(fit))
        first, second = pictures[one], pictures[int(random.choice(others[one]))]
        size = (first.shape[1], first.shape[0])
        alike = np.asarray(Image.fromarray(second).resize(size), np.float64)
        share = random.uniform(0.2, 0.8)
        yield (share * first + (1 - share) * alike).astype(np.uint8)


def spread(scores: np.ndarray, count: int) -> list[int]:
    """Indices of so many rows: of each class in turn, the least and the most certain of it first."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    certain = shifted.max(1) / shifted.sum(1)
    best = scores.argmax(1)
    queues = []
    for label in np.unique(best):
        rising = sorted(np.flatnonzero(best == label), key=lambda index: certain[index])
        ends = [index for pair in zip(rising, reversed(rising), strict=True) for index in pair]
        queues.append(list(dict.fromkeys(int(index) for index in ends)))
    queues.sort(key=len)
    taken: list[int] = []
    while len(taken) < count and any(queues):
        for queue in queues:
            if queue and len(taken) < count:
                taken.append(queue.pop(0))
    return taken


def jpeg(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
