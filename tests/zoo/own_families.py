"""A catalog of tiny modules of our own, one for each way a family can end: what the runner is tested with."""

from __future__ import annotations

import os
import signal
import time

import torch
from catalog import Candidate, NotRun
from torch import nn

__all__ = ["NotRun", "candidate", "families"]


class Convolutions(nn.Module):
    """Empty batch-norm statistics and a zero head, as libraries leave them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 5)
        nn.init.zeros_(self.head.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).flatten(1))


class FixedBatch(Convolutions):
    """Code that keeps the batch size as a Python number: a capture that cannot take another one."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.reshape(2 if images.shape[0] == 2 else -1, *images.shape[1:]))


class Untranslatable(Convolutions):
    """An operator that ONNX does not have."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(super().forward(images))


def families() -> list[str]:
    return ["own/convolutions", "own/crash", "own/fixed_batch", "own/hang", "own/large", "own/memory", "own/untranslatable"]


def candidate(family: str) -> Candidate:
    name = family.partition("/")[2]
    if name == "large":
        raise NotRun("the smallest variant has 200 M parameters")
    if name == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "hang":
        time.sleep(3600)
    if name == "memory":
        held = torch.ones(1 << 28)  # 1 GiB
        time.sleep(3600)
        del held
    torch.manual_seed(0)
    model = {"convolutions": Convolutions, "fixed_batch": FixedBatch, "untranslatable": Untranslatable}[name]()
    return Candidate(name, model.eval(), torch.randn(8, 3, 12, 12))
