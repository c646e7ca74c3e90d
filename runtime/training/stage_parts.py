"""This rank's parts of what belongs to its stages' parameters, where other ranks compute other rows of the same stages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Placement, Shard

from ..parallel import buckets, private
from ..parallel.modules import stored
from ..parallel.private import spec_like
from ..parallel.sbp import broadcast
from ..parallel.schedule import PipelineMesh
from ..parallel.shares import share_of
from ..parallel.stage_parameters import drop, fill, part_of


@dataclass(frozen=True)
class Layout:
    """How a parameter's parts lie: as a global tensor, and what of the share this rank has; None for all of it. `shape` is the
    parameter's, `share` and `strides` are those of what this rank has where nothing is dealt out."""

    spec: Any
    cut: buckets.Cut | None
    shape: torch.Size
    share: torch.Size
    strides: tuple[int, ...]

    def around(self, part: torch.Tensor) -> DTensor:
        return private.around(part, self.spec)

    def own(self, share: torch.Tensor) -> torch.Tensor:
        """This rank's part of a value that every rank of the data axis has, as the parameter lies; a view."""
        return share if self.cut is None else self.cut.of(share)

    @property
    def part_shape(self) -> torch.Size:
        return self.own(torch.empty(self.share, device="meta")).shape

    def part(self, share: torch.Tensor) -> torch.Tensor:
        """The same, contiguous and in memory of its own."""
        return self.own(share).clone(memory_format=torch.contiguous_format)


class Layouts:
    """How parameters are dealt out over the data axis: by their first dimension that is as long as the axis or longer; where
    none is, every rank has all of it."""

    def __init__(self, mesh: PipelineMesh) -> None:
        assert mesh.stage is not None, "of check_zero"
        assert mesh.data is not None, "of check_zero"
        self._stage, self._place = mesh.stage, mesh.data.get_local_rank()
        self.axes: tuple[str, ...] = mesh.stage.mesh_dim_names or ()
        self._data = next(at for at, axis in enumerate(self.axes) if axis in (mesh.data.mesh_dim_names or ()))
        self._found: dict[nn.Parameter, Layout] = {}

    def __getitem__(self, parameter: nn.Parameter) -> Layout:
        """It is looked at once, while the parameter has its values."""
        found = self._found.get(parameter)
        if found is None:
            found = self._found[parameter] = self._new(parameter)
        return found

    def _new(self, parameter: nn.Parameter) -> Layout:
        whole, share = self._whole(parameter), share_of(parameter)
        lying = stored(whole, self._data, parameter, self._stage)
        strides = parameter.stride() if isinstance(parameter, DTensor) else share.stride()
        spec = spec_like(self._stage, lying, parameter.shape, strides, parameter.dtype)
        over, cut = lying[self._data], None
        if isinstance(over, Shard):
            cut = buckets.Cut(share.shape, over.dim, self._stage.size(self._data), self._place)
        return Layout(spec, cut, parameter.shape, share.shape, share.stride())

    def _whole(self, parameter: nn.Parameter) -> tuple[Placement, ...]:
        """How a parameter lies on the mesh of its stage: whole over the data axis, over the others as it does."""
        own = {}
        if isinstance(parameter, DTensor):
            own = dict(zip(parameter.device_mesh.mesh_dim_names or (), parameter.placements, strict=True))
        return tuple(broadcast if at == self._data else own.get(axis, broadcast) for at, axis in enumerate(self.axes))


class DroppedParameters:
    """Parameters of which each rank keeps its part alone while nothing is computed with them (ZeRO 3). They are left without
    values, as those of other ranks' stages are. The ranks of a stage call all of this alike."""

    def __init__(self, layouts: Layouts, mesh: PipelineMesh) -> None:
        assert mesh.across is not None, "of check_zero"
        self._layouts, self._group = layouts, mesh.across
        self.known: dict[nn.Parameter, None] = {}

    def drop(self, parameters: Iterable[nn.Parameter]) -> None:
        """Keep the parts of those that are dealt out."""
        for value in parameters:
            if (layout := self._layouts[value]).cut is not None:
                drop(value, layout.around(layout.part(share_of(value))))
                self.known[value] = None

    def __contains__(self, parameter: nn.Parameter) -> bool:
        return part_of(parameter) is not None

    def part(self, parameter: nn.Parameter) -> torch.Tensor:
        """This rank's part of one that was dropped."""
        found = part_of(parameter)
        assert found is not None, "of one that is in this"
        return share_of(found)

    def update(self, parts: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Keep these parts from now on."""
        for value, part in parts.items():
            drop(value, self._layouts[value].around(part))

    def gathered(self, parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
        """The whole values, in new memory."""
        layouts = [self._layouts[value] for value in parameters]
        parts = [self.part(value) for value in parameters]
        wholes = [part.new_empty_strided(item.share, item.strides) for part, item in zip(parts, layouts, strict=True)]
        buckets.gather(parts, [item.cut for item in layouts if item.cut is not None], wholes, self._group)
        return wholes

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Within the block they have their values; what they have at its end is kept."""
        known = list(self.known)
        for value, whole in zip(known, self.gathered(known), strict=True):
            fill(value, whole)
        try:
            yield
        finally:
            self.drop(known)
