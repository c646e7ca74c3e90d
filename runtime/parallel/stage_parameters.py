"""Parameters of a pipeline's stages: each rank keeps those of its own stages, and all of them when they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from .schedule import PipelineMesh

_ELSEWHERE = "_headrace_elsewhere"  # an attribute of a parameter whose values another rank has: a tensor is no key of a set


class StageParameters:
    """`owners` says which rank of the pipeline has which parameter. From `release` on the others have no values here, only a
    shape of [0], so that nothing can be computed or saved by mistake from what is no longer up to date."""

    def __init__(self, owners: Mapping[nn.Parameter, int], mesh: PipelineMesh) -> None:
        self._owners, self._mesh = dict(owners), mesh
        self._layouts = {value: (value.shape, value.stride()) for value in owners}

    def same(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether these are all still among the modules' parameters."""
        return {id(value) for value in self._owners} <= {id(value) for value in parameters}

    def others(self) -> list[nn.Parameter]:
        """Those of the other ranks' stages."""
        return [value for value, rank in self._owners.items() if rank != self._mesh.own]

    def covers(self, owners: Mapping[nn.Parameter, int]) -> bool:
        """Whether each of these parameters is known to be of that rank."""
        return all(self._owners.get(value) == rank for value, rank in owners.items())

    def release(self) -> None:
        """Drop the values and gradients of other ranks' stages."""
        for value in self.others():
            value.grad = None
            value.data = value.data.new_empty(0)
            setattr(value, _ELSEWHERE, True)

    @contextlib.contextmanager
    def shaped(self) -> Iterator[None]:
        """Within the block every parameter has its shape; what other ranks' stages have in it is no value of theirs."""
        for value in self.others():
            value.data = value.data.new_empty_strided(*self._layouts[value])
            delattr(value, _ELSEWHERE)
        try:
            yield
        finally:
            self.release()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Within the block every rank has every parameter's values. All ranks call this alike."""
        with self.shaped():
            for value, rank in self._owners.items():
                moved = value.data.contiguous()
                dist.broadcast(moved, src=self._mesh.peer(rank), group=self._mesh.group)
                if rank != self._mesh.own:
                    value.data.copy_(moved)
            yield

    def gathered(self, own: Mapping[Any, Any]) -> dict[Any, Any]:
        """The tables of all ranks of the pipeline as one, which has no key of several. All ranks call this alike."""
        found: list[dict[Any, Any]] = [{} for _ in range(self._mesh.size)]
        dist.all_gather_object(found, dict(own), group=self._mesh.group)
        return {key: value for table in found for key, value in table.items()}


def elsewhere(module: nn.Module) -> set[str]:
    """The names of a module's parameters whose values other ranks of a pipeline have."""
    return {name for name, value in module.named_parameters(remove_duplicate=False) if hasattr(value, _ELSEWHERE)}
