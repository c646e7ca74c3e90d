"""Every rank decides alike: what is found on one rank decides for all, or they would wait for each other for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .shares import is_global

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")


class Agreement:
    """Among the ranks that hold these tensors, or make up a mesh; among none, where no tensor is global: calls give what they
    are given."""

    def __init__(self, tensors: Sequence[torch.Tensor], mesh: DeviceMesh | None = None) -> None:
        found = {value.device_mesh for value in tensors if is_global(value)} | ({mesh} if mesh is not None else set())
        self.meshes = sorted(found, key=lambda mesh: -mesh.size())
        self.ranks = sorted({rank for mesh in self.meshes for rank in mesh.mesh.flatten().tolist()})
        self._groups: dict[tuple[int, ...], Any] = {}

    def __bool__(self) -> bool:
        return len(self.ranks) > 1

    def first(self, value: T) -> T:
        """What the first of the ranks gives."""
        if not self:
            return value
        import torch.distributed as dist

        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=self.ranks[0], group=self._group())
        return box[0]  # type: ignore[no-any-return]

    def any(self, value: T | None) -> T | None:
        """Of the ranks that give something, what the first gives; None where every rank gives None."""
        if not self:
            return value
        import torch.distributed as dist

        found: list[Any] = [None] * len(self.ranks)
        dist.all_gather_object(found, value, group=self._group())
        return next((given for given in found if given is not None), None)

    def _group(self) -> Any:
        import torch.distributed as dist

        if self.ranks == list(range(dist.get_world_size())):
            return None  # the job's own
        key = tuple(self.ranks)
        if key not in self._groups:
            self._groups[key] = dist.new_group(self.ranks, use_local_synchronization=True)
        return self._groups[key]
