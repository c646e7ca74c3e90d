"""What a user asks of a training graph, and what it says of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """See `Graph.add_optimizer`."""

    lr_scheduler: Any = None
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    accumulate: int = 1
    grad_scaler: torch.amp.GradScaler | None = None
    checkpoint: tuple[nn.Module, ...] = ()
    update: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.accumulate, int) or isinstance(self.accumulate, bool) or self.accumulate < 1:
            raise ValueError(f"accumulate must be an integer of at least 1, got {self.accumulate!r}")
        for name in ("clip_grad_norm", "clip_grad_value"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be None or positive, got {value!r}")
        if self.lr_scheduler is not None and not hasattr(self.lr_scheduler, "step"):
            raise ValueError(f"lr_scheduler must have a step method, got a {type(self.lr_scheduler).__name__}")
        given = [self.lr_scheduler, self.clip_grad_norm, self.clip_grad_value, self.accumulate if self.accumulate > 1 else None]
        if not self.update and any(value is not None for value in given):
            raise ValueError(
                "with update=False, clipping, accumulation and the schedule are the loop's own; leave out lr_scheduler, "
                "clip_grad_norm, clip_grad_value and accumulate"
            )
        if any(not isinstance(module, nn.Module) for module in self.checkpoint):
            raise ValueError("checkpoint must be modules whose activations are computed again in the backward pass")

    def settings(self) -> dict[str, Any]:
        """What differs from a plain step, for people to read."""
        settings = {
            "lr_scheduler": None if self.lr_scheduler is None else type(self.lr_scheduler).__name__,
            "clip_grad_norm": self.clip_grad_norm,
            "clip_grad_value": self.clip_grad_value,
            "accumulate": self.accumulate if self.accumulate > 1 else None,
            "grad_scaler": None if self.grad_scaler is None else type(self.grad_scaler).__name__,
            "update": None if self.update else "yours",
            "checkpoint": ", ".join(type(module).__name__ for module in self.checkpoint) or None,
        }
        return {name: value for name, value in settings.items() if value is not None}


@dataclass
class StepRecord:
    """How steps of one kind (inputs, phase of accumulation) run: `way` is "eager", "captured" or "inductor".

    `update` says whether the optimizer's update is part of the captured step ("captured") or runs after it ("after"); `why`
    gives the reason for anything less than all. `form` is how a captured step differs from eager ("bf16, channels-last"), empty
    where it does not, and `tried` tells what became of each form. Times are milliseconds, medians of a few steps each; None
    where not timed.
    """

    inputs: tuple[tuple[int, ...], ...]
    way: str = "eager"
    update: str = "after"
    why: str = ""
    eager_ms: float | None = None
    captured_ms: float | None = None
    form: str = ""
    tried: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        times = (
            f", {self.eager_ms:.3g} ms eager, {self.captured_ms:.3g} ms captured" if self.eager_ms and self.captured_ms else ""
        )
        part = " with its update" if self.way == "captured" and self.update == "captured" else ""
        part += f" in {self.form}" if self.way == "captured" and self.form else ""
        return f"step for {list(self.inputs)}: {self.way}{part}{times}{f' ({self.why})' if self.why else ''}"
