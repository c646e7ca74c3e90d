"""One way to run a model on a mesh, as people and files have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .layouts import WHOLE
from .operators import Model
from .search import Placed, Words

AXES = ("data", "model", "axis2", "axis3")
Boxed = tuple[str, str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Plan:
    """One way to run a model on a mesh. `seconds` of a step, `compute` and `moved` of them; `memory` in bytes of the rank that
    needs most. `layouts` has the sbp, for each axis, of the parameters that are split, `inputs` and `outputs`
    those of the batch and of what the model gives, `boxed` the
    conversions that are to be written: (module, operator, from, to); `checkpoint` the modules whose activations are computed
    again. A pipeline has `stages`, the operators that each begins and ends with; where it has `layouts`, they and `boxed` are
    within each stage, over the axis `tensor`. `why` it was not taken."""

    title: str
    seconds: float
    compute: float
    moved: float
    memory: float
    fits: bool
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boxed: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = ()
    zero: int = 0
    zero_axis: str = ""
    checkpoint: tuple[str, ...] = ()
    stages: tuple[tuple[str, str], ...] = ()
    microbatches: int = 0
    schedule: str = ""
    axis: str = ""
    tensor: str = ""
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def conversions(model: Model, placed: Placed) -> tuple[Boxed, ...]:
    """Those that are to be written where the operators are placed so."""
    outs: list[Words] = [placed.input, *(tuple(option.out for option in chosen) for chosen in placed.chosen)]
    boxed = []
    for operator, chosen in zip(model.operators[1:], placed.chosen, strict=True):
        for number, source in enumerate(operator.inputs):
            needs = tuple(option.needs[number] for option in chosen)
            back = source and number == 0 and any(option.sums_back for option in chosen)
            if needs != outs[source] or back:  # a conversion to what it is already sums the gradient
                boxed.append((operator.module, operator.name, words_of(outs[source]), words_of(needs)))
        if any(option.sums for option in chosen):
            partial = tuple("partial_sum" if option.sums else word_of(option.out) for option in chosen)
            boxed.append((operator.module, operator.name, partial, words_of([option.out for option in chosen])))
    return tuple(boxed)


def place_of(model: Model, at: int) -> str:
    operator = model.operators[at]
    return f"{operator.module}.{operator.name}" if operator.module else operator.name


def word_of(layout: int) -> str:
    return "broadcast" if layout == WHOLE else f"split({layout})"


def words_of(layouts: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(word_of, layouts))
