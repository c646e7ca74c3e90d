"""Modules whose parameters are global tensors, with the conversions that their uses need: data and tensor parallelism, ZeRO."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...errors import InputError
from . import private
from .batch_norm import GlobalBatchNorm
from .boxing import convert, to_global
from .own_statistics import OwnBatchNorm
from .sbp import Sbp, broadcast, placements_of, split

_STAGES = (0, 1, 2, 3)


def module_to_global(
    module: nn.Module,
    placement: DeviceMesh,
    sbp: Sbp | Mapping[str, Sbp] = broadcast,
    *,
    zero: int = 0,
    axis: int | str = 0,
    optimizer: torch.optim.Optimizer | None = None,
    own_statistics: bool = False,
) -> nn.Module:
    """Make the module's parameters and buffers global, in place, with rank 0's values; gives the module back.

    `sbp` is that of all of them, or a table from names, with * and ? as in "blocks.*.mlp.0.weight", to the sbp of what they
    match, the first that does; the others are broadcast. A parameter's gradient is summed over the ranks on which it is whole.
    `zero` cuts what belongs to parameters over `axis` of the mesh, where they are whole: 1 the optimizer's state, 2 also the
    gradients, 3 also the parameters, which are gathered where they are used and again in the backward pass (Rajbhandari et
    al. 2020). At 1 and 2 they are gathered at each use, and kept until the backward pass. Make the optimizer afterwards,
    or give one that was made before and has not stepped yet: it goes on with the global parameters.
    A batch normalization takes the statistics of all ranks' rows; with `own_statistics`, unless it is a SyncBatchNorm, each
    rank those of its own, as in DistributedDataParallel.
    Raises InputError for a pattern that matches nothing, dropout (its masks would be others than on one device), modules
    whose parameters are global already, and an optimizer that has stepped.
    """
    at = check_module(module, placement, sbp, zero=zero, axis=axis, optimizer=optimizer)
    table = dict(sbp) if isinstance(sbp, Mapping) else {"*": sbp}
    made: dict[int, torch.Tensor] = {}  # shared parameters stay shared
    for name, part in list(module.named_modules()):
        used: dict[str, tuple[Placement, ...]] = {}
        for short, value in list(part._parameters.items()):
            if value is None:
                continue
            placements = _of(table, f"{name}.{short}" if name else short, placement.ndim)
            used[short] = placements
            if id(value) not in made:
                lying = stored(placements, at, value, placement) if zero else placements
                made[id(value)] = nn.Parameter(to_global(value.detach(), placement, lying), requires_grad=value.requires_grad)
            part._parameters[short] = made[id(value)]  # type: ignore[assignment]
        for short, buffer in list(part._buffers.items()):
            if buffer is not None:
                placements = _of(table, f"{name}.{short}" if name else short, placement.ndim)
                part._buffers[short] = made.setdefault(id(buffer), to_global(buffer, placement, placements))
        if isinstance(part, _BatchNorm):
            _become(part, OwnBatchNorm if own_statistics and not isinstance(part, nn.SyncBatchNorm) else GlobalBatchNorm)
        if used:
            _read_through(part, used, zero)
    if zero == 3:
        _gathering_again(module)
    for group in optimizer.param_groups if optimizer is not None else ():
        group["params"] = [made.get(id(value), value) for value in group["params"]]
    return module


def check_module(
    module: nn.Module,
    placement: DeviceMesh,
    sbp: Sbp | Mapping[str, Sbp],
    *,
    zero: int,
    axis: int | str,
    optimizer: torch.optim.Optimizer | None,
) -> int:
    """What `module_to_global` raises before anything is moved; gives the number of the axis."""
    if zero not in _STAGES:
        raise InputError(f"zero is a stage of ZeRO, 0 (none) to 3; got {zero!r}")
    names = placement.mesh_dim_names or ()
    if isinstance(axis, str) and axis not in names:
        raise InputError(f"the mesh has the axes {', '.join(names)}, and none called {axis!r}")
    at = names.index(axis) if isinstance(axis, str) else axis
    if not 0 <= at < placement.ndim:
        raise InputError(f"the mesh has {placement.ndim} axes, and no axis {axis}")
    for name, part in module.named_modules():
        if isinstance(part, _DropoutNd) and part.p > 0 and placement.size() > 1:
            raise InputError(f"{name!r} drops out with p={part.p}, and its masks depend on the ranks; set p to 0")
    if optimizer is not None and optimizer.state:
        raise InputError("the optimizer has stepped before its parameters become global; make them global first")
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if any(isinstance(value, DTensor) for value in tensors.values()):
        raise InputError("the module's parameters are global already; make a new module, or load its state into one")
    for pattern in sbp if isinstance(sbp, Mapping) else ():
        if not fnmatch.filter(tensors, pattern) and tensors:
            raise InputError(f"sbp names {pattern!r}, which is no parameter or buffer; there are {', '.join(tensors)}")
    return at


def boxed(module: nn.Module, *, inputs: Sbp | None = None, outputs: Sbp | None = None) -> nn.Module:
    """Write the conversions of a module's tensor inputs and outputs, whose code stays as it is; gives the module back.

    Column and row parallel layers of Megatron are `boxed(first, inputs=sbp.broadcast)` with weights that are split(0), and
    `boxed(second, outputs=sbp.broadcast)` with a weight that is split(1). On a mesh of more axes give one sbp for each.
    """

    def convert_all(values: Any, sbp: Sbp) -> Any:
        if isinstance(values, DTensor):
            return to_global(values, sbp=sbp)
        if isinstance(values, tuple | list):
            return type(values)(convert_all(value, sbp) for value in values)
        return values

    if inputs is not None:
        module.register_forward_pre_hook(lambda _, given: convert_all(given, inputs))
    if outputs is not None:
        module.register_forward_hook(lambda _, __, result: convert_all(result, outputs))
    return module


def stored(placements: tuple[Placement, ...], axis: int, value: torch.Tensor, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """Where a parameter lies that ZeRO cuts: split over the axis in its first dimension that is not split yet and can be."""
    taken = {placement.dim for placement in placements if isinstance(placement, Shard)}
    for dim, size in enumerate(value.shape):
        if placements[axis].is_replicate() and dim not in taken and size >= mesh.size(axis):
            return (*placements[:axis], split(dim), *placements[axis + 1 :])
    return placements


def _read_through(module: nn.Module, used: Mapping[str, tuple[Placement, ...]], zero: int) -> None:
    """Let every reading of these parameters be a conversion, as SimpleFSDP does: code of the class, so that it is captured.

    A use sums the gradient that comes back; the parameter itself, its name and the state dict stay the module's.
    """

    def reading(name: str) -> property:
        placements = used[name]

        def read(self: nn.Module) -> Any:
            value = self._parameters[name]
            if not isinstance(value, DTensor):
                return value
            if not torch.is_grad_enabled() or not value.requires_grad:
                return value if value.placements == placements else value.detach().redistribute(placements=placements)
            gathered = convert(value, placements, sum_first=zero == 1)
            if _again and value.placements != placements:
                _again[-1].append((private.share(gathered), value, placements))
            return gathered

        return property(read)

    _become(module, **{name: reading(name) for name in used})


def _become(module: nn.Module, *before: type, **attributes: Any) -> None:
    """Give this one module a class of its own, called as the one that it had."""
    kind = type(module)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    module.__class__ = type(kind.__name__, (*before, kind), {**names, **attributes})


# While a module runs whose parameters are gathered again: this rank's part of each that was gathered, its parameter, its sbp.
_again: list[list[tuple[torch.Tensor, DTensor, tuple[Placement, ...]]]] = []


def _gathering_again(module: nn.Module) -> None:
    """Let calls of the module keep no gathered parameter for the backward pass, which gathers it again."""
    kind = type(module)

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _kept_split():
            return kind.__call__(self, *args, **kwargs)

    _become(module, __call__=call)


@contextlib.contextmanager
def _kept_split() -> Iterator[None]:
    gathered: list[tuple[torch.Tensor, DTensor, tuple[Placement, ...]]] = []

    def pack(value: torch.Tensor) -> Any:
        if not isinstance(value, DTensor):
            return value
        local = private.share(value)
        for own, parameter, placements in gathered:
            if own.untyped_storage()._cdata == local.untyped_storage()._cdata:
                place = (tuple(local.shape), local.stride(), local.storage_offset())
                return parameter.detach(), placements, place, private.spec_of(value)
        return value

    def unpack(kept: Any) -> Any:
        if isinstance(kept, torch.Tensor):
            return kept
        parameter, placements, place, spec = kept
        with torch.no_grad():
            local = private.share(parameter.redistribute(placements=placements))
        return private.around(local.as_strided(*place), spec)

    _again.append(gathered)
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield
    finally:
        _again.pop()


def _of(table: Mapping[str, Sbp], name: str, axes: int) -> tuple[Placement, ...]:
    found = next((sbp for pattern, sbp in table.items() if fnmatch.fnmatchcase(name, pattern)), (broadcast,) * axes)
    # One word says the same for every axis only where it is broadcast; a split must say which axis it is over.
    return (broadcast,) * axes if found == broadcast else placements_of(found, axes)
