"""A step of a pipeline on one rank: the parts of its stages by the schedule, and their values from and to the other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..parallel.schedule import PipelineMesh, timeline
from ..parallel.shares import put_together
from ..parallel.states import whole
from .options import StepRecord
from .stage_exchanges import Exchange, ExchangingPart
from .stage_split import Part, StagedStep

Values = dict[str, torch.Tensor]


class Exchanges(NamedTuple):
    """What makes whole parameters of a table of their names in the program, and of gradients by their parameters' names what is
    kept of them. The ranks of a stage call both in one order."""

    gather: Exchange
    reduce: Exchange


class PipelineRun:
    """What this rank computes, sends and receives in every step of a kind.

    At each moment of the timeline every rank does at most one action; then what was made goes to the ranks that use it, in an
    order that all ranks know. Nobody waits before a value is needed, so a rank never waits for one that waits for it.
    """

    def __init__(
        self,
        step: StagedStep,
        mesh: PipelineMesh,
        record: StepRecord,
        exchanged: Mapping[str, torch.Tensor] | None = None,
        *,
        gathers: bool = False,
    ) -> None:
        """The gradients of the parameters `exchanged`, each with a tensor like it, are summed within the parts; with `gathers`
        they themselves are gathered there, by what `run` is given."""
        self.step, self.mesh, self.record = step, mesh, record
        self.rank_of = [mesh.rank_of(step.stage(part), step.stages) for part in range(2 * step.stages)]
        stages = [[stage for stage in range(step.stages) if self.rank_of[stage] == rank] for rank in range(mesh.size)]
        self._timeline = timeline(stages, mesh.microbatches, mesh.schedule)
        self._receivers = {
            name: sorted({self.rank_of[part] for part in step.used[name]} - {self.rank_of[made]})
            for name, made in step.made.items()
        }
        self._dropped: dict[int, list[str]] = {}
        for name, made in step.made.items():
            here = [part for part in (made, *step.used[name]) if self.rank_of[part] == mesh.own]
            if here:
                self._dropped.setdefault(max(here), []).append(name)
        self._gradients: dict[int, list[tuple[str, str]]] = {}
        for parameter, name in step.gradients.items():
            self._gradients.setdefault(step.part(step.owners[parameter], backward=True), []).append((parameter, name))
        self._parts: dict[int, ExchangingPart] = {}
        for number, part in enumerate(step.parts):
            if exchanged is not None and self.rank_of[number] == mesh.own:
                self._parts[number] = self._exchanging(number, part, exchanged, gathers)
        kept = dict.fromkeys([*step.leaves, *step.divisors])
        self._results = [name for name in kept if self.rank_of[step.made[name]] == mesh.own]

    def run(
        self,
        given: Values,
        inputs: Sequence[torch.Tensor],
        exchanges: Exchanges | None = None,
    ) -> tuple[Values, dict[str, list[torch.Tensor]]]:
        """The sums of the microbatches' gradients by the parameters' names, and the leaves and divisors of each microbatch.

        Both as far as this rank computes them. `given` are the state's tensors by name, `inputs` this rank's rows.
        """
        step, count = self.step, self.mesh.microbatches
        chunks = [value.chunk(count) for value in inputs]
        known: list[Values] = [
            {**given, **{name: chunk[at] for name, chunk in zip(step.inputs, chunks, strict=True)}} for at in range(count)
        ]
        arriving: dict[tuple[int, str], tuple[torch.Tensor, dist.Work]] = {}
        sent: list[list[tuple[torch.Tensor, dist.Work]]] = [[] for _ in range(count)]
        gradients: Values = {}
        results: dict[str, list[torch.Tensor]] = {name: [] for name in self._results}
        for moment in self._timeline:
            action = moment[self.mesh.own]
            if action is not None:
                at, values = action.microbatch, known[action.microbatch]
                number = step.part(action.stage, backward=action.backward)
                for name in (*step.parts[number].inputs, *(name for _, name in self._gradients.get(number, ()))):
                    if (at, name) in arriving:
                        values[name] = _received(*arriving.pop((at, name)), step.layouts[name][1])
                for parameter, gradient in self._computed(number, values, exchanges).items():
                    before = gradients.get(parameter)
                    gradients[parameter] = gradient if before is None else before + gradient
                for name in self._results:
                    if step.made[name] == number:
                        results[name].append(values[name])
            self._exchange(moment, known, arriving, sent)
            if action is not None:
                for name in self._dropped.get(number, ()):
                    known[at].pop(name, None)
                if action.backward:  # what went forward from here has arrived: its gradients came back
                    _wait(sent[at])
        for works in sent:
            _wait(works)
        return gradients, results

    def _exchanging(self, number: int, part: Part, exchanged: Mapping[str, torch.Tensor], gathers: bool) -> ExchangingPart:
        step = self.step
        owned = {node: exchanged[name] for node, name in step.parameters.items() if gathers and name in exchanged}
        due = {
            parameter: (name, exchanged[parameter])
            for parameter, name in self._gradients.get(number, ())
            if parameter in exchanged
        }
        wanted = {name for name in part.outputs if step.used[name] or name in (*step.leaves, *step.divisors)}
        return ExchangingPart(part, owned, due, wanted)

    def _computed(self, number: int, values: Values, exchanges: Exchanges | None) -> Values:
        """The gradients that a part gives, as they are summed over microbatches; what else it makes goes to the values."""
        part, due = self.step.parts[number], self._gradients.get(number, [])
        own = self._parts.get(number)
        if own is None or exchanges is None:
            values.update(zip(part.outputs, part.program(*(values[name] for name in part.inputs)), strict=True))
            return {parameter: values[name] for parameter, name in due}
        outputs, summed = own(exchanges.gather, exchanges.reduce, [values[name] for name in own.inputs])
        values.update(zip(own.outputs, outputs, strict=True))
        found = dict(zip(own.gradients, summed, strict=True))
        return found | exchanges.reduce({parameter: values[name] for parameter, name in due if parameter not in found})

    def _exchange(self, moment: Sequence[Any], known: list[Values], arriving: dict[Any, Any], sent: list[list[Any]]) -> None:
        step, own = self.step, self.mesh.own
        operations, places = [], []
        for rank, action in enumerate(moment):
            if action is None:
                continue
            for name in step.parts[step.part(action.stage, backward=action.backward)].outputs:
                for receiver in self._receivers[name]:
                    if own == rank:
                        value, call, peer = known[action.microbatch][name].contiguous(), dist.isend, receiver
                    elif own == receiver:
                        shape, _, dtype = step.layouts[name]
                        value, call, peer = torch.empty(shape, dtype=dtype, device=self.mesh.device), dist.irecv, rank
                    else:
                        continue
                    operations.append(dist.P2POp(call, value, self.mesh.peer(peer), self.mesh.group))
                    places.append((call is dist.isend, action.microbatch, name, value))
        if not operations:
            return
        works = dist.batch_isend_irecv(operations)
        works = works * len(operations) if len(works) == 1 else works  # NCCL gives one for all of them
        for (sends, at, name, value), work in zip(places, works, strict=True):
            if sends:
                sent[at].append((value, work))
            else:
                arriving[at, name] = value, work


def _received(value: torch.Tensor, work: dist.Work, strides: tuple[int, ...]) -> torch.Tensor:
    """The value when it has come, with the strides that the traced operations know it by."""
    work.wait()
    if value.stride() == strides or 0 in strides:  # an expanded value is sent whole
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def _wait(works: list[tuple[torch.Tensor, dist.Work]]) -> None:
    for _, work in works:
        work.wait()
    works.clear()


def assembled(name: str, run: PipelineRun, results: Mapping[str, list[torch.Tensor]]) -> torch.Tensor:
    """A leaf of the whole batch on every rank, as a plain tensor: the mean of a number, all rows of rows."""
    shape, (_, _, dtype) = run.step.shape(name), run.step.layouts[name]
    mesh, source = run.mesh, run.rank_of[run.step.made[name]]
    if mesh.own == source:
        parts = results[name]
        if name in run.step.wholes:
            parts = [whole(part) for part in put_together(parts, [run.step.wholes[name]] * len(parts))]
        value = torch.cat(parts) if shape else torch.stack(parts).mean()
    else:
        value = torch.empty((shape[0] * mesh.microbatches, *shape[1:]) if shape else (), dtype=dtype, device=mesh.device)
    dist.broadcast(value, src=mesh.peer(source), group=mesh.group)
    return value


def of_all_rows(value: torch.Tensor, mesh: PipelineMesh) -> torch.Tensor:
    """What `assembled` gave for this rank's rows, for those of all ranks of the data axis."""
    if mesh.across is None or not value.ndim:
        return mesh.mean(value)
    parts = [torch.empty_like(value) for _ in range(mesh.replicas)]
    dist.all_gather(parts, value.contiguous(), group=mesh.across)
    return torch.cat(parts)
