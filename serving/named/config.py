"""What `headrace serve` may be asked of a model by its name; a models folder takes none of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..options import OptionGroup, option


@dataclass(frozen=True, kw_only=True)
class NamedModel(OptionGroup):
    """How a model that is no folder of packaged models is built. `precision` is what its plan may compute in."""

    title = "A model by its name"

    checkpoint: Path | None = option(None, "Weights to load instead of the library's own.")
    random_weights: bool = option(False, "Serve weights that are nobody's.")
    name: str | None = option(None, "What the model is served as.", unset="its name in the library")
    input_size: str | None = option(None, "C,H,W, where the model does not tell.", metavar="C,H,W")
    task: str = option("", "What the outputs are, as in multi-label:0.3, where nothing tells.")
    precision: str = option(
        "auto", "What the plan may compute in: auto, or one or several of fp32,bf16,fp16,fp8,int8; int8 needs real images."
    )
    images: Path | None = option(None, "A folder of real images: they judge lossy precisions and set the ranges of int8.")
    cache: Path | None = option(None, "Where the packaged model is kept.", unset="HEADRACE_CACHE, else the user's cache folder")
    no_plan: bool = option(False, "Measure no plan while serving.")
    trust_checkpoint: bool = option(False, "Let checkpoints execute code while they load.")
    trust_remote_code: bool = option(False, "Run the code that a Hugging Face model brings.")

    def arguments(self) -> list[str]:
        """Those that `headrace compile` takes too, as it takes them."""
        given: list[str] = []
        for field in ("checkpoint", "name", "input_size", "task", "precision", "images"):
            if value := getattr(self, field):
                given += [f"--{field.replace('_', '-')}", str(value)]
        for field in ("random_weights", "trust_checkpoint", "trust_remote_code"):
            if getattr(self, field):
                given.append(f"--{field.replace('_', '-')}")
        return given
