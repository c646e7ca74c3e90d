"""What `headrace triton write` and `headrace triton run` are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..options import OptionGroup, option


@dataclass(frozen=True, kw_only=True)
class Settings(OptionGroup):
    """What the production variant is for. Without `engine_cache`, TensorRT builds its engines at every start."""

    title = "Options"

    device: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    instances: int = option(1, "Sessions side by side per model; on GPUs, of each GPU.", least=1)
    decoders: int = option(1, "Processes per model that decode images.", least=1)
    timeout_seconds: float = option(30.0, "Deadline in seconds of a request that names none.", name="timeout", least=0.001)
    max_queue: int = option(256, "Requests that may wait, per model, before new ones are rejected.", least=1)
    engine_cache: str | None = option(None, "A folder of the serving machine where TensorRT keeps its engines.", metavar="DIR")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device not in ("cpu", "cuda", "tensorrt"):
            raise ValueError(f"device must be 'cpu', 'cuda' or 'tensorrt', got {self.device!r}")
        if self.engine_cache is not None and self.device != "tensorrt":
            raise ValueError("--engine-cache is TensorRT's; give it with --tensorrt")


@dataclass(frozen=True, kw_only=True)
class RunSettings(OptionGroup):
    """How a real Triton is run. `argument` are tritonserver's own options and come last."""

    title = "Options"

    host: str = option("127.0.0.1", "The address to bind.")
    http_port: int = option(8000, "0 takes a free one.", least=0, most=65535)
    grpc_port: int = option(8001, "0 takes a free one.", least=0, most=65535)
    metrics_port: int = option(8002, "0 takes a free one.", least=0, most=65535)
    start_timeout: float = option(300.0, "Seconds that loading may take.", above=0)
    argument: tuple[str, ...] = option((), "An option of tritonserver's own; may be repeated.")

    exit_timeout: int = 30
    """Seconds that requests which are under way have when it is told to end."""
