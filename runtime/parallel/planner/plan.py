"""`plan`: the placements that were weighed for a model on a mesh, the fastest that fits first."""

from __future__ import annotations

import fnmatch
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....errors import InputError
from .candidate import AXES, Plan, conversions, words_of
from .costs import STATES, Costs, Settings, of_all
from .layouts import WHOLE, Option
from .operators import Model
from .pipelines import piped_plans
from .rates import Rates
from .search import Placed, Words, place
from .stages import checkpoints

_PRICES = (0.3, 3.0, 30.0)
ALIKE = 0.05
"""The share of the fastest plan's time within which a simpler one is taken, since no prediction is that exact."""


@dataclass(frozen=True)
class Planned:
    """`best`, the others from the fastest on, then those that do not fit, and remarks on what was not weighed."""

    best: Plan
    others: tuple[Plan, ...]
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        others = [other.to_json() for other in self.others]
        return {"plan": self.best.to_json(), "others": others, "remarks": list(self.remarks)}


def read_mesh(text: str) -> tuple[int, ...]:
    """ "2x4" as (2, 4). Raises InputError."""
    if not re.fullmatch(r"\d{1,6}(x\d{1,6}){0,3}", text) or 0 in map(int, text.split("x")):
        raise InputError(f"--mesh is the lengths of up to four axes, as 2x4 or 8; got {text!r}")
    return tuple(map(int, text.split("x")))


def read_memory(text: str) -> float:
    """ "80GB" in bytes; GiB and MiB are powers of two. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B", text.strip())
    if not found or not float(found[1]):
        raise InputError(f"--memory is that of one rank, as 80GB or 512MiB; got {text!r}")
    unit = found[2] or ""
    return float(found[1]) * (1024 if unit.endswith("i") else 1000) ** " KMGT".index(unit[:1] or " ")


def read_keep(given: Sequence[str], model: Model, mesh: Sequence[int]) -> dict[str, tuple[Words, ...]]:
    """ "head=split(0)" for each parameter that it names, with * and ?: the layouts of which one must be. One word is meant for
    any one axis of the mesh, with the others broadcast; several, with commas between, are for the axes in turn. Raises
    InputError."""
    kept: dict[str, tuple[Words, ...]] = {}
    firsts = {operator.weights[0] for operator in model.operators if operator.weights}
    for one in given:
        pattern, equals, words = one.partition("=")
        parts = [part.strip() for part in words.split(",")]
        read = [re.fullmatch(r"split\((\d+)\)|broadcast", part) for part in parts]
        if not equals or not all(read) or len(parts) not in (1, len(mesh)):
            raise InputError(
                f"--keep {one}: it is NAME=split(0), NAME=broadcast, or with commas one for each of {len(mesh)} axes"
            )
        layouts = tuple(
            WHOLE if part == "broadcast" else int(found[1]) for part, found in zip(parts, read, strict=True) if found
        )
        choices: tuple[Words, ...] = (layouts,)
        if len(parts) == 1:
            choices = tuple(tuple(layouts[0] if at == axis else WHOLE for at in range(len(mesh))) for axis in range(len(mesh)))
        names = [name for name in model.weights if fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")]
        if not names:
            shown = ", ".join(itertools.islice(sorted(firsts), 12))
            raise InputError(f"--keep names {pattern!r}, which is no parameter and no module with one; there are {shown}, ...")
        kept |= dict.fromkeys((name for name in names if name in firsts), choices)
    return kept


def plan(
    model: Model,
    mesh: tuple[int, ...],
    rates: Rates,
    memory: float,
    *,
    kept: Mapping[str, tuple[Words, ...]] | None = None,
    training: bool = True,
    optimizer: str = "adam",
) -> Planned:
    """Weigh placements of the operators, stages of ZeRO, activation checkpointing and pipelines, by predicted time of a step.

    `memory` is that of a rank in bytes. Of plans within `ALIKE` of the fastest the simplest is taken. Raises InputError where
    nothing fits, with the least that would, and where `kept` cannot be.
    """
    kept = dict(kept or {})
    if optimizer not in STATES:
        raise InputError(f"--optimizer is one of {', '.join(STATES)}; got {optimizer!r}")
    settings = Settings(training=training, optimizer=optimizer)
    found = list(_placed(model, mesh, rates, memory, kept, settings))
    if not found:
        words = ", ".join(kept) or "the operators"
        raise InputError(f"no placement of {words} is possible on a mesh of {'x'.join(map(str, mesh))}; leave out --keep")
    remarks: list[str] = []
    if training and not any(layout != WHOLE for choices in kept.values() for words in choices for layout in words):
        piped, remarks = piped_plans(model, mesh, rates, memory, optimizer, kept)
        found += piped
    unique: dict[tuple[str, bool], Plan] = {}
    for one in sorted(found, key=lambda one: (not one.fits, one.seconds if one.fits else one.memory)):
        same = (one.title, one.fits)
        unique.setdefault(same, one)
    ordered = list(unique.values())
    best = min(
        (one for one in ordered if one.fits == ordered[0].fits and one.seconds <= (1 + ALIKE) * ordered[0].seconds),
        key=lambda one: len(one.layouts) + len(one.boxed) + one.zero + len(one.stages),
    )
    if not ordered[0].fits:
        best = ordered[0]
    others = [one for one in ordered if one is not best]
    if not best.fits:
        raise InputError(
            f"nothing fits into {size(memory)} a rank: the least is {size(best.memory)}, of {best.title}; give a mesh of more "
            "ranks, a smaller --batch or --optimizer sgd"
        )
    return Planned(best, tuple(replace(other, why=_why(best, other, memory)) for other in others), tuple(remarks))


def _placed(
    model: Model, mesh: tuple[int, ...], rates: Rates, memory: float, kept: Mapping[str, tuple[Words, ...]], base: Settings
) -> Iterator[Plan]:
    again = checkpoints(model)
    wide = [axis for axis, ranks in enumerate(mesh) if ranks > 1]
    zeros = [(0, 0), *itertools.product((1, 2, 3), wide)] if base.training else [(0, 0)]

    def rows_only(axis: int, option: Option) -> bool:
        return option.weight == WHOLE and option.out == 0

    def split_over(chosen: int) -> Any:
        return lambda axis, option: option.out != 0 if axis == chosen else rows_only(axis, option)

    for zero, axis in zeros:
        ways: list[Any] = [lambda axis, option: True, rows_only]
        if not zero:
            ways += [split_over(one) for one in wide]
            ways.append(lambda axis, option: option.out == WHOLE and option.weight == WHOLE)
        for way in ways:
            for computed_again in (False, True) if base.training and again[0] else (False,):
                settings = replace(base, zero=zero, axis=axis, checkpoint=computed_again)
                costs = Costs(model, mesh, rates, settings)
                placed = place(costs, kept=kept, allowed=way)
                if placed is None:
                    break
                if zero and not any(cost.gathered for cost in placed.costs):
                    break  # it cuts nothing
                made = _described(costs, placed, memory, again)
                yield made
                if made.fits:
                    break
                if way is ways[0]:
                    for times in _PRICES:
                        cheaper = place(costs, price=times * made.seconds / made.memory, kept=kept)
                        if cheaper is not None:
                            yield _described(costs, cheaper, memory, again)


def _described(costs: Costs, placed: Placed, memory: float, again: tuple[tuple[str, ...], float]) -> Plan:
    model, mesh, settings = costs.model, costs.mesh, costs.settings
    total, needed = of_all(costs, placed.costs, again[1])
    updated = costs.updated(total.parameters)
    layouts = placed.weights(model)
    outs: list[Words] = [placed.input, *(tuple(option.out for option in chosen) for chosen in placed.chosen)]
    rows = [axis for axis in range(len(mesh)) if mesh[axis] > 1 and any(words[axis] == 0 for words in outs[:-1])]
    return Plan(
        title=_title(layouts, rows, settings, mesh),
        seconds=total.seconds + updated,
        compute=total.compute + updated,
        moved=total.forward + total.backward,
        memory=needed,
        fits=needed <= memory,
        inputs=words_of(placed.input),
        outputs=words_of(outs[-1]),
        layouts={name: words_of(words) for name, words in layouts.items()},
        boxed=conversions(model, placed),
        zero=settings.zero,
        zero_axis=AXES[settings.axis] if settings.zero else "",
        checkpoint=again[0] if settings.checkpoint else (),
    )


def _title(layouts: Mapping[str, Words], rows: Sequence[int], settings: Settings, mesh: Sequence[int]) -> str:
    parts = []
    if rows:
        parts.append(f"data parallel over {' and '.join(AXES[axis] for axis in rows)}")
    split = [axis for axis, ranks in enumerate(mesh) if ranks > 1 and any(words[axis] != WHOLE for words in layouts.values())]
    if split:
        names = list(layouts)
        what = " and ".join(names) if len(names) < 3 else f"{len(names)} parameters"
        parts.append(f"{what} split over {' and '.join(AXES[axis] for axis in split)}")
    if not parts:
        parts.append("one rank's work on every rank" if math.prod(mesh) > 1 else "one rank")
    if settings.zero:
        parts.append(f"ZeRO {settings.zero} over {AXES[settings.axis]}")
    if settings.checkpoint:
        parts.append("activations computed again")
    return ", ".join(parts)


def size(count: float) -> str:
    """Bytes for people: 3.20 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def duration(seconds: float) -> str:
    """Seconds for people: 12.3 ms."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def _why(best: Plan, other: Plan, memory: float) -> str:
    if not other.fits:
        return f"needs {size(other.memory)} of {size(memory)}"
    more = []
    for name, ours, theirs in (("computes", best.compute, other.compute), ("moves or waits", best.moved, other.moved)):
        if abs(theirs - ours) > 0.005 * best.seconds:
            more.append(f"{name} {duration(abs(theirs - ours))} {'more' if theirs > ours else 'less'}")
    slower = other.seconds / best.seconds - 1
    said = f"{100 * slower:.0f} % slower" if slower >= 0.005 else "as fast, and less simple"
    return ": ".join(filter(None, [said, ", ".join(more)]))
