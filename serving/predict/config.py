"""What one prediction is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..options import OptionGroup, option

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PredictConfig(OptionGroup):
    """The options of `headrace predict`. Raises ValueError naming the option."""

    title = "Options"

    top_k: int = option(5, "Labels per image.", least=1, most=1000)  # as the server's /v1/classify
    trust_repository: bool = option(False, "Let the model run the compiled code that its package holds.")
    threads: int | None = option(None, "CPU threads of the session.", least=1, unset="as the plan measured")
    decoding: Literal["exact", "fast", "scaled"] = option(
        "fast", "exact: as Pillow; fast: JPEG within 2 of 255; scaled: large JPEGs decoded smaller."
    )
    max_image_bytes: int = option(64 * _MIB, "The most bytes of an image; a larger one becomes an error.", least=1)
    max_pixels: int = option(50_000_000, "The most pixels of an image; one with more becomes an error.", least=1)
    download_seconds: float = option(30.0, "Seconds in which an image must arrive from its address.", above=0)
