"""A network cut into stages, each on ranks of its own, through which microbatches run by one of torch's schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...errors import InputError
from .boxing import to_local

_SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Pipeline:
    """Stages that train as one network, `nn.Sequential(*stages)`, would; each rank keeps its own stages alone.

    `criterion(outputs, targets)` is a mean over rows. `placement` is the mesh; the stages are shared out over `axis` (the last
    unless given), and a batch is split over the other axis, if there is one, whose ranks then sum their gradients.
    `microbatches` is into how many a rank's rows are cut. `schedule` is "gpipe", "1f1b" (fewer activations are kept at a time)
    or "interleaved" (each rank has several stages, one of each round; less waiting at both ends).
    Every rank gives all stages; rank 0's values count. Make the optimizer of `parameters()` afterwards. Steps run eagerly.
    Raises InputError for fewer stages than ranks, or as many as do not share out evenly; for batch normalization, whose
    statistics would be a microbatch's, and for dropout.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        placement: DeviceMesh,
        *,
        microbatches: int,
        schedule: str = "1f1b",
        axis: str | None = None,
    ) -> None:
        names: tuple[str, ...] = placement.mesh_dim_names or ()
        axis = names[-1] if axis is None else axis
        if axis not in names or placement.ndim > 2:
            raise InputError(f"a pipeline takes a mesh of one or two axes and the name of one; got {names} and {axis!r}")
        if schedule not in _SCHEDULES:
            raise InputError(f"schedule must be one of {', '.join(_SCHEDULES)}; got {schedule!r}")
        if microbatches < 1:
            raise InputError(f"microbatches must be at least 1, got {microbatches!r}")
        size = placement.size(names.index(axis))
        if not stages or len(stages) % size:
            raise InputError(f"{len(stages)} stages do not share out over the {size} ranks of {axis!r}; give a multiple")
        if schedule == "1f1b" and microbatches < size:
            raise InputError(f'"1f1b" over {size} ranks takes as many microbatches or more, got {microbatches}')
        for number, stage in enumerate(stages):
            for part in stage.modules():
                if isinstance(part, _BatchNorm) or (isinstance(part, _DropoutNd) and part.p > 0):
                    kind = type(part).__name__
                    raise InputError(f"stage {number} has a {kind}, which on microbatches is another than on one device")
        self.criterion, self.microbatches = criterion, microbatches
        self.group = placement.get_group(axis)
        self.across = placement.get_group(next(name for name in names if name != axis)) if placement.ndim == 2 else None
        self.own = placement.get_local_rank(axis)
        self._size = size
        device = torch.device(placement.device_type, torch.cuda.current_device() if placement.device_type == "cuda" else None)
        if schedule == "interleaved":
            cut = {number: stages[number] for number in range(self.own, len(stages), size)}
            count = len(stages)
        else:
            per = len(stages) // size
            cut, count = {self.own: nn.Sequential(*stages[self.own * per : (self.own + 1) * per])}, size
        for stage in stages:  # in the same order on every rank
            for value in (*stage.parameters(), *stage.buffers()):
                _from_first(value, device)
        self.stages = {number: stage.to(device) for number, stage in cut.items()}
        self._schedule = None
        if size > 1:
            parts = [PipelineStage(stage, number, count, device, group=self.group) for number, stage in self.stages.items()]
            given: Any = parts if schedule == "interleaved" else parts[0]
            self._schedule = _SCHEDULES[schedule](given, n_microbatches=microbatches, loss_fn=criterion)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of this rank's stages."""
        for stage in self.stages.values():
            yield from stage.parameters()

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward of all microbatches: adds to the parameters' `.grad`, and gives the mean loss on every rank.

        Plain inputs and targets are the whole batch, the same on every rank; global ones lie split(0) over the data axis and
        broadcast over the pipeline's. Raises InputError where the rows do not divide.
        """
        images, labels = (self._rows(value) for value in (inputs, targets))
        if self.across is not None:
            before = [value.grad for value in self.parameters()]
            for value in self.parameters():
                value.grad = None
        loss = self._run(images, labels)
        if self.across is not None:
            ranks = dist.get_world_size(self.across)
            dist.all_reduce(loss, group=self.across)
            loss /= ranks
            for value, gradient in zip(self.parameters(), before, strict=True):
                if value.grad is not None:
                    dist.all_reduce(value.grad, group=self.across)
                    value.grad /= ranks
                    if gradient is not None:
                        value.grad += gradient
                else:
                    value.grad = gradient
        return loss

    def _rows(self, value: torch.Tensor) -> torch.Tensor:
        """This rank's rows: those of its place on the data axis."""
        ranks = 1 if self.across is None else dist.get_world_size(self.across)
        if value.shape[0] % (ranks * self.microbatches):
            parts = f"{ranks} ranks of {self.microbatches} microbatches" if ranks > 1 else f"{self.microbatches} microbatches"
            raise InputError(f"{value.shape[0]} rows do not divide into {parts}")
        local = to_local(value)
        if local is not value or ranks == 1:
            return local
        return value.chunk(ranks)[dist.get_rank(self.across)]

    def _run(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self._schedule is None:  # one rank: the same microbatches, one after another
            pairs = zip(images.chunk(self.microbatches), labels.chunk(self.microbatches), strict=True)
            return torch.stack([self._alone(*pair) for pair in pairs]).mean()
        losses: list[torch.Tensor] = []
        last = self.own == self._size - 1
        given = (images,) if self.own == 0 else ()
        self._schedule.step(*given, **({"target": labels, "losses": losses} if last else {}))
        loss = torch.stack([value.detach() for value in losses]).mean() if last else images.new_zeros(())
        dist.broadcast(loss, src=dist.get_global_rank(self.group, self._size - 1), group=self.group)
        return loss

    def _alone(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = images
        for stage in self.stages.values():
            values = stage(values)
        loss = self.criterion(values, labels)
        (loss / self.microbatches).backward()
        return loss.detach()


def _from_first(value: torch.Tensor, device: torch.device) -> None:
    """Rank 0's value, in place."""
    with torch.no_grad():
        moved = value.detach().to(device).contiguous()
        dist.broadcast(moved, src=0)
        value.copy_(moved)
