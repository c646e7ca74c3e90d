"""Pipelines: the ranks of a mesh that are one, how its stages are shared out, and which microbatch each rank computes when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ...errors import InputError
from .boxing import to_local
from .buckets import summed

SCHEDULES = ("gpipe", "1f1b", "interleaved")


class PipelineMesh:
    """The ranks of a pipeline: `axis` of the mesh (the last unless given) has the stages, the other axis, if any, the rows.

    Over the axes `tensor` the parameters are global, and each rank has the same rows. `own` and `size` are this rank's place on
    the pipeline's axis and its length, `data` is the axis of rows and `stage` the mesh of all ranks that have this rank's
    stages, None where there are no others. Raises InputError for more than one axis of rows, an axis that is not there, an
    unknown schedule and fewer than one microbatch.
    """

    def __init__(
        self,
        placement: DeviceMesh,
        *,
        microbatches: int,
        schedule: str = "1f1b",
        axis: str | None = None,
        tensor: tuple[str, ...] = (),
    ) -> None:
        names: tuple[str, ...] = placement.mesh_dim_names or ()
        axis = names[-1] if axis is None else axis
        rows = [name for name in names if name not in (axis, *tensor)]
        if axis not in names or len(rows) > 1:
            raise InputError(
                f"a pipeline takes a mesh of one or two axes and the name of one; got {names} and {axis!r}, and parameters "
                f"that are global over {', '.join(tensor) or 'none of them'}"
            )
        if axis in tensor:
            raise InputError(
                f"the parameters are global over {axis!r}, which is to have the stages; make them global over other axes, as "
                f"parallel.to_global(model, mesh[{next(iter(names))!r}])"
            )
        if schedule not in SCHEDULES:
            raise InputError(f"schedule must be one of {', '.join(SCHEDULES)}; got {schedule!r}")
        if not isinstance(microbatches, int) or microbatches < 1:
            raise InputError(f"microbatches must be an integer of at least 1, got {microbatches!r}")
        self.placement, self.axis, self.microbatches, self.schedule = placement, axis, microbatches, schedule
        self.group = placement.get_group(axis)
        self.data = placement[rows[0]] if rows else None
        self.across = None if self.data is None else self.data.get_group()
        self.tensor = placement[tensor] if tensor else None
        self._tensor_groups = [placement.get_group(name) for name in tensor]
        others = tuple(name for name in names if name != axis)
        self.stage = placement[others] if others else None
        self._groups = [placement.get_group(name) for name in others] + [self.group]
        self.own, self.size = placement.get_local_rank(axis), placement.size(names.index(axis))
        self.replicas = 1 if self.across is None else dist.get_world_size(self.across)
        self.device = torch.device(
            placement.device_type, torch.cuda.current_device() if placement.device_type == "cuda" else None
        )

    def check_stages(self, count: int) -> None:
        """Raises InputError where so many stages do not share out evenly over the ranks."""
        if not count or count % self.size:
            raise InputError(f"{count} stages do not share out over the {self.size} ranks of {self.axis!r}; give a multiple")

    def rank_of(self, stage: int, stages: int) -> int:
        """Who has that stage: neighbors are on one rank, but with "interleaved", which deals them out in rounds."""
        return stage % self.size if self.schedule == "interleaved" else stage // (stages // self.size)

    def peer(self, rank: int) -> int:
        """The job's number of a rank of this pipeline."""
        return dist.get_global_rank(self.group, rank)

    def groups(self, *, copies: bool = False) -> list[dist.ProcessGroup]:
        """Those whose ranks differ from this one along one axis: a collective in one after the other reaches all ranks, or with
        `copies` those that have the same shares of global tensors."""
        if not copies:
            return self._groups
        return [self.group] if self.across is None else [self.across, self.group]

    def from_first(self, value: torch.Tensor) -> None:
        """The first rank's value, in place; of a share that of the first rank which has the same."""
        with torch.no_grad():
            moved = value.detach().to(self.device).contiguous()
            for group in self.groups(copies=True):
                dist.broadcast(moved, src=dist.get_global_rank(group, 0), group=group)
            value.copy_(moved)

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """This rank's rows of a batch: of a plain one, which every rank has whole, those of its place on the data axis."""
        count = value.shape[0] if value.ndim else 0
        if not count or count % (self.replicas * self.microbatches):
            many = f"{self.replicas} ranks of {self.microbatches} microbatches"
            parts = many if self.replicas > 1 else f"{self.microbatches} microbatches"
            raise InputError(f"{count or 'no'} rows do not divide into {parts}; give a multiple, or take other microbatches")
        local = to_local(value)
        if local is not value and local.shape[0] * self.replicas != value.shape[0]:
            raise InputError(
                "a pipeline takes global rows that are split(0) over the data axis and broadcast over the pipeline's"
            )
        if local is not value or self.across is None:
            return local
        return value.chunk(self.replicas)[dist.get_rank(self.across)]

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """The mean over the ranks of the data axis."""
        if self.across is not None:
            value = value / self.replicas
            dist.all_reduce(value, group=self.across)
        return value

    def means(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The mean of each over the ranks of the data axis; what is exchanged for them goes together."""
        if self.across is None:
            return list(values)
        return summed([value / self.replicas for value in values], self.across)

    def most(self, value: torch.Tensor, *, copies: bool = False) -> torch.Tensor:
        """The largest, element by element, among all ranks of the mesh, or those of `groups(copies=True)`."""
        for group in self.groups(copies=copies):
            dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group)
        return value

    def alike(self, value: torch.Tensor) -> bool:
        """Whether it is the same on the ranks that are to have the same stages and rows; they are told the same."""
        wide = torch.nan_to_num(value.double())
        both = torch.stack([-wide, wide])
        for group in self._tensor_groups:
            dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
        return torch.equal(-both[0], both[1])

    def counts(self, value: torch.Tensor) -> bool:
        """Whether this rank's share counts in a sum over all ranks of the mesh: what several have whole counts once."""
        split: set[str] = set()
        if isinstance(value, DTensor):
            lies = zip(value.device_mesh.mesh_dim_names or (), value.placements, strict=True)
            split = {axis for axis, placement in lies if not placement.is_replicate()}
        others = self.stage.mesh_dim_names or () if self.stage is not None else ()
        return all(axis in split or self.placement.get_local_rank(axis) == 0 for axis in others)

    def any(self, problem: str | None) -> str | None:
        """What the first rank of the mesh says that has something to say: one rank's problem is every rank's."""
        for group in self.groups():
            found: list[str | None] = [None] * dist.get_world_size(group)
            dist.all_gather_object(found, problem, group=group)
            problem = next((text for text in found if text is not None), None)
        return problem


class Action(NamedTuple):
    """A microbatch's way forward through a stage, or back."""

    backward: bool
    stage: int
    microbatch: int


@dataclass
class _Rank:
    """What a rank has to do, in order, and how many microbatches may have gone forward and not back."""

    forward: list[Action]
    backward: list[Action]
    most: float

    def next(self, done: set[Action], stages: int, *, gpipe: bool) -> Action | None:
        pending = len(done.intersection(self.forward)) - len(done.intersection(self.backward))
        back = next((action for action in self.backward if action not in done), None)
        ahead = next((action for action in self.forward if action not in done), None)
        if back is not None and not (gpipe and ahead is not None) and _after(back, stages) in done:
            return back
        return ahead if ahead is not None and pending < self.most and _after(ahead, stages) in {None, *done} else None


def timeline(ranks: Sequence[Sequence[int]], microbatches: int, schedule: str) -> list[list[Action | None]]:
    """For each moment what each rank does, of actions that take as long as each other; `ranks` are the stages of each.

    "gpipe" goes back when all microbatches went forward (Huang et al. 2019), "1f1b" as soon as one may (Narayanan et al. 2019),
    and "interleaved" likewise with the stages of a rank in turns of as many microbatches as there are ranks (Narayanan et al.
    2021), whose bounds on what is under way are taken.
    """
    size, stages = len(ranks), sum(map(len, ranks))
    plans = []
    for rank, own in enumerate(ranks):
        turn = size if schedule == "interleaved" else 1
        order = [
            (stage, microbatch)
            for begin in range(0, microbatches, turn)
            for stage in own
            for microbatch in range(begin, min(begin + turn, microbatches))
        ]
        back = [
            (stage, microbatch)
            for begin in range(0, microbatches, turn)
            for stage in reversed(own)
            for microbatch in range(begin, min(begin + turn, microbatches))
        ]
        most: float = (size - rank) * len(own)
        if schedule == "gpipe":
            most = math.inf
        elif schedule == "interleaved" and len(own) > 1:
            most = 2 * (size - rank - 1) + (len(own) - 1) * size + 1
        plans.append(_Rank([Action(False, *item) for item in order], [Action(True, *item) for item in back], most))
    done: set[Action] = set()
    found: list[list[Action | None]] = []
    while len(done) < 2 * stages * microbatches:
        moment = [plan.next(done, stages, gpipe=schedule == "gpipe") for plan in plans]
        if not any(moment):  # the bounds hold for full turns; a last turn that is shorter may need one more under way
            for plan in plans:
                plan.most += 1
            continue
        found.append(moment)
        done.update(filter(None, moment))
    return found


def _after(action: Action, stages: int) -> Action | None:
    """What must be done before; None before the first."""
    if action.backward:
        last = action.stage == stages - 1
        return Action(not last, action.stage + (not last), action.microbatch)
    return Action(False, action.stage - 1, action.microbatch) if action.stage else None
