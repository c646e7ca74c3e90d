"""What a user can ask of a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from .passes import PASSES
from .task import read_task

Precision = str
Device = Literal["auto", "cpu", "cuda"]

_PRECISIONS, _DEVICES = ("fp32", "bf16", "fp16", "fp8", "int8"), get_args(Device)
_LARGEST_BUCKET = 4096
_BUCKETS = {"cpu": (1, 2, 4, 8, 16), "cuda": (1, 2, 4, 8, 16, 32, 64, 128)}
_SECONDS = {"cpu": 30.0, "cuda": 240.0}  # on a GPU each good candidate is compiled for up to a minute


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """How a graph is compiled. The defaults measure every lossless candidate and keep the fastest per batch size.

    `precision`: "auto" keeps fp32 unless real images are given to `compile` and the parity gate passes; a name pins it, and
    several, such as "fp32,bf16", leave the choice among them. "int8" always needs real images, for its ranges come from them.
    A training graph computes as eager does under "auto", bit for bit; a name there allows other orders of the same sums
    (channels-last, the optimizer's fused kernel), and "fp32,bf16" also bf16 autocast. Each is kept where it is faster and its
    gradients and losses go as eager's go.
    "fp8" is for wide linear layers on GPUs of compute capability 8.9 or newer.
    `backend`: pins one backend by name ("eager", "onnxruntime", "openvino", "inductor", "tensorrt", "kernels"); None measures
    all that are installed.
    `device`: "auto" is where the module's parameters are.
    `buckets`: ascending batch sizes that the plan is measured for; other sizes use the next larger bucket's choice. None: 1 to
    16 in powers of two, for a GPU to 128, where a graph is compiled ahead or saved, and the sizes that calls bring where it is
    compiled by a call.
    `max_tuning_seconds`: for building and measuring candidates, after eager ran as the reference. On a CPU they are seconds of
    work, so that a busy machine chooses as a quiet one does; four times as many by the clock end it in any case. When they are
    used up, what is left is skipped, and the plan says so. None: 30, for a GPU 240.
    `tolerance`: largest accepted |difference| / largest |reference| for lossless candidates; None calibrates it from the
    model's own eager noise.
    `budget`: most points that a lossy precision may lose: of accuracy where labels are given, else of images that get another
    answer. Real images must show it with 95 % confidence; None asks for an agreement of 99.5 % on the images at hand.
    `threads`: CPU threads of one session; None is the number of physical cores that this process may use.
    `disable_passes`: names of passes that are left out, such as ("fold_batch_norm", "channels_last"). Candidates that are
    nothing without one ("half_precision", "fp8", "int8") are skipped, and the plan says so.
    `task`: what the outputs are, where their shapes do not tell: "multi-label:0.3", "embedding", "single-label,multi-label", or
    "features=embedding" by the output's name; see `base.task`.
    `max_captures`: how many row shapes, dtypes and devices of its inputs a graph stays compiled for; each holds a copy of the
    weights in every backend it uses, and the one longest unused goes first. A training graph keeps twice as many kinds of step.

    Raises ValueError naming the field and what it allows.
    """

    precision: Precision = "auto"
    backend: str | None = None
    device: Device = "auto"
    buckets: tuple[int, ...] | None = None
    max_tuning_seconds: float | None = None
    tolerance: float | None = None
    budget: float | None = None
    threads: int | None = None
    disable_passes: tuple[str, ...] = ()
    task: str = ""
    max_captures: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", _checked_precision(self.precision))
        if self.device not in _DEVICES:
            raise ValueError(f"device must be one of {', '.join(_DEVICES)}; got {self.device!r}")
        if self.backend is not None and (not isinstance(self.backend, str) or not self.backend):
            raise ValueError(f"backend must be None or the name of a backend, got {self.backend!r}")
        if self.buckets is not None:
            object.__setattr__(self, "buckets", _checked_buckets(self.buckets))
        if self.max_tuning_seconds is not None and not (_is_number(self.max_tuning_seconds) and self.max_tuning_seconds > 0):
            raise ValueError(
                f"max_tuning_seconds must be None or a positive number of seconds, got {self.max_tuning_seconds!r}"
            )
        if self.tolerance is not None and not (
            _is_number(self.tolerance) and math.isfinite(self.tolerance) and self.tolerance > 0
        ):
            raise ValueError(f"tolerance must be None or a positive finite number, got {self.tolerance!r}")
        if self.budget is not None and not (_is_number(self.budget) and 0 < self.budget <= 100):
            raise ValueError(f"budget must be None or points of accuracy, more than 0 and up to 100; got {self.budget!r}")
        if self.threads is not None and not (_is_count(self.threads) and self.threads >= 1):
            raise ValueError(f"threads must be None or an integer of at least 1, got {self.threads!r}")
        object.__setattr__(self, "disable_passes", _checked_passes(self.disable_passes))
        if not isinstance(self.task, str):
            raise ValueError(f"task must be a text such as 'multi-label:0.3', got {self.task!r}")
        read_task(self.task)
        if not (_is_count(self.max_captures) and self.max_captures >= 1):
            raise ValueError(f"max_captures must be an integer of at least 1, got {self.max_captures!r}")

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those that are asked for, by name; none under "auto"."""
        return () if self.precision == "auto" else tuple(self.precision.split(","))

    def planned(self, device: str) -> tuple[int, ...]:
        """The buckets, with the default of "cpu" or "cuda" filled in."""
        return _BUCKETS[device] if self.buckets is None else self.buckets

    def seconds(self, device: str) -> float:
        """`max_tuning_seconds`, with the default of "cpu" or "cuda" filled in."""
        return _SECONDS[device] if self.max_tuning_seconds is None else self.max_tuning_seconds


def _checked_precision(given: object) -> str:
    """Names in the order of what they keep, each once."""
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else []
    if names == ["auto"]:
        return "auto"
    if not names or not set(names) <= set(_PRECISIONS):
        raise ValueError(f"precision must be auto, or one or several (fp32,bf16) of {', '.join(_PRECISIONS)}; got {given!r}")
    return ",".join(name for name in _PRECISIONS if name in names)


def _checked_buckets(buckets: object) -> tuple[int, ...]:
    if isinstance(buckets, str | bytes) or not hasattr(buckets, "__iter__"):
        raise ValueError(f"buckets must be a sequence of batch sizes, got {buckets!r}")
    values = tuple(buckets)
    if not values or not all(_is_count(value) and 1 <= value <= _LARGEST_BUCKET for value in values):
        raise ValueError(f"buckets must be integers from 1 to {_LARGEST_BUCKET}, at least one; got {values!r}")
    if list(values) != sorted(set(values)):
        raise ValueError(f"buckets must be ascending and differ, got {values!r}")
    return values


def _checked_passes(names: object) -> tuple[str, ...]:
    if isinstance(names, str | bytes) or not hasattr(names, "__iter__"):
        raise ValueError(f"disable_passes must be a sequence of names of passes, got {names!r}")
    if unknown := [name for name in names if name not in PASSES]:
        raise ValueError(f"disable_passes names {unknown[0]!r}; the passes are {', '.join(PASSES)}")
    return tuple(name for name in PASSES if name in set(names))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
