"""The model that was planned, for images as they are decoded: uint8 rows, a quarter of the bytes on every way to the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu.bench import Subject
from models import MEAN, STD

if TYPE_CHECKING:
    import torch
    from gpu.bench import Bench

LARGEST_SERVED = 128
"""Requests wait for no larger batch: one takes some milliseconds already."""
_JUDGED = 768


def preprocessing(bench: Bench) -> Any:
    """The short side to 8/7 of the model's, the middle of it, ImageNet's mean and deviation."""
    from headrace.specs import CenterCrop, Preprocessing, Resize

    size = bench.size
    geometry = (Resize(size=size * 8 // 7), CenterCrop(size=(size, size)))
    return Preprocessing(geometry=geometry, mean=MEAN, std=STD)


def levels(rows: torch.Tensor) -> torch.Tensor:
    """uint8 [N, H, W, 3] of normalized [N, 3, H, W]; what is darker or brighter than 8 bits can say is cut off."""
    import torch

    mean, deviation = (torch.tensor(value).reshape(3, 1, 1) for value in (MEAN, STD))
    return ((rows * deviation + mean) * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def of_pixels(bench: Bench, subject: Subject) -> Subject:
    """The same choices for the same model with the arithmetic of its preprocessing inside, held to parity again but not
    measured again. Raises what compiling raises."""
    import torch
    from models import textures

    from headrace.runtime.base.config import GraphConfig
    from headrace.runtime.capture.capture import capture
    from headrace.runtime.lowering.uint8_input import as_rows, with_preprocessing
    from headrace.runtime.tuning.judging_data import JudgingData
    from headrace.runtime.tuning.source import CapturedSource
    from headrace.runtime.tuning.tune import tune

    steps = preprocessing(bench)
    rows, labels = textures(_JUDGED, bench.size, seed=2)
    pixels = levels(rows)
    given = as_rows(pixels, steps)
    with torch.no_grad():
        scores = torch.cat([subject.model(part.to(bench.device)).cpu() for part in given.split(32)])
    source = CapturedSource.of(with_preprocessing(capture(subject.model, given[:2].to(bench.device)), steps))
    choices = {bucket: choice for bucket, choice in subject.plan.choices.items() if bucket <= LARGEST_SERVED}
    known = replace(subject.plan, choices=choices or subject.plan.choices)
    directory = bench.folder / f"{subject.name}-pixels"
    directory.mkdir()
    plan = tune(
        source, GraphConfig(buckets=known.buckets), directory=directory, device=bench.device, keep=known,
        judging=JudgingData((pixels.numpy(),), labels.numpy(), scores=(scores.numpy(),)),
    )  # fmt: skip
    return replace(subject, signature=source.signature, plan=plan, directory=directory)
