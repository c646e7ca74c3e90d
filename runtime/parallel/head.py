"""A head of very many classes, split over ranks: its loss and its best classes, without the scores ever being in one place."""

from __future__ import annotations

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
    axis = _axis(scores)
    if axis is None:
        return functional.cross_entropy(scores, targets)
    assert isinstance(scores, DTensor)
    rows = _rows(scores, axis)
    if not isinstance(targets, DTensor) or targets.placements != rows or targets.ndim != 1 or targets.is_floating_point():
        raise InputError(f"targets must be class numbers [n], a global tensor that is {words(rows)} as the rows of the scores")
    largest = private.moved(scores.detach().amax(1, keepdim=True), rows)
    shifted = scores - largest
    total = convert(shifted.exp().sum(1), rows)
    own = convert((shifted * _chosen(scores, targets, axis)).sum(1), rows)
    return (total.log() - own).mean()


def topk(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`scores.topk(k)` along the classes [n, classes], which may be split: each rank's best are merged; without gradients.

    Values and class numbers [n, k] lie as the rows of the scores. Among equal scores any may come first. Raises InputError
    where there are fewer than k classes.
    """
    if not 1 <= k <= scores.shape[-1]:
        raise InputError(f"k must be between 1 and the {scores.shape[-1]} classes, got {k}")
    axis = _axis(scores)
    if axis is None:
        values, numbers = scores.detach().topk(k)
        return values, numbers
    assert isinstance(scores, DTensor)
    local = private.share(scores)
    values, numbers = local.topk(min(k, local.shape[1]))
    numbers = numbers + _begin(scores, axis)
    missing = k - values.shape[1]  # of a rank that has fewer classes
    values, numbers = (functional.pad(part, (0, missing), value=fill) for part, fill in ((values, -torch.inf), (numbers, -1)))
    width = k * scores.device_mesh.size(axis)
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
            _rows(scores, axis),
        )
        for part in (values, numbers)
    )
    best, places = values.topk(k)
    return best, numbers.gather(1, places)


def _axis(scores: torch.Tensor) -> int | None:
    """The axis of the mesh over which classes are split, None where they are not. Raises InputError for partial sums."""
    if scores.ndim != 2:
        raise InputError(f"scores must be [n, classes], got {tuple(scores.shape)}")
    if not isinstance(scores, DTensor):
        return None
    if any(placement.is_partial() for placement in scores.placements):
        raise InputError(f"scores are {words(scores.placements)}; write parallel.to_global before")
    found = [at for at, placement in enumerate(scores.placements) if placement == Shard(1)]
    if len(found) > 1:
        raise InputError(f"scores are {words(scores.placements)}; classes can be split over one axis of the mesh")
    return found[0] if found else None


def _rows(scores: DTensor, axis: int) -> tuple[Placement, ...]:
    return (*scores.placements[:axis], broadcast, *scores.placements[axis + 1 :])


def _begin(scores: DTensor, axis: int) -> int:
    """This rank's first class; classes are cut as `torch.chunk` cuts."""
    mesh, count = scores.device_mesh, scores.shape[1]
    return int(min(-(-count // mesh.size(axis)) * mesh.get_local_rank(axis), count))


def _chosen(scores: DTensor, targets: DTensor, axis: int) -> DTensor:
    """One at each row's target, zero elsewhere, lying as the scores."""
    local = private.share(scores)
    numbers = torch.arange(local.shape[1], device=local.device) + _begin(scores, axis)
    return private.around((private.share(targets)[:, None] == numbers).to(local.dtype), private.spec_of(scores))
