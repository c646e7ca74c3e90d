"""Conversions of global tensors, each written by the user, and tied: the gradient comes back as the value went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard, distribute_tensor

from ...errors import InputError, PlacementError
from . import private
from .sbp import Sbp, broadcast, placements_of, words
from .shares import own_memory


def to_global(
    value: torch.Tensor, placement: DeviceMesh | None = None, sbp: Sbp = broadcast, *, shares: bool = False
) -> DTensor:
    """The value as a global tensor with that sbp on the mesh; a global tensor is converted, with the collective it takes.

    A plain tensor is the whole value, as one device holds it: rank 0's is taken, and each rank keeps its part. With
    `shares` it is this rank's part already, as one that it loaded itself, and nothing is moved.
    The gradient of a conversion is converted back: it comes to the source split as that is, and whole where the source is
    broadcast or a partial sum. Converting to the sbp that a value has moves nothing, and sums a gradient that is a partial sum.
    Raises InputError for a plain tensor without a placement or with a history (which stays on its rank), and for
    partial_sum, which only computations make; PlacementError for another mesh.
    """
    if isinstance(value, DTensor):
        return _converted(value, placement, sbp)
    if placement is None:
        raise InputError("a plain tensor needs a placement to become global: to_global(value, placement, sbp)")
    placements = placements_of(sbp, placement.ndim)
    # A rank may well hold its part of a sum.
    _check([each for each in placements if not (shares and each.is_partial())], value.ndim, tuple(value.shape))
    if shares:
        return DTensor.from_local(value, placement, placements, run_check=False)
    if value.grad_fn is not None:
        raise InputError("this tensor is computed and has a history on its rank; make global what it is computed from")
    # A copy, since the others' values are overwritten by rank 0's, and what is computed in place must not reach the caller's.
    made = own_memory(distribute_tensor(value.detach().clone(), placement, placements))
    return made.requires_grad_(value.requires_grad)


def to_local(value: torch.Tensor) -> torch.Tensor:
    """The part of a global tensor on this rank; a plain tensor as it is. A partial sum must be converted first."""
    if not isinstance(value, DTensor):
        return value
    if any(placement.is_partial() for placement in value.placements):
        raise PlacementError(
            f"this value is {words(value.placements)}: a rank's part of it means nothing; "
            "write to_global(value, sbp=sbp.broadcast) first"
        )
    return value.to_local()


def whole(value: torch.Tensor) -> torch.Tensor:
    """The whole value on every rank, as a plain tensor without a history: for printing and comparing."""
    if not isinstance(value, DTensor):
        return value.detach()
    with torch.no_grad():
        return value.detach().full_tensor()


def convert(value: DTensor, placements: Sequence[Placement], *, sum_first: bool = False) -> DTensor:
    """What `to_global` does to a global tensor. With `sum_first` a gradient is summed whole before it is split."""
    return _Convert.apply(value, tuple(placements), sum_first)


class _Convert(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, value: DTensor, placements: tuple[Placement, ...], sum_first: bool) -> DTensor:
        ctx.source, ctx.target, ctx.sum_first = value.placements, placements, sum_first
        return private.moved(value, placements)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: DTensor) -> tuple[Any, ...]:
        if not isinstance(gradient, DTensor):
            raise PlacementError(f"the gradient of a global value is a plain {type(gradient).__name__}")
        if gradient.placements != ctx.target:
            gradient = _fitting(gradient, ctx.target)
        tied = tuple(placement if isinstance(placement, Shard) else broadcast for placement in ctx.source)
        if ctx.sum_first:
            gradient = private.moved(gradient, tuple(broadcast if p.is_partial() else p for p in gradient.placements))
        return private.moved(gradient, tied), None, None


def _fitting(gradient: DTensor, target: tuple[Placement, ...]) -> DTensor:
    """Of a gradient that is whole (a mean's, say) a rank takes its part, which moves nothing; nothing else is made split."""
    pairs = zip(target, gradient.placements, strict=True)
    own = tuple(want if isinstance(want, Shard) and given.is_replicate() else given for want, given in pairs)
    for wanted, given in zip(target, own, strict=True):
        if isinstance(wanted, Shard) and given != wanted:
            raise PlacementError(
                f"a value that is {words(target)} has a gradient that is {words(gradient.placements)}; write to_global "
                f"with {words(target)} behind the operator that takes the value"
            )
    return private.moved(gradient, own)


def _converted(value: DTensor, placement: DeviceMesh | None, sbp: Sbp) -> DTensor:
    if placement is not None and placement != value.device_mesh:
        raise PlacementError(
            f"this value lies on ranks {value.device_mesh.mesh.tolist()}, and cannot be converted to ranks "
            f"{placement.mesh.tolist()}; take parallel.whole(value) and make it global there"
        )
    placements = placements_of(sbp, value.device_mesh.ndim)
    kept = [before == after for before, after in zip(value.placements, placements, strict=True)]
    _check(tuple(after for after, same in zip(placements, kept, strict=True) if not same), value.ndim, tuple(value.shape))
    return convert(value, placements)


def _check(placements: Sequence[Placement], dims: int, shape: tuple[int, ...]) -> None:
    for placement in placements:
        if placement.is_partial():
            raise InputError("nothing is converted to partial_sum: a computation makes a partial sum, and to_global ends it")
        if isinstance(placement, Shard) and placement.dim >= dims:
            raise InputError(f"sbp.split({placement.dim}) of a tensor of shape {shape}: it has no such dimension")
