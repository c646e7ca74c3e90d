"""A head of very many classes, split over ranks: its loss and its best classes, without the scores ever being in one place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.nn import functional

from ...errors import InputError
from . import private
from .boxing import convert
from .sbp import broadcast, words


def cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """`functional.cross_entropy(scores, targets)`, the mean over rows, of scores [n, classes] that may be split over classes.

    `targets` [n] lie as the rows of the scores. Only three numbers for each row are exchanged: the largest score, the sum, and
    the target's own. Raises InputError where the targets lie otherwise, or are not class numbers.
    """
    axes = _axes(scores)
    if not axes:
        return functional.cross_entropy(scores, targets)
    assert isinstance(scores, DTensor)
    rows = _rows(scores, axes)
    if not isinstance(targets, DTensor) or targets.placements != rows or targets.ndim != 1 or targets.is_floating_point():
        raise InputError(f"targets must be class numbers [n], a global tensor that is {words(rows)} as the rows of the scores")
    largest = private.moved(scores.detach().amax(1, keepdim=True), rows)
    shifted = scores - largest
    total = convert(shifted.exp().sum(1), rows)
    own = convert((shifted * _chosen(scores, targets, axes)).sum(1), rows)
    return (total.log() - own).mean()


def topk(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`scores.topk(k)` along the classes [n, classes], which may be split: each rank's best are merged; without gradients.

    Values and class numbers [n, k] lie as the rows of the scores. Among equal scores any may come first. Raises InputError
    where there are fewer than k classes.
    """
    if not 1 <= k <= scores.shape[-1]:
        raise InputError(f"k must be between 1 and the {scores.shape[-1]} classes, got {k}")
    axes = _axes(scores)
    if not axes:
        values, numbers = scores.detach().topk(k)
        return values, numbers
    assert isinstance(scores, DTensor)
    local = private.share(scores)
    values, numbers = local.topk(min(k, local.shape[1]))
    numbers = numbers + _begin(scores, axes)
    missing = k - values.shape[1]  # of a rank that has fewer classes
    values, numbers = (functional.pad(part, (0, missing), value=fill) for part, fill in ((values, -torch.inf), (numbers, -1)))
    width = k * math.prod(scores.device_mesh.size(axis) for axis in axes)
    values, numbers = (
        private.moved(
            DTensor.from_local(
                part,
                scores.device_mesh,
                scores.placements,
                run_check=False,
                shape=torch.Size((scores.shape[0], width)),
                stride=(width, 1),
            ),
            _rows(scores, axes),
        )
        for part in (values, numbers)
    )
    best, places = values.topk(k)
    return best, numbers.gather(1, places)


def _axes(scores: torch.Tensor) -> list[int]:
    """The axes of the mesh over which classes are split. Raises InputError for partial sums."""
    if scores.ndim != 2:
        raise InputError(f"scores must be [n, classes], got {tuple(scores.shape)}")
    if not isinstance(scores, DTensor):
        return []
    if any(placement.is_partial() for placement in scores.placements):
        raise InputError(f"scores are {words(scores.placements)}; write parallel.to_global before")
    return [at for at, placement in enumerate(scores.placements) if placement == Shard(1)]


def _rows(scores: DTensor, axes: Sequence[int]) -> tuple[Placement, ...]:
    return tuple(broadcast if at in axes else placement for at, placement in enumerate(scores.placements))


def _begin(scores: DTensor, axes: Sequence[int]) -> int:
    """This rank's first class; classes are cut as `torch.chunk` cuts, over one axis after another."""
    mesh, count, begin = scores.device_mesh, scores.shape[1], 0
    for axis in axes:
        each = -(-count // mesh.size(axis))
        ahead = min(each * mesh.get_local_rank(axis), count)
        begin, count = begin + ahead, min(each, count - ahead)
    return begin


def _chosen(scores: DTensor, targets: DTensor, axes: Sequence[int]) -> DTensor:
    """One at each row's target, zero elsewhere, lying as the scores."""
    local = private.share(scores)
    numbers = torch.arange(local.shape[1], device=local.device) + _begin(scores, axes)
    return private.around((private.share(targets)[:, None] == numbers).to(local.dtype), private.spec_of(scores))
