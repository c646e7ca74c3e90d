"""What one classification job is asked to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.base.session import default_threads
from ..images.fast_preprocessing import DECODINGS
from .locations import is_remote

__all__ = ["ClassifyConfig"]

MIB = 1 << 20
_MOST_LABELS = 1000  # as the server's /v1/classify
_REMOTE_READERS, _LOCAL_READERS = 32, 4


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """One run of `headrace classify`.

    `source` is a folder, a tar archive, a Parquet file, a list of paths, or the address of one of these in an object store.
    `model` is a model's folder, or a repository that holds one model. `out` is a folder of this machine; one Parquet file per
    shard goes there. Images that lie in folders and lists are cut into shards of `shard_images`.
    `column` names the column of a Parquet file that holds the images. More than `max_errors` broken images end the job; None is
    any number. `batch` rows go through the model at once (None: what warm-up finds to be fastest), in `instances` sessions side
    by side (on each GPU, where its plan is for GPUs) with `threads` CPU threads each. `readers` and `decode_threads` count
    threads. Images of more than `max_image_bytes` or `max_pixels` become errors. `restart` throws away what an earlier job left
    in `out`. Raises ValueError naming the field.
    """

    source: str
    model: Path
    out: Path
    top_k: int = 5
    shard_images: int = 1000
    column: str | None = None
    max_errors: int | None = None
    restart: bool = False

    batch: int | None = None
    instances: int = 1
    threads: int | None = None
    readers: int | None = None
    decode_threads: int | None = None
    decoding: str = "fast"
    max_image_bytes: int = 64 * MIB
    max_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source must name a folder, a file or an address")
        if re.match(r"[a-z][a-z0-9+]*:/", str(self.out)):  # a Path has one slash less
            raise ValueError(f"out must be a folder of this machine, got {self.out}; mount the store, or copy the files there")
        positive = (
            "top_k", "shard_images", "batch", "instances", "threads", "readers", "decode_threads", "max_image_bytes",
            "max_pixels",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.top_k > _MOST_LABELS:
            raise ValueError(f"top_k must be at most {_MOST_LABELS}, got {self.top_k}")
        if self.max_errors is not None and (isinstance(self.max_errors, bool) or self.max_errors < 0):
            raise ValueError(f"max_errors must be a number of images, 0 or more, got {self.max_errors!r}")
        if self.decoding not in DECODINGS:
            raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, got {self.decoding!r}")

    @property
    def reading_threads(self) -> int:
        """Threads that wait for files: many where each is a request to an object store."""
        return self.readers or (_REMOTE_READERS if is_remote(self.source) else _LOCAL_READERS)

    @property
    def decoders(self) -> int:
        """Threads that decode; one per core, since the session does not always use all."""
        return self.decode_threads or max(2, min(32, default_threads()))

    def identity(self) -> dict[str, Any]:
        """The options that decide what the output is: a job is only gone on with under the same ones."""
        names = ("top_k", "shard_images", "column", "decoding", "batch", "max_image_bytes", "max_pixels")
        return {name: getattr(self, name) for name in names}
