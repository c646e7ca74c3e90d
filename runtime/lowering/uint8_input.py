"""A graph that takes images as they are decoded: uint8 [batch, H, W, C] in, the arithmetic of its preprocessing inside.

A row then is a quarter of its size on every way that it goes. With x the pixel, the preprocessing is (x - shift) * gain per
channel, shift = mean / scale and gain = scale / std. Where the input goes into one convolution, gain (and the order of
channels) is multiplied into its weights, which is exact with zero padding too, because zero stays zero. shift goes into its
bias, but only without padding: a zero in the padding stands for the mean colour, not for a black pixel. What cannot be merged
becomes a subtraction and a product before the graph, which every backend fuses with the conversion to floats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.export import Dim

from ...errors import CaptureError, InputError, Obstacle
from ...specs import Preprocessing, Signature, TensorSpec
from ..base.numerics import largest_difference
from ..base.silence import quiet
from ..capture.capture import MAX_BATCH, CapturedGraph
from ..capture.programs import in_float64, runnable
from ..capture.rewrite import ProgramEditor

_aten = torch.ops.aten
_EXACT = 1e-9
_ROWS = 3


def fold_preprocessing(captured: CapturedGraph, preprocessing: Preprocessing) -> CapturedGraph:
    """The graph with the arithmetic of the preprocessing in front; decoding, resizing and cropping stay with the caller.

    Proved in float64 against preprocessing first and the graph after it. Raises InputError when the graph does not take one
    float image of as many channels, CaptureError when the result differs.
    """
    _check(captured.signature, preprocessing)
    difference = _difference(captured, preprocessing)
    if not difference <= _EXACT:
        message = f"preprocessing inside the graph differs by {difference:.1e} of its outputs' range in float64"
        raise CaptureError("the preprocessing cannot be folded in", [Obstacle("PG111", message)])
    spec = captured.signature.inputs[0]
    channels, height, width = spec.row_shape
    pixels = _pixels(captured, 2)
    with quiet("torch"), torch.no_grad():
        module = _from_pixels(captured, preprocessing, torch.float32)
        shapes = ({0: Dim("batch", min=1, max=MAX_BATCH)},)
        program = torch.export.export(module, (pixels,), dynamic_shapes=shapes, strict=False)
    taken = TensorSpec(name=spec.name, dtype="uint8", shape=("batch", height, width, channels))
    return replace(
        captured,
        program=program,
        signature=replace(captured.signature, inputs=(taken,)),
        example=(pixels,),
        passes=(*captured.passes, "fold_preprocessing"),
    )


def as_rows(pixels: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """What the graph took before: float32 [batch, C, H, W] from uint8 [batch, H, W, C] in the order of the mode.

    Raises InputError for anything else.
    """
    channels = len(preprocessing.mean)
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[-1] != channels:
        raise InputError(
            f"this graph takes uint8 images [batch, height, width, {channels}], got {pixels.dtype} {tuple(pixels.shape)}"
        )
    shift, gain = _coefficients(preprocessing, torch.float64)
    rows = _channels_first(pixels, preprocessing).double()
    return ((rows - shift.to(rows.device)) * gain.to(rows.device)).float()


def _check(signature: Signature, preprocessing: Preprocessing) -> None:
    channels = len(preprocessing.mean)
    spec = signature.inputs[0]
    if len(signature.inputs) != 1 or spec.dtype != "float32" or len(spec.row_shape) != 3 or spec.row_shape[0] != channels:
        raise InputError(f"the preprocessing gives float32 rows of {channels} channels, the graph takes {signature.inputs}")


def _coefficients(preprocessing: Preprocessing, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """shift and gain [1, C, 1, 1], in the order in which the graph takes the channels."""
    scale = preprocessing.scale
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (preprocessing.mean, preprocessing.std))
    if preprocessing.channels == "BGR":
        mean, std = mean.flip(0), std.flip(0)
    return (mean / scale).view(1, -1, 1, 1).to(dtype), (scale / std).view(1, -1, 1, 1).to(dtype)


def _channels_first(pixels: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    rows = pixels.permute(0, 3, 1, 2)
    return rows.flip(1) if preprocessing.channels == "BGR" else rows


def _merged(captured: CapturedGraph, preprocessing: Preprocessing) -> tuple[CapturedGraph, bool, bool]:
    """The graph with what its first convolution could take, and whether that was the gain with the order, and the shift."""
    editor = ProgramEditor(captured.program)
    inputs = set(captured.program.graph_signature.user_inputs)
    (image,) = (node for node in editor.graph.nodes if node.op == "placeholder" and node.name in inputs)
    first = next(iter(image.users)) if len(image.users) == 1 else None
    if first is None or first.target is not _aten.conv2d.default or first.args[0] is not image or first.kwargs:
        return captured, False, False
    given: list[Any] = [*first.args, None, None, None, None][:7]
    weight, bias = editor.tensor(given[1]), editor.tensor(given[2])
    padding = given[4] or [0]
    groups = first.args[6] if len(first.args) > 6 else 1
    if weight is None or (given[2] is not None and bias is None) or groups != 1:
        return captured, False, False
    shift, gain = (value.to(weight.device) for value in _coefficients(preprocessing, torch.float64))
    scaled = weight.double() * gain
    unpadded = not any(padding)
    new_bias = None if bias is None else bias.double()
    if unpadded:
        offset = -(scaled * shift).sum((1, 2, 3))
        new_bias = offset if new_bias is None else new_bias + offset
    if preprocessing.channels == "BGR":
        scaled = scaled.flip(1)
    arguments = list(first.args)
    arguments[1] = editor.add_parameter("pixel_weight", scaled.to(weight.dtype).contiguous())
    if new_bias is not None and unpadded:
        arguments[2:3] = [editor.add_parameter("pixel_bias", new_bias.to(weight.dtype))]
    first.args = tuple(arguments)
    return replace(captured, program=editor.finish()), True, unpadded


class _FromPixels(torch.nn.Module):  # type: ignore[misc]
    """The conversion of pixels and whatever could not be merged, before the graph."""

    def __init__(self, inner: Any, dtype: torch.dtype, *, flips: bool, shift: Any, gain: Any) -> None:
        super().__init__()
        self.inner, self.dtype, self.flips = inner, dtype, flips
        self.register_buffer("shift", shift)
        self.register_buffer("gain", gain)

    def forward(self, pixels: torch.Tensor) -> Any:
        rows = pixels.permute(0, 3, 1, 2).to(self.dtype)
        rows = rows.flip(1) if self.flips else rows
        rows = rows if self.shift is None else rows - self.shift
        rows = rows if self.gain is None else rows * self.gain
        return self.inner(rows)


def _from_pixels(captured: CapturedGraph, preprocessing: Preprocessing, dtype: torch.dtype) -> _FromPixels:
    graph, has_gain, has_shift = _merged(captured, preprocessing)
    flips = preprocessing.channels == "BGR" and not has_gain
    # Where the weights have taken the order of the channels too, pixels stay in that of the decoded image.
    ordered = replace(preprocessing, channels="RGB") if has_gain and preprocessing.channels == "BGR" else preprocessing
    shift, gain = (value.to(captured.example[0].device) for value in _coefficients(ordered, dtype))
    inner = runnable(graph.program)
    return _FromPixels(inner, dtype, flips=flips, shift=None if has_shift else shift, gain=None if has_gain else gain)


def _pixels(captured: CapturedGraph, rows: int) -> torch.Tensor:
    channels, height, width = captured.signature.inputs[0].row_shape
    generator = torch.Generator().manual_seed(rows)
    pixels = torch.randint(0, 256, (rows, height, width, channels), generator=generator, dtype=torch.uint8)
    return pixels.to(captured.example[0].device)


def _difference(captured: CapturedGraph, preprocessing: Preprocessing) -> float:
    """Between preprocessing first and preprocessing inside, all in float64, as a share of the outputs' range."""
    pixels = _pixels(captured, _ROWS)
    exact = replace(captured, program=in_float64(captured.program))
    shift, gain = (value.to(pixels.device) for value in _coefficients(preprocessing, torch.float64))
    rows = (_channels_first(pixels, preprocessing).double() - shift) * gain
    with torch.no_grad():
        before = runnable(exact.program)(rows)
        after = _from_pixels(exact, preprocessing, torch.float64)(pixels)
    return max(largest_difference(a, b) for a, b in zip(before, after, strict=True))
