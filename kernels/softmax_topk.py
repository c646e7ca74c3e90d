"""Softmax over the classes and the k best of them, in one pass over the scores: what follows a classifier's last layer.

`headrace::softmax_topk(scores [rows, classes], k) -> (probabilities [rows, k] float32, classes [rows, k] int64)`, best first.
Scores are float32, bfloat16 or float16 with any strides; the softmax is computed in float32. float64 gives float64, by the
reference. The order is that of the scores, and of equal scores the lower class comes first, which `torch.topk` leaves open.
NaN is above all numbers, as in `torch.sort`; a row with NaN or +inf, or of -inf alone, has NaN for probabilities, as
`torch.softmax` gives. Raises KernelError where k is not between 0 and the number of classes.

Roofline: every score is read once, and k values of 4 and 8 bytes are written per row. The program takes one row; it turns each
score and its class into one 64-bit integer that sorts as they do, and takes the largest k times.
The order of floats as integers: M. Herf, "Radix Tricks" (2001).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, launch, next_power_of_two, operator, size_of, tl, wide

_MOST_IN_REGISTERS = 8192  # classes of a row; more are read again in every step, from the cache
_MOST_CLASSES = 2**30


def softmax_topk_reference(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same in plain torch, in float32, or float64 for float64."""
    probabilities = torch.softmax(wide(scores), dim=1)
    classes = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k].contiguous()
    return probabilities.gather(1, classes), classes


@jit
def _sortable(scores: tl.tensor, classes: tl.tensor) -> tl.tensor:
    scores = tl.where(scores == 0, 0.0, scores)  # -0.0 and 0.0 are equal
    bits = scores.to(tl.int32, bitcast=True)
    rank = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    rank = tl.where(scores != scores, 0x7FFFFFFF, rank)  # noqa: PLR0124 - NaN
    return (rank.to(tl.int64) << 32) | (0x7FFFFFFF - classes).to(tl.int64)


@jit
def _row(
    scores: tl.tensor, probabilities: tl.tensor, best: tl.tensor, classes: tl.tensor, row_stride: tl.tensor,
    class_stride: tl.tensor, k: tl.constexpr, block: tl.constexpr, blocks: tl.constexpr,
) -> None:  # fmt: skip
    least: tl.constexpr = -9223372036854775807  # below every key
    row = tl.program_id(0).to(tl.int64)
    line = scores + row * row_stride
    lanes = tl.arange(0, block)
    values = tl.load(line + lanes.to(tl.int64) * class_stride, mask=lanes < classes, other=-float("inf")).to(tl.float32)
    keys = tl.where(lanes < classes, _sortable(values, lanes), least)
    highest = tl.max(values, 0)
    for number in range(1, blocks):
        more = number * block + lanes
        values = tl.load(line + more.to(tl.int64) * class_stride, mask=more < classes, other=-float("inf")).to(tl.float32)
        highest = tl.maximum(highest, tl.max(values, 0))
    total = tl.full((), 0.0, tl.float32)
    for number in range(blocks):
        if blocks > 1:
            more = number * block + lanes
            values = tl.load(line + more.to(tl.int64) * class_stride, mask=more < classes, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(values - highest), 0)
    last = tl.full((), 9223372036854775807, tl.int64)  # above every key
    for place in range(k):
        chosen = tl.max(tl.where(keys < last, keys, least), 0)
        for number in range(1, blocks):
            more = number * block + lanes
            values = tl.load(line + more.to(tl.int64) * class_stride, mask=more < classes, other=-float("inf")).to(tl.float32)
            others = tl.where(more < classes, _sortable(values, more), least)
            chosen = tl.maximum(chosen, tl.max(tl.where(others < last, others, least), 0))
        rank = (chosen >> 32).to(tl.int32)
        score = tl.where(rank < 0, rank ^ 0x7FFFFFFF, rank).to(tl.float32, bitcast=True)
        tl.store(probabilities + row * k + place, tl.exp(score - highest) / total)
        tl.store(best + row * k + place, 0x7FFFFFFF - (chosen & 0x7FFFFFFF))
        last = chosen


def _start(out: tuple[Tensor, Tensor], scores: Tensor, k: int) -> None:
    rows, classes = scores.shape
    if k:
        launch(
            _row, rows, scores.device, scores, *out, classes, *scores.stride(), k=k, **_blocks(classes), warps=_warps(classes)
        )


def _empty(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    check(scores.dim() == 2, f"softmax_topk takes [rows, classes], not {scores.dim()} dimensions; flatten the scores")
    check(scores.is_floating_point(), f"softmax_topk takes floats, not {scores.dtype}")
    rows, classes = scores.shape
    check(classes <= _MOST_CLASSES, f"softmax_topk takes at most {_MOST_CLASSES:,} classes")
    check(0 <= k <= classes, f"softmax_topk: there are {classes} classes, so k cannot be {k}")
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    return scores.new_empty((rows, k), dtype=dtype), scores.new_empty((rows, k), dtype=torch.int64)


softmax_topk = operator("softmax_topk", softmax_topk_reference, _empty, _start)


def _blocks(classes: int) -> dict[str, int]:
    block = min(next_power_of_two(classes), _MOST_IN_REGISTERS)
    return {"block": block, "blocks": -(-classes // block)}


def _warps(classes: int) -> int:
    return 8 if classes > 2048 else 4


def _example(device: str) -> tuple[Tensor, int]:
    return torch.randn(3, 11, generator=torch.Generator().manual_seed(0)).to(device), 5


KERNEL = Kernel(
    name="softmax_topk",
    operators={
        "softmax_topk": Operator(
            run=softmax_topk,
            reference=softmax_topk_reference,
            example=_example,
            bytes_moved=lambda scores, k: size_of(scores) + scores.shape[0] * k * (4 + 8),
        )
    },
)
