"""Parameters of a pipeline's stages: each rank keeps those of its own stages, and all of them when they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ...errors import InputError
from . import private
from .schedule import PipelineMesh
from .shares import share_of

# An attribute of a parameter whose values other ranks have, which is the part of them that this rank has: a tensor is no key of
# a set.
_ELSEWHERE = "_headrace_elsewhere"


class StageParameters:
    """`owners` says which rank of the pipeline has which parameter. From `release` on the others have no values here, only a
    shape of [0], so that nothing can be computed or saved by mistake from what is no longer up to date. Of global parameters
    that is the shape of this rank's share."""

    def __init__(self, owners: Mapping[nn.Parameter, int], mesh: PipelineMesh) -> None:
        self._owners, self._mesh = dict(owners), mesh
        self._layouts = {value: (share_of(value).shape, share_of(value).stride()) for value in owners}

    def same(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether these are all still among the modules' parameters."""
        return {id(value) for value in self._owners} <= {id(value) for value in parameters}

    def others(self) -> list[nn.Parameter]:
        """Those of the other ranks' stages."""
        return [value for value, rank in self._owners.items() if rank != self._mesh.own]

    def own(self) -> list[nn.Parameter]:
        """Those of this rank's stages."""
        return [value for value, rank in self._owners.items() if rank == self._mesh.own]

    def covers(self, owners: Mapping[nn.Parameter, int]) -> bool:
        """Whether each of these parameters is known to be of that rank."""
        return all(self._owners.get(value) == rank for value, rank in owners.items())

    def release(self) -> None:
        """Drop the values and gradients of other ranks' stages."""
        for value in self.others():
            value.grad = None
            drop(value)

    @contextlib.contextmanager
    def shaped(self) -> Iterator[None]:
        """Within the block every parameter has its shape; what other ranks' stages have in it is no value of theirs."""
        for value in self.others():
            fill(value, share_of(value).new_empty_strided(*self._layouts[value]))
        try:
            yield
        finally:
            self.release()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Within the block every rank has every parameter's values. All ranks call this alike."""
        with self.shaped():
            for value, rank in self._owners.items():
                moved = share_of(value).contiguous()
                dist.broadcast(moved, src=self._mesh.peer(rank), group=self._mesh.group)
                if rank != self._mesh.own:
                    share_of(value).copy_(moved)
            yield

    def gathered(self, own: Mapping[Any, Any]) -> dict[Any, Any]:
        """The tables of all ranks of the pipeline as one, which has no key of several. All ranks call this alike."""
        found: list[dict[Any, Any]] = [{} for _ in range(self._mesh.size)]
        dist.all_gather_object(found, dict(own), group=self._mesh.group)
        return {key: value for table in found for key, value in table.items()}


def tensor_axes(modules: Iterable[nn.Module], placement: DeviceMesh) -> tuple[str, ...]:
    """The axes of the mesh that the modules' parameters and buffers are global over; none where they are plain tensors.

    Raises InputError where some are global and others are not, or lie on another mesh than these axes.
    """
    values = [value for module in modules for value in (*module.parameters(), *module.buffers())]
    meshes = {value.device_mesh for value in values if isinstance(value, DTensor)}
    if not meshes:
        return ()
    if len(meshes) > 1 or not all(isinstance(value, DTensor) for value in values):
        raise InputError(
            "some of the graph's parameters and buffers are global tensors and others are not, or they lie on several meshes; "
            "make all of them global over one: parallel.to_global(model, mesh['model'])"
        )
    (mesh,) = meshes
    names: tuple[str, ...] = mesh.mesh_dim_names or ()
    known = placement.mesh_dim_names or ()
    if not set(names) <= set(known) or placement[names].mesh.tolist() != mesh.mesh.tolist():
        raise InputError(
            f"the parameters are global over the axes {', '.join(names)} of ranks {mesh.mesh.tolist()}, which are none of the "
            f"pipeline's mesh ({', '.join(known)}); make them global over some of its axes: parallel.to_global(model, "
            "mesh['model'])"
        )
    return names


def drop(parameter: nn.Parameter, part: DTensor | None = None) -> None:
    """Leave the parameter without values, and with the part of them that this rank keeps, if any."""
    _set(parameter, share_of(parameter).new_empty(0))
    setattr(parameter, _ELSEWHERE, part)


def fill(parameter: nn.Parameter, share: torch.Tensor) -> None:
    """Give these values to a parameter that had been left without."""
    _set(parameter, share)
    delattr(parameter, _ELSEWHERE)


def part_of(parameter: nn.Parameter) -> DTensor | None:
    """The part that this rank has of a parameter that was dropped, as a global tensor of the whole."""
    return getattr(parameter, _ELSEWHERE, None)


def _set(parameter: nn.Parameter, share: torch.Tensor) -> None:
    if isinstance(parameter, DTensor):
        private.set_share(parameter, share)
    else:
        parameter.data = share


def elsewhere(module: nn.Module) -> set[str]:
    """The names of a module's parameters whose values other ranks of a pipeline have."""
    return {name for name, value in module.named_parameters(remove_duplicate=False) if hasattr(value, _ELSEWHERE)}


def parts(module: nn.Module) -> dict[str, DTensor]:
    """The parameters of a module of which this rank has parts alone, by name, as global tensors."""
    return {
        name: part for name, value in module.named_parameters(remove_duplicate=False) if (part := part_of(value)) is not None
    }
