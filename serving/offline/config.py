"""What one classification job is asked to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...runtime.base.session import default_threads
from ..options import OptionGroup, option
from .locations import is_remote

MIB = 1 << 20
_REMOTE_READERS, _LOCAL_READERS = 32, 4


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(OptionGroup):
    """One run of `headrace classify`.

    `source` is a folder, a tar archive, a Parquet file, a list of paths, or the address of one of these in an object store.
    `model` is a model's folder, or a repository that holds one model. `out` is a folder of this machine; one Parquet file per
    shard goes there. Raises ValueError naming the option.
    """

    title = "Options"

    source: str
    model: Path
    out: Path
    top_k: int = option(5, "Labels per image.", least=1, most=1000)  # as the server's /v1/classify
    shard_images: int = option(1000, "Images per output file, where the source does not say.", least=1)
    column: str | None = option(None, "The column of a Parquet file that holds images or their paths.")
    max_errors: int | None = option(None, "Stop when more images than this are broken.", least=0)
    trust_repository: bool = option(False, "Let the model run the compiled code that its package holds.")
    restart: bool = option(False, "Throw away what an earlier job wrote to --out.")

    batch: int | None = option(None, "Images at once through the model.", least=1, unset="what is fastest")
    instances: int = option(1, "Sessions of the model side by side; on each GPU, where it runs on GPUs.", least=1)
    threads: int | None = option(None, "CPU threads of each session.", least=1, unset="as the plan measured")
    readers: int | None = option(None, "Threads that read.", least=1, unset="4, 32 from an object store")
    decode_threads: int | None = option(None, "Threads that decode.", least=1, unset="one per core")
    decoding: Literal["exact", "fast", "scaled"] = option(
        "fast", "exact: as Pillow; fast: JPEG within 2 of 255; scaled: large JPEGs decoded smaller."
    )
    max_image_bytes: int = option(64 * MIB, "The most bytes of an image; a larger one becomes an error.", least=1)
    max_pixels: int = option(50_000_000, "The most pixels of an image; one with more becomes an error.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source:
            raise ValueError("SOURCE must name a folder, a file or an address")
        if re.match(r"[a-z][a-z0-9+]*:/", str(self.out)):  # a Path has one slash less
            raise ValueError(f"--out must be a folder of this machine, got {self.out}; mount the store, or copy the files")

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
