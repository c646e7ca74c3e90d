"""A graph that takes images as they are decoded: uint8 [batch, H, W, C] in, the arithmetic of its preprocessing inside.

A row then is a quarter of its size on every way that it goes. With x the pixel, the preprocessing is (x - shift) * gain per
channel, shift = mean / scale and gain = scale / std. It stands before the graph; the pass `fold_preprocessing` merges it into
the first convolution where that is exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.export import Dim

from ...errors import InputError
from ...specs import Preprocessing, Signature, TensorSpec
from ..base.silence import silence
from ..capture.capture import MAX_BATCH, CapturedGraph
from ..capture.programs import runnable


def with_preprocessing(captured: CapturedGraph, preprocessing: Preprocessing) -> CapturedGraph:
    """The graph with the arithmetic of the preprocessing in front; decoding, resizing and cropping stay with the caller.

    Raises InputError when the graph does not take one float image of as many channels.
    """
    _check(captured.signature, preprocessing)
    spec, device = captured.signature.inputs[0], captured.example[0].device
    channels, height, width = spec.row_shape
    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(0, 256, (2, height, width, channels), generator=generator, dtype=torch.uint8).to(device)
    with silence("torch"), torch.no_grad():
        module = _FromPixels(runnable(captured.program), preprocessing, device)
        shapes = ({0: Dim("batch", min=1, max=MAX_BATCH)},)
        program = torch.export.export(module, (pixels,), dynamic_shapes=shapes, strict=False)
    taken = TensorSpec(name=spec.name, dtype="uint8", shape=("batch", height, width, channels))
    return replace(captured, program=program, signature=replace(captured.signature, inputs=(taken,)), example=(pixels,))


def as_rows(pixels: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """What the graph took before: float32 [batch, C, H, W] from uint8 [batch, H, W, C] in the order of the mode.

    Raises InputError for anything else.
    """
    channels = len(preprocessing.mean)
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[-1] != channels:
        raise InputError(
            f"this graph takes uint8 images [batch, height, width, {channels}], got {pixels.dtype} {tuple(pixels.shape)}"
        )
    shift, gain = (value.to(pixels.device) for value in _coefficients(preprocessing))
    rows = pixels.permute(0, 3, 1, 2).double()
    return (((rows.flip(1) if preprocessing.channels == "BGR" else rows) - shift) * gain).float()


def _check(signature: Signature, preprocessing: Preprocessing) -> None:
    channels = len(preprocessing.mean)
    spec = signature.inputs[0]
    if len(signature.inputs) != 1 or spec.dtype != "float32" or len(spec.row_shape) != 3 or spec.row_shape[0] != channels:
        raise InputError(f"the preprocessing gives float32 rows of {channels} channels, the graph takes {signature.inputs}")


def _coefficients(preprocessing: Preprocessing) -> tuple[torch.Tensor, torch.Tensor]:
    """shift and gain [1, C, 1, 1] in float64, in the order in which the graph takes the channels."""
    scale = preprocessing.scale
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (preprocessing.mean, preprocessing.std))
    if preprocessing.channels == "BGR":
        mean, std = mean.flip(0), std.flip(0)
    return (mean / scale).view(1, -1, 1, 1), (scale / std).view(1, -1, 1, 1)


class _FromPixels(torch.nn.Module):  # type: ignore[misc]
    """The preprocessing of pixels, then the graph. The pass `fold_preprocessing` knows the steps by their order."""

    def __init__(self, inner: Any, preprocessing: Preprocessing, device: torch.device) -> None:
        super().__init__()
        self.inner, self.flips = inner, preprocessing.channels == "BGR"
        shift, gain = (value.float().to(device) for value in _coefficients(preprocessing))
        self.register_buffer("shift", shift)
        self.register_buffer("gain", gain)

    def forward(self, pixels: torch.Tensor) -> Any:
        rows = pixels.permute(0, 3, 1, 2).to(torch.float32)
        rows = rows.flip(1) if self.flips else rows
        return self.inner((rows - self.shift) * self.gain)
