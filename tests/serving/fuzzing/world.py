"""What is served to the fuzzer and what its right answers are: the models of tests/serving/conftest.py, on a server of its
own."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from headrace.runtime.artifact.agreement import probabilities as class_probabilities
from headrace.runtime.base.task import Head
from headrace.runtime.images.preprocessing import ImageError
from headrace.serving.images.fast_preprocessing import make_preprocessor

# Time-outs so short that cases which run into them do not hold everything up, and as little memory as makes leaks show.
LIMITS: dict[str, Any] = {
    "head_timeout_seconds": 5.0,
    "body_timeout_seconds": 5.0,
    "max_body_bytes": 1 << 20,
    "max_decompressed_bytes": 4 << 20,
    "max_pixels": 1_000_000,
    "instances": 2,
    "model_control_mode": "explicit",
    "load_models": ["*"],
}
SHARED_BYTES = 64 * 1024


def _conftest() -> types.ModuleType:
    path = Path(__file__).parents[1] / "conftest.py"
    sys.path.append(str(path.parents[2]))  # where `tests` lies, which a script's own folder does not tell
    specification = importlib.util.spec_from_file_location("serving_conftest", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


support = _conftest()
SIDE, CLASSES, BATCH, LABELS = support.SIDE, support.CLASSES, support.BATCH, support.LABELS
ROW = 3 * SIDE * SIDE


@dataclass(frozen=True, kw_only=True)
class World:
    """What grammars know of the server. `key` is a shared memory object that clients may register, "" where they may not."""

    key: str = ""
    settings: bool = False

    def rows(self, random: Any, count: int) -> np.ndarray:
        """Images that a model may be asked about, float32 [count, 3, SIDE, SIDE]."""
        values = np.frombuffer(random.randbytes(count * ROW), np.uint8)
        return (values.astype(np.float32) / 128 - 1).reshape(count, 3, SIDE, SIDE)

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """What `tiny` says of them, [count, CLASSES]."""
        return rows.reshape(len(rows), -1) @ support.WEIGHTS

    def of_image(self, image: bytes) -> np.ndarray | None:
        """What `tiny` says of an encoded image, [CLASSES]; None for what is no image. Pillow computes it, without shortcuts."""
        try:
            return self.scores(_exact(image)[np.newaxis])[0]
        except ImageError:
            return None
        except Exception:  # noqa: BLE001 - whatever Pillow does over a damaged file, the server must not fail on it
            return None


# Pillow warns of what is odd in files, each of which is odd.
warnings.filterwarnings("ignore", module="PIL")
_exact = make_preprocessor(support.PREPROCESSING.to_json()["steps"], decoding="exact", max_pixels=LIMITS["max_pixels"])


def wrong_scores(found: Sequence[float] | np.ndarray, expected: np.ndarray, tolerance: float = 1e-3) -> str | None:
    """What is wrong with scores."""
    found = np.asarray(found, np.float64).reshape(-1)
    if found.shape != expected.reshape(-1).shape or not np.allclose(
        found, expected.reshape(-1), atol=tolerance, rtol=tolerance
    ):
        return f"the scores are {found[:4]}..., right are {expected.reshape(-1)[:4]}..."
    return None


def wrong_predictions(answer: Any, scores: np.ndarray, count: int, tolerance: float) -> str | None:
    """What is wrong with /v1/classify's answer."""
    expected = class_probabilities(Head(output="y", kind="single-label"), scores)
    predictions = answer["predictions"]
    if answer["model"] not in ("tiny", "tiny_classify") or len(predictions) != min(count, CLASSES):
        return f"model {answer['model']!r} with {len(predictions)} predictions instead of {min(count, CLASSES)}"
    for one in predictions:
        if one["label"] != LABELS[one["index"]] or abs(one["probability"] - expected[one["index"]]) > tolerance:
            return f"{one} where {expected[one['index']]} is right"
    probabilities = [one["probability"] for one in predictions]
    return None if probabilities == sorted(probabilities, reverse=True) else f"not in order: {probabilities}"


def images() -> list[bytes]:
    """Small images of every format that is served and of the ways in which files of it differ."""
    random = np.random.default_rng(11)
    noise = Image.fromarray(random.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    photo = noise.resize((47, 33), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "description"
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("JPEG", "RGB", {"quality": 90}),
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "RGB", {"progressive": True, "subsampling": "4:4:4"}),
        ("JPEG", "RGB", {"exif": exif, "comment": b"comment", "restart_marker_blocks": 2}),
        ("JPEG", "RGB", {"icc_profile": bytes(200), "optimize": True, "dpi": (300, 300)}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {"exif": exif, "dpi": (72, 72)}),
        ("PNG", "P", {"transparency": 3}),
        ("PNG", "1", {}),
        ("PNG", "L", {"transparency": 7}),
        ("PNG", "I;16", {}),
        ("PNG", "LA", {"compress_level": 0}),
        ("WEBP", "RGB", {"quality": 70}),
        ("WEBP", "RGBA", {"lossless": True, "exif": exif}),
        ("BMP", "RGB", {}),
        ("BMP", "P", {}),
        ("BMP", "1", {}),
        ("GIF", "P", {"interlace": 1}),
        ("GIF", "P", {"save_all": True, "append_images": [photo.convert("P").rotate(90)], "duration": 40}),
        ("PNG", "RGB", {"save_all": True, "append_images": [photo.rotate(90)]}),
        ("WEBP", "RGB", {"save_all": True, "append_images": [photo.rotate(90)]}),
    ]
    made = []
    for kind, mode, options in ways:
        data = io.BytesIO()
        image = (
            Image.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257) if mode == "I;16" else photo.convert(mode)
        )
        image.save(data, kind, **options)
        made.append(data.getvalue())
    return made


@contextlib.contextmanager
def serving(folder: Path, *, frontends: int = 0, **changes: Any) -> Iterator[tuple[Any, World]]:
    """A running server of `tiny`, and of `spare`, which may come and go, with what grammars know of it."""
    repository = support.Repository(folder)
    repository.package("tiny")
    repository.package("spare", scale=2.0)
    config = {**LIMITS, "frontends": frontends, **changes}
    key = ""
    if frontends:
        # Memory of the ring that was used once stays used: a small one is used up soon, and the rest shows what leaks.
        config |= {"ring_bytes": 16 << 20}
    else:
        config |= {"shared_memory": True, "allow_settings": True}
        key = f"fuzzing-{os.getpid()}"
        shared = Path("/dev/shm", key)
        shared.write_bytes(bytes(SHARED_BYTES))
    server = support.Server(repository.path, folder, **config)
    try:
        yield server, World(key=key, settings=not frontends)
    finally:
        server.process.terminate()
        try:
            server.process.wait(60)
        finally:
            server.process.kill()
            server.process.wait()
            if key:
                shared.unlink(missing_ok=True)
