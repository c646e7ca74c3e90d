"""One rank's view of what computes over global tensors: rows that a script loads itself go in, and plain tensors come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ...errors import InputError
from .boxing import to_global, whole
from .sbp import broadcast, split

Batches = Literal["shares", "whole"]
T = TypeVar("T")


def local_view(function: Callable[..., Any], *, batches: Batches = "shares") -> Callable[..., Any]:
    """A module whose parameters are global, called with plain tensors of rows, as a script for one rank calls it.

    With "shares" each rank gives rows of its own, as many as the others where a mean is taken of them, and gets the results of
    its own rows; a value over all rows, such as a loss, comes whole. With "whole" every rank gives the whole batch, of which
    rank 0's is taken and its rows are dealt out (each rank computes all of them where they cannot be dealt out evenly), and the
    whole results come back, which all ranks must call alike. Results have no history. A module that is not global is given
    back as it is. Raises InputError for other `batches`, and in a call for tensors that have no rows.
    """
    mesh = mesh_of(function.parameters()) if isinstance(function, nn.Module) else None
    if mesh is None:
        if batches not in ("shares", "whole"):
            raise InputError(f'batches are "shares" or "whole", got {batches!r}')
        return function

    def call(*args: Any, **named: Any) -> Any:
        if torch.is_inference_mode_enabled():  # which knows no global tensors
            with torch.inference_mode(False), torch.no_grad():
                return call(*args, **named)
        given = [entered(value, mesh, batches) for value in args]
        return left(function(*given, **{name: entered(value, mesh, batches) for name, value in named.items()}), batches)

    return call


def mesh_of(tensors: Iterator[torch.Tensor]) -> DeviceMesh | None:
    """The placement of the first of them that is global; None where none is."""
    return next((value.device_mesh for value in tensors if isinstance(value, DTensor)), None)


def entered(value: Any, mesh: DeviceMesh, batches: Batches) -> Any:
    """A tensor of rows as a global one, split over the first axis of the mesh; what is global, or no tensor, as it is."""
    if batches not in ("shares", "whole"):
        raise InputError(f'batches are "shares" or "whole", got {batches!r}')
    if not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    if not value.ndim:
        raise InputError("a tensor without rows is nobody's share; give it as a number, or make it global first")
    value = value.clone() if value.is_inference() else value
    others = (broadcast,) * (mesh.ndim - 1)
    if batches == "shares":
        return to_global(value, mesh, (split(0), *others), shares=True)
    dealt = broadcast if len(value) % mesh.size(0) else split(0)
    return to_global(value, mesh, (dealt, *others))


def left(value: Any, batches: Batches) -> Any:
    """What a rank sees of results: its own rows of those split by rows and the whole of others; with "whole" of all."""
    if isinstance(value, dict | list | tuple):
        return mapped(lambda item: left(item, batches), value)
    if not isinstance(value, DTensor):
        return value
    rows = [placement.is_shard(0) for placement in value.placements]
    if batches == "shares" and rows[0] and all(placement.is_replicate() for placement in value.placements[1:]):
        return value.detach().to_local()
    return whole(value)


def mapped(change: Callable[[Any], Any], value: T) -> T:
    """A dictionary, list or tuple of the same kind with its values changed; attributes, as a state dict has, stay."""
    if isinstance(value, dict):
        made = type(value)()
        vars_of = getattr(value, "__dict__", None)
        if vars_of:
            made.__dict__.update(vars_of)
        made.update((key, change(item)) for key, item in value.items())
        return made
    assert isinstance(value, list | tuple)
    items = [change(item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # type: ignore[return-value]
