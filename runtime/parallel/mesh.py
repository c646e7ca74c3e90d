"""Which processes hold a global tensor: a mesh of ranks, in one dimension or more."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...errors import InputError
from . import private

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_AXES = ("data", "model", "axis2", "axis3")


def placement(device: str, ranks: Any, *, names: Sequence[str] | None = None) -> DeviceMesh:
    """A mesh over these ranks, a list or a list of lists (one level for each axis), on "cpu" or "cuda".

    `names` are those of the axes; "data" and "model" for the first two unless given. All ranks of the job call this alike. The
    processes find each other through what torchrun sets; a script that was started alone is a job of one rank. From the first
    placement on, this thread's global tensors move only where a conversion is written (`implicit` allows the others).
    Raises InputError for ranks that the job has not, or a device that is not there.
    """
    if device not in _BACKENDS:
        raise InputError(f'placement is on "cpu" or "cuda", got {device!r}')
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError('placement("cuda", ...) needs a GPU that torch can use, and there is none; use "cpu"')
    array = _array(ranks)
    _join(device)
    size = world_size()
    if int(array.max()) >= size:
        remedy = f"start it with torchrun --nproc-per-node {int(array.max()) + 1}"
        raise InputError(f"placement names rank {int(array.max())}, and the job has {size} ranks (0 to {size - 1}); {remedy}")
    axes = tuple(names) if names is not None else _AXES[: array.ndim]
    if len(axes) != array.ndim or len(set(axes)) != len(axes):
        raise InputError(f"names must be {array.ndim} different ones, one for each axis of the mesh; got {axes}")
    private.guard_thread()
    return DeviceMesh(device, array, mesh_dim_names=axes)


def world(device: str, shape: Sequence[int] | None = None, *, names: Sequence[str] | None = None) -> DeviceMesh:
    """The placement over all ranks of the job, in order; of that shape, or in one dimension.

    One length may be -1: what is left. Raises InputError where the shape does not hold as many ranks as there are.
    """
    _join(device)
    ranks = torch.arange(world_size())
    if shape is not None:
        try:
            ranks = ranks.reshape(tuple(shape))
        except RuntimeError:
            raise InputError(f"a mesh of shape {tuple(shape)} does not hold the job's {world_size()} ranks") from None
    return placement(device, ranks.tolist(), names=names)


def same_start(device: str) -> DeviceMesh:
    """`world(device)` for a program that was written for one process, and runs on each rank as a whole: before anything is put
    on a GPU, each rank takes its own, and random numbers (Python's, numpy's, torch's) begin as on rank 0."""
    mesh = world(device)
    if world_size() > 1:
        box: list[Any] = [torch.initial_seed()]
        dist.broadcast_object_list(box, src=0)
        random.seed(box[0])
        torch.manual_seed(box[0])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(box[0] % 2**32)
    return mesh


def world_size() -> int:
    """How many ranks the job has; 1 before the first placement of a script that was started alone."""
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this process is, from 0."""
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))


def _array(ranks: Any) -> torch.Tensor:
    try:
        array = torch.tensor(list(ranks) if isinstance(ranks, range) else ranks)
    except (TypeError, ValueError):
        raise InputError(f"ranks must be integers in a list, or in lists of equal length; got {ranks!r}") from None
    if not array.numel() or not array.ndim or array.is_floating_point() or array.dtype == torch.bool or int(array.min()) < 0:
        raise InputError(f"ranks must be integers from 0 on in a list, or in lists of equal length; got {ranks!r}")
    if len(set(array.flatten().tolist())) != array.numel():
        raise InputError(f"ranks names one twice: {ranks!r}")
    return array.int()


def _join(device: str) -> None:
    """Join the job's process group, if this process has not yet."""
    if device == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if dist.is_initialized():
        return
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        dist.init_process_group(_BACKENDS[device])
    else:
        dist.init_process_group(_BACKENDS[device], store=dist.HashStore(), rank=0, world_size=1)
