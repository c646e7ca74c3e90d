"""The pipelines that are weighed: over each axis of a mesh, with the rows or weights within a stage split over others."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from .candidate import AXES, Boxed, Plan, conversions, place_of, words_of
from .costs import STATES, Costs, Settings, with_first
from .layouts import WHOLE, Option
from .operators import Model
from .rates import Rates
from .search import Placed, place
from .stages import Cut, Load, checkpoints, cut, places

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_PRICES = (0.0, 3.0)  # of all memory, in steps: what placements within a stage are searched with


@dataclass(frozen=True)
class _Way:
    """Which axis has the stages, which the rows and which the split weights, if any; and how the operators are placed there."""

    axis: int
    data: int | None
    tensor: int | None = None
    placed: Placed | None = None


def piped_plans(
    model: Model, mesh: tuple[int, ...], rates: Rates, memory: float, optimizer: str, whole: Collection[str] = ()
) -> tuple[list[Plan], list[str]]:
    """Pipelines over each axis, with rows split over another, weights over another, or both; with ZeRO 1 over that of the rows,
    or 3 where nothing less fits, and with activations computed again where one does not fit without. Of each such way the
    number of microbatches and the schedule that are fastest. The parameters `whole` are not split. And why there are none."""
    wide = [axis for axis, ranks in enumerate(mesh) if ranks > 1]
    if not wide:
        return [], []
    if model.uncuttable:
        return [], [f"no pipeline: it takes no {model.uncuttable[0]}, whose numbers would be a microbatch's"]
    if len(mesh) > 3:
        return [], ["no pipeline: it takes a mesh of up to three axes"]
    found, remarks = [], []
    possible = len(places(model)) + 1
    for axis in wide:
        if possible < mesh[axis]:
            remarks.append(
                f"no pipeline over {AXES[axis]}: the graph can be cut into {possible} stages at most, not {mesh[axis]}"
            )
            continue
        ways = list(_shares(axis, [one for one in wide if one != axis], len(mesh)))
        if not ways:
            remarks.append(f"no pipeline over {AXES[axis]}: on a mesh of three axes, rows or weights are split over the others")
            continue
        if not any(_counts(model, mesh, way) for way in ways):
            remarks.append(
                f"no pipeline over {AXES[axis]}: {model.rows} rows do not divide into microbatches; give another --batch"
            )
            continue
        for way in ways:
            for full in _placements(model, mesh, rates, optimizer, way, whole):
                found += _of_way(model, mesh, rates, memory, optimizer, full)
    return found, remarks


def _shares(axis: int, others: Sequence[int], axes: int) -> Iterator[_Way]:
    """What the axes beside the pipeline's may have: rows over one at most, and no axis, however short, may be left over."""
    for data in (*others, None):
        rest = [one for one in others if one != data]
        if len(rest) > 1 or (not rest and axes > 2):
            continue
        yield _Way(axis, data, rest[0] if rest else None)


def _counts(model: Model, mesh: Sequence[int], way: _Way) -> list[int]:
    data = 1 if way.data is None else mesh[way.data]
    return [count for count in _COUNTS if model.rows % (data * count) == 0]


def _placements(
    model: Model, mesh: Sequence[int], rates: Rates, optimizer: str, way: _Way, whole: Collection[str]
) -> Iterator[_Way]:
    """The way itself where no weights are to be split; else the ways to place operators over that axis which split some."""
    if way.tensor is None:
        yield way
        return
    counts = _counts(model, mesh, way)
    if not counts:
        return
    costs = _costs(model, mesh, rates, optimizer, way, min(counts, key=lambda count: abs(count - mesh[way.axis])))
    kept = dict.fromkeys(whole, ((WHOLE,),))
    seen, seconds, size = set(), 0.0, 1.0
    for price in _PRICES:
        placed = place(costs, price=price * seconds / size, kept=kept, allowed=_keeps_rows, start=(WHOLE,))
        if placed is None:
            return
        seconds, size = (
            sum(cost.seconds for cost in placed.costs),
            sum(cost.parameters + cost.activations for cost in placed.costs),
        )
        layouts = tuple(sorted(placed.weights(model).items()))
        if layouts and layouts not in seen:
            seen.add(layouts)
            yield replace(way, placed=placed)


def _keeps_rows(axis: int, option: Option) -> bool:
    """Whether the ranks of the axis have the same rows: a pipeline's have."""
    return option.out != 0 and 0 not in option.needs


def _costs(model: Model, mesh: Sequence[int], rates: Rates, optimizer: str, way: _Way, count: int) -> Costs:
    """Of the operators over the axis of split weights, for the rows of a microbatch."""
    assert way.tensor is not None
    parts = count * (1 if way.data is None else mesh[way.data])
    operators = tuple(
        replace(
            one,
            work=one.work / parts,
            traffic=one.traffic / parts,
            shape=(one.shape[0] // parts, *one.shape[1:]) if one.shape and one.shape[0] % model.rows == 0 else one.shape,
        )
        for one in model.operators
    )
    own = replace(rates, links=(rates.link(way.tensor),))
    settings = Settings(optimizer=optimizer)
    return Costs(replace(model, operators=operators), (mesh[way.tensor],), own, settings, part=1 / parts)


def _loads(costs: Costs, placed: Placed) -> list[Load]:
    model, ranks = costs.model, costs.mesh[0]
    outs = [placed.input, *(tuple(option.out for option in chosen) for chosen in placed.chosen)]
    found = [Load(0.0, 0.0, model.operators[0].bytes, ())]
    for at, chosen in enumerate(placed.chosen, 1):
        operator, (option,) = model.operators[at], chosen
        cost = costs.of(at, [outs[source] for source in operator.inputs], chosen)
        split = [
            option.weight != WHOLE and (not number or with_first(operator, chosen)) for number in range(len(operator.weights))
        ]
        sizes = zip(operator.weights, split, strict=True)
        found.append(
            Load(
                cost.seconds,
                cost.activations,
                operator.bytes / (1 if option.out == WHOLE else ranks),
                tuple(model.weights[name] / (ranks if part else 1) for name, part in sizes),
            )
        )
    last = found[-1]
    return [*found[:-1], replace(last, seconds=last.seconds + costs.end(outs[-1]).forward)]


def _of_way(model: Model, mesh: Sequence[int], rates: Rates, memory: float, optimizer: str, way: _Way) -> list[Plan]:
    """Without ZeRO and with 1, each at its best, or with 3 where neither fits; and with activations computed again too, where
    the fastest does not fit."""
    stages, data = mesh[way.axis], 1 if way.data is None else mesh[way.data]
    counts = _counts(model, mesh, way)
    runs = [(schedule, count) for schedule in ("1f1b", "gpipe") for count in counts if schedule == "gpipe" or count >= stages]
    loads: dict[int, list[Load] | None] = dict.fromkeys(counts)
    if way.placed is not None:
        loads = {count: _loads(_costs(model, mesh, rates, optimizer, way, count), way.placed) for count in counts}

    def all_of(zero: int, again: tuple[str, ...], room: float) -> list[Plan]:
        made = []
        for schedule, count in runs:
            done = cut(
                model, rates, stages=stages, axis=way.axis, data=data, data_axis=way.data, microbatches=count,
                schedule=schedule, optimizer=optimizer, memory=room, zero=zero, again=again, loads=loads[count],
            )  # fmt: skip
            if done is not None:
                made.append(_described(model, mesh, way, done, memory, zero, again, count, schedule))
        return made

    def best(zero: int, again: tuple[str, ...], room: float) -> Plan | None:
        return min(all_of(zero, again, room), key=lambda one: one.seconds, default=None)

    def least(zero: int, again: tuple[str, ...]) -> Plan | None:
        return min(all_of(zero, again, math.inf), key=lambda one: one.memory, default=None)

    found: list[Plan] = []
    modules = checkpoints(model)[0]
    for zero in (0,) if data == 1 else (0, 1, 3) if STATES[optimizer] else (0, 3):
        if zero == 3 and any(one.fits for one in found):
            break
        free = best(zero, (), math.inf)
        if free is not None and free.fits:
            found.append(free)
            continue
        for again in ((), modules) if modules else ((),):
            found += filter(None, [best(zero, again, memory) or least(zero, again)])
    return found


def _described(
    model: Model, mesh: Sequence[int], way: _Way, done: Cut, memory: float, zero: int, again: tuple[str, ...], count: int,
    schedule: str,
) -> Plan:  # fmt: skip
    parts = [f"pipeline of {mesh[way.axis]} stages over {AXES[way.axis]}"]
    inputs = ["broadcast"] * len(mesh)
    if way.data is not None:
        parts.append(f"data parallel over {AXES[way.data]}")
        inputs[way.data] = "split(0)"

    def on_mesh(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(words[0] if axis == way.tensor else "broadcast" for axis in range(len(mesh)))

    layouts: dict[str, tuple[str, ...]] = {}
    boxed: tuple[Boxed, ...] = ()
    outputs = tuple(inputs)
    if way.placed is not None and way.tensor is not None:
        layouts = {name: on_mesh(words_of(words)) for name, words in way.placed.weights(model).items()}
        boxed = tuple(
            (module, name, on_mesh(before), on_mesh(after)) for module, name, before, after in conversions(model, way.placed)
        )
        what = " and ".join(layouts) if len(layouts) < 3 else f"{len(layouts)} parameters"
        parts.append(f"{what} split over {AXES[way.tensor]}")
        last = words_of([option.out for option in way.placed.chosen[-1]])[0]
        outputs = tuple(last if axis == way.tensor else word for axis, word in enumerate(inputs))
    if zero and way.data is not None:
        parts.append(f"ZeRO {zero} over {AXES[way.data]}")
    if again:
        parts.append("activations computed again")
    begins = (0, *done.ends[:-1])
    return Plan(
        title=", ".join(parts),
        seconds=done.seconds,
        compute=done.seconds - done.moved,
        moved=done.moved,
        memory=max(done.memory),
        fits=max(done.memory) <= memory,
        inputs=tuple(inputs),
        outputs=outputs,
        layouts=layouts,
        boxed=boxed,
        zero=zero,
        zero_axis=AXES[way.data] if zero and way.data is not None else "",
        checkpoint=again,
        stages=tuple((place_of(model, begin + 1), place_of(model, end)) for begin, end in zip(begins, done.ends, strict=True)),
        microbatches=count,
        schedule=schedule,
        axis=AXES[way.axis],
        tensor=AXES[way.tensor] if layouts and way.tensor is not None else "",
    )
