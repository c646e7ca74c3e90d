"""Where a pipeline cuts a model into stages: dynamic programming over the places where one value alone passes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ..buckets import BUCKET_BYTES
from .costs import STATES
from .operators import NO_COPY, Model
from .rates import Rates

# What ranks exchange of a parameter, by the stage of ZeRO: after all microbatches, with 3 in each of them.
_WAYS = {
    0: ("all_reduce",),
    1: ("all_reduce", "all_gather"),
    3: ("all_gather", "all_gather", "reduce_scatter"),
}


@dataclass(frozen=True)
class Cut:
    """A pipeline: `ends` are the numbers of the last operators of its stages; `seconds` of a step, of which `moved` is not
    spent computing, and for each stage the bytes of memory."""

    ends: tuple[int, ...]
    seconds: float
    moved: float
    memory: tuple[float, ...]


def places(model: Model) -> list[int]:
    """Operators after which their result alone is needed, and a module begins: where a chain of modules can be cut."""
    reach, found = 0, []
    for at in range(1, len(model.operators) - 1):
        reach = max(reach, model.last.get(at - 1, 0))
        if reach <= at and model.last.get(at, 0) > at:
            found.append(at)
    spans = [(numbers[0], numbers[-1]) for numbers in model.uses.values() if numbers[0] != numbers[-1]]
    own = starts(model)
    return [
        at for at in found if at + 1 in own and at >= own[0] and not any(first <= at < end for first, end in spans)
    ]  # shared parameters stay on one rank


def starts(model: Model) -> list[int]:
    """The operators with which a stage can begin, as `Graph.set_stage` says it: the first of a module that is called once, and
    calls no other."""
    return [
        numbers[0]
        for name, numbers in model.inside.items()
        if numbers[-1] - numbers[0] == len(numbers) - 1 and all(model.operators[at].module == name for at in numbers)
    ]


@dataclass(frozen=True)
class Load:
    """What an operator takes of each rank of its stage: seconds of a microbatch, both ways; bytes that stay of a microbatch
    until its way back, and that its result has; and bytes of each of its parameters."""

    seconds: float
    kept: float
    result: float
    weights: tuple[float, ...]


def whole_loads(model: Model, rates: Rates, parts: int) -> list[Load]:
    """Those of operators that are not split, of which a rank has one of `parts` of the rows at a time."""
    share, found = 1 / parts, []
    for operator in model.operators:
        seconds = rates.seconds(
            operator.kind, operator.work * share, operator.traffic * share, training=True, name=operator.name, share=share
        )
        kept = 0.0 if operator.kind in NO_COPY else operator.bytes * share
        sizes = tuple(float(model.weights[name]) for name in operator.weights)
        found.append(Load(seconds, kept, operator.bytes * share, sizes))
    return found


def cut(
    model: Model, rates: Rates, *, stages: int, axis: int, data: int, data_axis: int | None, microbatches: int,
    schedule: str, optimizer: str, memory: float, zero: int = 0, again: Sequence[str] = (), loads: Sequence[Load] | None = None,
) -> Cut | None:  # fmt: skip
    """The cuts with the least time of a step in which each stage fits into `memory` bytes; None where there are none.

    A microbatch passes its stages in turn and each microbatch after the first takes as long as the slowest stage: Huang et al.
    2019 (GPipe), Narayanan et al. 2019 (PipeDream), whose dynamic programming over stage and place this is. Where ranks share
    cores, those that wait leave theirs to the others: a step takes as long as its longest chain on ranks that are not crowded,
    or as all its work takes while all compute, whichever is longer (Graham 1969, "Bounds on Multiprocessing Timing Anomalies").
    "1f1b" keeps the activations of as many microbatches as there are stages from there to the end at most, "gpipe" all.
    With `zero` 1 the `data` ranks of a stage share out the optimizer's state and gather the parameters that each updates; with
    3 all that belongs to parameters, gather them for each microbatch's two ways, and sum its gradients, a bucket at a time.
    Of the modules `again`, each in one stage, the forward pass is computed twice, and what is inside one of them at a time
    stays (Chen et al. 2016). `loads` are those of operators that are split over ranks of their own, for each operator.
    """
    inside = {at: name for name in again for at in model.inside[name]}
    inner = {at for at, name in inside.items() if at != model.inside[name][-1]}
    ends = [0, *(at for at in places(model) if at not in inner), len(model.operators) - 1]
    if len(ends) - 1 < stages:
        return None
    parts = data * microbatches
    given = whole_loads(model, rates, parts) if loads is None else loads
    times, kept = [0.0], [0.0]
    weights, synced = [0.0], [0.0]
    most: list[tuple[int, float]] = []  # where a module of `again` ends, and what is inside it
    link, held = rates.link(data_axis or 0), 0.0
    for at, operator in enumerate(model.operators[1:], 1):
        load = given[at]
        times.append(times[-1] + load.seconds * (4 / 3 if at in inside else 1.0))
        kept.append(kept[-1] + (0.0 if at in inner else load.kept))
        held = held + load.kept if at in inner else held
        if at in inside and at not in inner:
            most.append((at, held))
            held = 0.0
        of = dict(zip(operator.weights, load.weights, strict=True))
        new = [size for name, size in of.items() if model.uses[name][0] == at]
        weights.append(weights[-1] + sum(new))
        synced.append(synced[-1] + sum(link.seconds(way, size, data) for size in new for way in _WAYS[zero]))
    own = data if zero else 1
    between = rates.link(axis)
    passing = {at: 2 * between.seconds("point_to_point", given[at].result, 2) for at in ends}  # back, too
    under_way = [min(microbatches, stages - number) if schedule == "1f1b" else microbatches for number in range(stages)]
    state = (2 + STATES[optimizer]) / own if zero == 3 else 2 + STATES[optimizer] / own
    updated = (2 + STATES[optimizer]) / 4 / rates.updates / own

    def stage(number: int, begin: int, end: int) -> tuple[float, float, float]:
        """Seconds of a microbatch, of what comes after all, and bytes; from after the operator `begin` up to `end`."""
        whole = weights[end] - weights[begin]
        activations = (kept[end] - kept[begin] + given[begin].result) * under_way[number]
        if most:
            activations += max((size for at, size in most if begin < at <= end), default=0.0)
        moved = (passing[begin] if number > 0 else 0.0) + (passing[end] if number < stages - 1 else 0.0)
        exchanged, size = synced[end] - synced[begin], activations + whole * state
        each, once = (exchanged, 0.0) if zero == 3 else (0.0, exchanged)
        if zero == 3:
            size += 2 * min(whole, BUCKET_BYTES)
        return times[end] - times[begin] + moved + each, once + whole * updated, size

    def step(slowest: float, total: float, latest: float) -> float:
        chain = (total + (microbatches - 1) * slowest) / min(rates.crowding, stages)
        return max(chain, microbatches * total / stages) + latest

    # For the place where a stage ends: seconds of a step of all up to it; the slowest stage, the sum of all, the longest that
    # follows; the ends.
    best: dict[int, tuple[float, float, float, float, tuple[int, ...]]] = {0: (0.0, 0.0, 0.0, 0.0, ())}
    for number in range(stages):
        found: dict[int, tuple[float, float, float, float, tuple[int, ...]]] = {}
        left = len(ends) - (stages - 1 - number)  # each stage that follows ends at a place of its own
        for begin, (_, slowest, total, latest, taken) in best.items():
            for end in ends[-1:] if number == stages - 1 else ends[bisect_right(ends, begin) : left]:
                seconds, after, size = stage(number, begin, end)
                if size > memory:
                    break  # with more operators it has no less
                now = (max(slowest, seconds), total + seconds, max(latest, after))
                of_step = step(*now)
                if end not in found or of_step < found[end][0]:
                    found[end] = (of_step, *now, (*taken, end))
        best = found
    if ends[-1] not in best:
        return None
    seconds, *_, chosen = best[ends[-1]]
    begins = (0, *chosen[:-1])
    sizes = tuple(stage(number, begin, end)[2] for number, (begin, end) in enumerate(zip(begins, chosen, strict=True)))
    return Cut(chosen, seconds, max(0.0, seconds - microbatches * times[-1] / stages), sizes)


def checkpoints(model: Model) -> tuple[tuple[str, ...], float]:
    """The modules whose activations are to be computed again, and the share of all activations that stays.

    What goes into and out of them stays, and one of them at a time has its own (Chen et al. 2016): of the sizes that modules
    have, the most that one may have is what leaves the least. None has a batch normalization, whose running statistics would
    count a batch twice.
    """
    kept = [0.0 if operator.kind in NO_COPY else operator.bytes for operator in model.operators]
    inner: dict[str, float] = {}  # the outermost first
    for name in sorted(model.called, key=lambda name: name.count(".")):
        numbers = model.inside.get(name, [])
        together = bool(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1
        if together and not any(model.operators[at].kind == "batch_norm" for at in numbers):
            inner[name] = sum(kept[at] for at in numbers[:-1])
    best: tuple[tuple[str, ...], float] = ((), 1.0)
    for most in sorted(set(inner.values()) - {0.0}):
        outer: dict[int, str] = {}
        for name, size in inner.items():
            if 0 < size <= most and not any(at in outer for at in model.inside[name]):
                outer.update(dict.fromkeys(model.inside[name], name))
        names = tuple(dict.fromkeys(outer[at] for at in sorted(outer)))
        sizes = [inner[name] for name in names]
        share = 1.0 - (sum(sizes) - max(sizes)) / sum(kept)
        if share < best[1]:
            best = names, share
    return best
