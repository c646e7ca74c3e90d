"""What an operator costs a rank of a mesh that runs it in a certain way: seconds, and bytes of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .layouts import WHOLE, Option
from .operators import NO_COPY, Model, Operator
from .rates import Rates

STATES = {"adam": 2, "momentum": 1, "sgd": 0}
"""How many numbers an optimizer keeps for each of a parameter's."""


@dataclass(frozen=True)
class Settings:
    """What is decided for the whole model: whether it trains and with which optimizer, the stage of ZeRO and over which axis,
    and whether activations are computed again in the backward pass."""

    training: bool = True
    optimizer: str = "adam"
    zero: int = 0
    axis: int = 0
    checkpoint: bool = False


@dataclass(frozen=True)
class Cost:
    """Of one rank: seconds that it computes, that it moves data in the forward pass and afterwards; bytes of what belongs to
    parameters, and of the activations that stay until the backward pass; and bytes of parameters while they are used."""

    compute: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    parameters: float = 0.0
    activations: float = 0.0
    gathered: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.forward + self.backward

    def weighed(self, price: float) -> float:
        """Seconds, and `price` of them for each byte that stays."""
        return self.seconds + price * (self.parameters + self.activations)

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self.fields, other.fields, strict=True)))

    @property
    def fields(self) -> tuple[float, ...]:
        return self.compute, self.forward, self.backward, self.parameters, self.activations, self.gathered


@dataclass(frozen=True)
class Costs:
    """Of a model's operators on a mesh of these sizes. `part` is the share of a step's rows that the model has."""

    model: Model
    mesh: tuple[int, ...]
    rates: Rates
    settings: Settings
    part: float = 1.0

    def signature(self, at: int) -> tuple[object, ...]:
        """What `of` depends on: operators with the same cost the same wherever they are."""
        operator = self.model.operators[at]
        values = [self.model.operators[source] for source in operator.inputs]
        return (
            operator.kind, operator.direct, operator.work, operator.traffic, operator.shape, operator.itemsize, operator.dims,
            tuple((value.shape, value.itemsize, source == 0) for value, source in zip(values, operator.inputs, strict=True)),
            tuple((self.model.weights[name], self.model.uses[name][0] == at) for name in operator.weights),
            self.rates.operators.get(operator.name),
        )  # fmt: skip

    def of(self, at: int, inputs: Sequence[Sequence[int]], chosen: Sequence[Option]) -> Cost:
        """Of an operator: `inputs` has for each of its inputs the layouts along all axes, `chosen` an option for each axis."""
        operator = self.model.operators[at]
        share = 1.0 / math.prod(size for size, option in zip(self.mesh, chosen, strict=True) if option.shared)
        training = self.settings.training
        compute = self.rates.seconds(
            operator.kind,
            operator.work * share,
            operator.traffic * share,
            training=training,
            name=operator.name,
            share=share * self.part,
        )
        if self.settings.checkpoint:
            compute *= 4 / 3
        out = [option.out for option in chosen]
        forward = backward = 0.0
        for number, source in enumerate(operator.inputs):
            value = self.model.operators[source]
            there, back = self.converted(value, inputs[number], [option.needs[number] for option in chosen])
            forward, backward = forward + there, backward + back
        for axis, option in enumerate(chosen):
            link, size = self.rates.link(axis), self.mesh[axis]
            if option.sums:
                whole = operator.bytes * self._share(out, without=axis)
                forward += link.seconds("all_reduce" if option.out == WHOLE else "reduce_scatter", whole, size)
                backward += link.seconds("all_gather", whole, size) if option.out != WHOLE else 0.0
            # A value that is split comes whole by a conversion, whose way back is the sum.
            if option.sums_back and operator.inputs[0] and inputs[0][axis] == WHOLE:
                needs = [one.needs[0] for one in chosen]
                whole = self.model.operators[operator.inputs[0]].bytes * self._share(needs, without=axis)
                backward += link.seconds("all_reduce", whole, size)
            if operator.kind == "batch_norm" and option.shared:  # mean and variance of all rows
                sums = 2 * operator.shape[1] * 4.0
                forward += link.seconds("all_reduce", sums, size)
                backward += link.seconds("all_reduce", sums, size)
        cost = Cost(compute, forward, backward if training else 0.0, activations=self._kept(operator) * self._share(out))
        for number, name in enumerate(operator.weights):
            cost += self._parameter(name, at, chosen, number == 0 or with_first(operator, chosen))
        return cost

    def converted(self, value: Operator, before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
        """Seconds forwards and backwards to bring a value from these layouts to those; its gradient goes back as it came."""
        forward = backward = 0.0
        now = list(before)
        for axis, need in enumerate(after):
            if now[axis] == need:
                continue
            whole = value.bytes * self._share(now, without=axis)
            link, size = self.rates.link(axis), self.mesh[axis]
            if need == WHOLE:
                forward += link.seconds("all_gather", whole, size)
                backward += link.seconds("reduce_scatter", whole, size)
            elif now[axis] == WHOLE:
                backward += link.seconds("all_gather", whole, size) if value.kind != "input" else 0.0
            else:
                forward += link.seconds("all_to_all", whole, size)
                backward += link.seconds("all_to_all", whole, size)
            now[axis] = need
        return forward, backward

    def end(self, layouts: Sequence[int]) -> Cost:
        """Of the loss over the scores, or of the choice of the best, where they lie so."""
        scores = self.model.operators[-1]
        local = scores.bytes * self._share(layouts)
        seconds = self.rates.seconds("memory", 0.0, 2 * local, training=self.settings.training)
        split = scores.shape[0] * 3 * 4.0  # of classes: three numbers for each row, else the sum alone
        moved = sum(
            self.rates.link(axis).seconds("all_reduce", split if layout else 4.0, self.mesh[axis])
            for axis, layout in enumerate(layouts)
            if layout != WHOLE
        )
        return Cost(seconds, moved, activations=local)

    def updated(self, parameters: float) -> float:
        """Seconds of the optimizer, where parameters, gradients and states take so many bytes; those of Adam hold for all."""
        states = 2 + STATES[self.settings.optimizer]
        return parameters / states / self.rates.updates * (states / 4) if self.settings.training else 0.0

    def _parameter(self, name: str, at: int, chosen: Sequence[Option], split: bool) -> Cost:
        settings = self.settings
        size = float(self.model.weights[name])
        weight = [option.weight if split else WHOLE for option in chosen]
        for axis, option in enumerate(chosen):
            if split and option.weight != WHOLE:
                size /= self.mesh[axis]
        cut = self.mesh[settings.axis] if settings.zero and weight[settings.axis] == WHOLE else 1
        first = self.model.uses[name][0] == at  # whose memory is counted there
        if not settings.training:
            return Cost(parameters=size if first else 0.0)
        forward = backward = 0.0
        for axis, option in enumerate(chosen):
            link, ranks = self.rates.link(axis), self.mesh[axis]
            summed = option.shared and weight[axis] == WHOLE
            if option.sums and not split:  # the bias of partial sums is added to what is whole again
                summed = option.out != WHOLE
            if cut > 1 and axis == settings.axis:
                forward += link.seconds("all_gather", size, ranks)
                backward += link.seconds("all_gather", size, ranks) if settings.zero == 3 else 0.0
                if summed:
                    backward += link.seconds("all_reduce" if settings.zero == 1 else "reduce_scatter", size, ranks)
            elif summed:
                backward += link.seconds("all_reduce", size / (cut if settings.zero > 1 else 1), ranks)
        kept = size / cut * (2 + STATES[settings.optimizer])
        return Cost(
            forward=forward, backward=backward, parameters=kept if first else 0.0, gathered=size if cut > 1 and first else 0.0
        )

    def _kept(self, operator: Operator) -> float:
        return operator.bytes if operator.kind not in NO_COPY else 0.0

    def _share(self, layouts: Sequence[int], without: int = -1) -> float:
        return 1.0 / math.prod(size for axis, size in enumerate(self.mesh) if layouts[axis] != WHOLE and axis != without)


def with_first(operator: Operator, chosen: Sequence[Option]) -> bool:
    """Whether the parameters beside the first are split with it: a bias with its weight's rows."""
    return operator.kind == "linear" and all(option.weight in (WHOLE, 0) for option in chosen)


def divides(operator: Operator, layouts: Sequence[int], mesh: Sequence[int], weight: bool = False) -> bool:
    """Whether a value can be split so: evenly, but for the rows of a weight, whose last share may be smaller."""
    for dim in set(layouts) - {WHOLE}:
        ranks = math.prod(size for size, layout in zip(mesh, layouts, strict=True) if layout == dim)
        if dim >= len(operator.shape) or operator.shape[dim] < ranks:
            return False
        if operator.shape[dim] % ranks and not weight:
            return False
    return True


def of_all(costs: Costs, parts: Sequence[Cost], checkpoint_share: float) -> tuple[Cost, float]:
    """The sum, and the bytes of memory that a rank needs at most."""
    total = Cost()
    for part in parts:
        total += part
    activations = total.activations * (checkpoint_share if costs.settings.checkpoint else 1.0)
    if not costs.settings.training:  # one after another: what an operator takes and gives
        activations = 2 * max(part.activations for part in parts)
    if costs.settings.checkpoint:
        total = replace(total, backward=total.backward + total.forward)
    gathered = max((part.gathered for part in parts), default=0.0) * 2 if costs.settings.zero == 3 else total.gathered
    return replace(total, activations=activations), total.parameters + gathered + activations
