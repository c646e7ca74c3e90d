"""How every operator lies on a mesh: dynamic programming over the captured graph, in the order of its execution.

A state is how the values that are still needed lie, with the least cost that leads there. Where one value is needed at a time,
as in a chain, these are few, all are kept, and the result is the best that the rules allow. Elsewhere, as around skip
connections, `WIDTH` states are kept at each operator, the cheapest: a beam search, which may miss the best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .costs import Cost, Costs, divides
from .layouts import WHOLE, Option, options
from .operators import Model

WIDTH = 48
Words = tuple[int, ...]
"""The layouts of a value or a parameter along the axes of the mesh."""


@dataclass(frozen=True)
class Placed:
    """How the operators run, an option for each axis; how the input lies; what each costs, the loss at the end with them."""

    input: Words
    chosen: tuple[tuple[Option, ...], ...]
    costs: tuple[Cost, ...]

    def weights(self, model: Model) -> dict[str, Words]:
        """The layouts of the parameters that are split somewhere."""
        found = {}
        for operator, chosen in zip(model.operators[1:], self.chosen, strict=True):
            words = tuple(option.weight for option in chosen)
            if operator.weights and any(word != WHOLE for word in words):
                found[operator.weights[0]] = words
        return found


def place(
    costs: Costs,
    *,
    price: float = 0.0,
    kept: Mapping[str, tuple[Words, ...]] | None = None,
    allowed: Callable[[int, Option], bool] = lambda axis, option: True,
    start: Words | None = None,
) -> Placed | None:
    """The placement with the least seconds + `price` * bytes of memory; None where nothing divides or is allowed.

    `kept` has, for parameters, the layouts of which one is to be used. `allowed` says of an axis and an option whether it may.
    `start` is how the input lies, where that is not to be chosen.
    """
    model, mesh = costs.model, costs.mesh
    kept = kept or {}
    last = {**model.last, len(model.operators) - 1: len(model.operators)}
    shared = _shared(model)
    starts = [words for words in itertools.product((0, WHOLE), repeat=len(mesh)) if divides(model.operators[0], words, mesh)]
    if start is not None:
        starts = [start]
    # A state's values, each with its layouts: cost, and the way there as a chain of (way, chosen, cost) from the end.
    states: dict[Any, tuple[float, Any]] = {((0, words),): (0.0, (None, words, Cost())) for words in starts}
    ways: dict[Any, list[tuple[tuple[Option, ...], Cost]]] = {}  # of operators that are alike, as those of repeated blocks
    for at, operator in enumerate(model.operators[1:], 1):
        inputs = [model.operators[source] for source in operator.inputs]
        alike = (*costs.signature(at), kept.get(operator.weights[0]) if operator.weights else None)
        tied = any(name in shared for name in operator.weights[:1])
        after: dict[Any, tuple[float, Any]] = {}
        for state, (score, way) in states.items():
            values = dict(state)
            given = tuple(values[source] for source in operator.inputs)
            key = (alike, given)
            if key not in ways:
                ways[key] = _cheapest(
                    [(chosen, costs.of(at, given, chosen)) for chosen in _ways(costs, at, inputs, given, kept, allowed)],
                    price,
                    tied=tied,
                )
            names = [name for name in operator.weights[:1] if name in shared]
            rest = {key: value for key, value in values.items() if not (isinstance(key, int) and last.get(key, -1) <= at)}
            for chosen, cost in ways[key]:
                words = tuple(option.weight for option in chosen)
                if any(values.get(name, words) != words for name in names):
                    continue  # a parameter that several use lies one way
                now = {**rest, at: tuple(option.out for option in chosen)} if at in last else dict(rest)
                now |= dict.fromkeys(names, words)
                now = {key: value for key, value in now.items() if isinstance(key, int) or shared[key] > at}
                lying = tuple(sorted(now.items(), key=str))
                total = score + cost.weighed(price)
                if lying not in after or total < after[lying][0]:
                    after[lying] = (total, (way, chosen, cost))
        states = dict(sorted(after.items(), key=lambda item: item[1][0])[:WIDTH])
    ended = []
    for state, (score, way) in states.items():
        cost = costs.end(dict(state)[len(model.operators) - 1])
        ended.append((score + cost.weighed(price), way, cost))
    if not ended:
        return None
    _, way, end = min(ended, key=lambda item: item[0])
    steps = []
    while way[0] is not None:
        steps.append(way[1:])
        way = way[0]
    steps.reverse()
    return Placed(way[1], tuple(chosen for chosen, _ in steps), (*(cost for _, cost in steps), end))


def _ways(
    costs: Costs,
    at: int,
    inputs: Sequence[Any],
    given: Sequence[Words],
    kept: Mapping[str, tuple[Words, ...]],
    allowed: Callable[[int, Option], bool],
) -> list[tuple[Option, ...]]:
    operator, mesh = costs.model.operators[at], costs.mesh
    choices = []
    for axis in range(len(mesh)):
        found = options(operator, inputs, [words[axis] for words in given])
        choices.append([option for option in found if allowed(axis, option)])
    ways = []
    for chosen in itertools.product(*choices):
        split = operator.kind in ("linear", "conv") and any(option.weight == 0 for option in chosen)
        if not divides(operator, [option.out for option in chosen], mesh, weight=split):
            continue
        if not all(divides(value, [option.needs[number] for option in chosen], mesh) for number, value in enumerate(inputs)):
            continue
        words = tuple(option.weight for option in chosen)
        if any(words not in kept[name] for name in operator.weights[:1] if name in kept):
            continue
        ways.append(chosen)
    return ways


def _cheapest(
    ways: list[tuple[tuple[Option, ...], Cost]], price: float, *, tied: bool
) -> list[tuple[tuple[Option, ...], Cost]]:
    """Of those that leave the result lying alike, and where that matters the parameter, the one with the least cost."""
    found: dict[Any, tuple[float, tuple[tuple[Option, ...], Cost]]] = {}
    for chosen, cost in ways:
        same = (tuple(option.out for option in chosen), tuple(option.weight for option in chosen) if tied else ())
        total = cost.weighed(price)
        if same not in found or total < found[same][0]:
            found[same] = (total, (chosen, cost))
    return [way for _, way in found.values()]


def _shared(model: Model) -> dict[str, int]:
    """Parameters that several operators read first, with the last that does."""
    users: dict[str, list[int]] = {}
    for at, operator in enumerate(model.operators):
        for name in operator.weights[:1]:
            users.setdefault(name, []).append(at)
    return {name: numbers[-1] for name, numbers in users.items() if len(numbers) > 1}
