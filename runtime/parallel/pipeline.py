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
from .schedule import PipelineMesh

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
        mesh = PipelineMesh(placement, microbatches=microbatches, schedule=schedule, axis=axis)
        mesh.check_stages(len(stages))
        if schedule == "1f1b" and microbatches < mesh.size:
            raise InputError(f'"1f1b" over {mesh.size} ranks takes as many microbatches or more, got {microbatches}')
        for number, stage in enumerate(stages):
            for part in stage.modules():
                if isinstance(part, _BatchNorm) or (isinstance(part, _DropoutNd) and part.p > 0):
                    kind = type(part).__name__
                    raise InputError(f"stage {number} has a {kind}, which on microbatches is another than on one device")
        self.criterion, self.microbatches, self._mesh = criterion, microbatches, mesh
        if schedule == "interleaved":
            cut = {number: stages[number] for number in range(mesh.own, len(stages), mesh.size)}
            count = len(stages)
        else:
            per = len(stages) // mesh.size
            cut, count = {mesh.own: nn.Sequential(*stages[mesh.own * per : (mesh.own + 1) * per])}, mesh.size
        for stage in stages:  # in the same order on every rank
            for value in (*stage.parameters(), *stage.buffers()):
                mesh.from_first(value)
        self.stages = {number: stage.to(mesh.device) for number, stage in cut.items()}
        self._schedule = None
        if mesh.size > 1:
            parts = [
                PipelineStage(stage, number, count, mesh.device, group=mesh.group) for number, stage in self.stages.items()
            ]
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
        images, labels = (self._mesh.rows(value) for value in (inputs, targets))
        if self._mesh.across is not None:
            before = [value.grad for value in self.parameters()]
            for value in self.parameters():
                value.grad = None
        loss = self._run(images, labels)
        if self._mesh.across is not None:
            loss = self._mesh.mean(loss)
            given = [value for value in self.parameters() if value.grad is not None]
            for value, mean in zip(given, self._mesh.means([value.grad for value in given]), strict=True):
                value.grad = mean
            for value, gradient in zip(self.parameters(), before, strict=True):
                if gradient is not None:
                    value.grad = gradient if value.grad is None else value.grad + gradient
        return loss

    def _run(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self._schedule is None:  # one rank: the same microbatches, one after another
            pairs = zip(images.chunk(self.microbatches), labels.chunk(self.microbatches), strict=True)
            return torch.stack([self._alone(*pair) for pair in pairs]).mean()
        losses: list[torch.Tensor] = []
        last = self._mesh.own == self._mesh.size - 1
        given = (images,) if self._mesh.own == 0 else ()
        self._schedule.step(*given, **({"target": labels, "losses": losses} if last else {}))
        loss = torch.stack([value.detach() for value in losses]).mean() if last else images.new_zeros(())
        dist.broadcast(loss, src=self._mesh.peer(self._mesh.size - 1), group=self._mesh.group)
        return loss

    def _alone(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = images
        for stage in self.stages.values():
            values = stage(values)
        loss = self.criterion(values, labels)
        (loss / self.microbatches).backward()
        return loss.detach()
