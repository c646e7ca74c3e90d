"""Does a graph do what its module does? Both run on the same fresh rows, at several batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from ...errors import Obstacle
from ...specs import Signature
from ..base.numerics import fresh_rows, largest_difference
from ..base.structure import flatten
from . import source_locations
from .graph_obstacles import ended_by_sigmoid, values_taken
from .obstacles import from_exception, value_needed
from .programs import computing, in_float64
from .rehearsal import rehearse

_LIMIT = 1e-3  # of the output's range; what remains is for the parity check, which knows the model's own noise
_SUM_LIMIT = 5e-3  # what a softmax in bf16 may lack of one
_REPEATED = 6  # how often a module is asked again whether it answers the same
_EXACT = 1e-6  # of the range, in float64, where rounding cannot be the reason
_BESIDE, _STARK = 3, (1.0, 1000.0, -1000.0)  # what the first of three rows stands beside
_OTHER_KERNELS = 5e-2  # of the range: for another layout a GPU's libraries have others, which round to TF32 otherwise
_TESTS_BATCH = "look for code that tests the batch size"
_MIXES = "a row's result depends on the other rows of its batch, so it cannot be batched; look for batch statistics"
_BY_LAYOUT = "what the module answers depends on how its input lies in memory; look for is_contiguous() and stride()"
_VARIES = (
    "the module answers the same input differently each time; look for random numbers (torch, random, numpy), "
    "and for attributes that it changes"
)


def in_behavior(
    module: torch.nn.Module, program: ExportedProgram, example: tuple[torch.Tensor, ...], batches: Sequence[int]
) -> list[Obstacle]:
    """Run module and graph at every batch; they must agree, and rows must not depend on each other."""
    place = source_locations.of_forward(module)
    graph = computing(program)
    rows = tuple(fresh_rows(value, max(batches), seed=index) for index, value in enumerate(example))
    alone: list[torch.Tensor] = []
    for batch in batches:
        inputs = tuple(value[:batch].clone() for value in rows)
        drawn = _python_random_numbers()
        try:
            expected = _tensors(module, inputs)
            draws = drawn != _python_random_numbers()
            actual = graph(*inputs)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it is reported with its place
            return [from_exception(error, code="PG111", prefix=f"captured, but it fails with {batch} rows: ", module=module)]
        if any(value.ndim < 1 or value.shape[0] != batch for value in expected):
            message = f"with {batch} rows the module returns {_shapes(expected)}; give squeeze() its dimension"
            return [Obstacle("PG111", message, *place)]
        alone = alone or [value.detach() for value in expected]
        if [value.shape for value in expected] != [value.shape for value in actual]:
            message = f"with {batch} rows the module returns {_shapes(expected)}, the graph {_shapes(actual)}; {_TESTS_BATCH}"
            return [Obstacle("PG111", message, *place)]
        if (worst := _difference(expected, actual)) > _LIMIT:
            if _varies(module, inputs, expected):
                return [Obstacle("PG109", _VARIES, *place)]
            if decided := [value_needed(*place) for kind, place in rehearse(module, example) if kind == "value"]:
                return decided  # where the code caught what torch.export raised there
            message = f"with {batch} rows the graph differs from the module by {worst:.1e} of its range; {_TESTS_BATCH}"
            return [Obstacle("PG111", message, *place)]
        if draws and _varies(module, inputs, expected):  # the same by chance
            return [Obstacle("PG109", _VARIES, *place)]
        mixed = max(largest_difference(a, b[: a.shape[0]]) for a, b in zip(alone, expected, strict=True))
        if mixed > _LIMIT and _rows_mix(program, inputs):
            return values_taken(program) or [Obstacle("PG107", _MIXES, *place)]
    if _depends_on_neighbors(program, graph, rows):
        return values_taken(program) or [Obstacle("PG107", _MIXES, *place)]
    if _depends_on_layout(module, graph, rows):
        return [Obstacle("PG111", _BY_LAYOUT, *place)]
    return []


def activated(
    module: torch.nn.Module,
    program: ExportedProgram,
    example: tuple[torch.Tensor, ...],
    leaves: Sequence[torch.Tensor],
    signature: Signature,
) -> dict[str, str]:
    """Of a module that answers the example with `leaves`, the outputs that hold probabilities, with what made them: "sigmoid"
    where that ends them and what follows moves values only, "softmax" where values are not below zero and sum to one in each
    row, for the example and fresh rows of several scales."""
    drawn = (
        tuple(fresh_rows(value * scale if value.is_floating_point() else value, 3, seed=seed) for value in example)
        for seed, scale in enumerate((0.5, 1.0, 3.0))
    )
    found = [index for index, value in enumerate(leaves) if _are_probabilities(value)]
    if found:
        for rows in drawn:
            values = _tensors(module, rows)
            found = [index for index in found if _are_probabilities(values[index])]
    made_by = dict.fromkeys(ended_by_sigmoid(program), "sigmoid") | dict.fromkeys(found, "softmax")
    return {signature.outputs[index].name: name for index, name in made_by.items()}


def _are_probabilities(rows: torch.Tensor) -> bool:
    if not rows.is_floating_point() or rows.ndim < 2 or not 2 <= rows.shape[1] == rows[0].numel():
        return False
    sums = rows.detach().double().flatten(1).sum(dim=1)
    return bool((rows >= 0).all() and ((sums - 1).abs() <= _SUM_LIMIT).all())


def _tensors(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[Any]:
    returned = module(*(value.clone() for value in inputs))
    return flatten(returned, torch.is_tensor, lambda where, value: None)[0]


def _varies(module: torch.nn.Module, inputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    return any(_difference(expected, _tensors(module, inputs)) > _LIMIT for _ in range(_REPEATED))


def _python_random_numbers() -> tuple[Any, ...]:
    """The state of the generators whose numbers torch.export takes for constants."""
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return random.getstate(), bytes(np.asarray(keys)), position


def _difference(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> float:
    return max(largest_difference(a, b) for a, b in zip(expected, actual, strict=True))


def _rows_mix(program: ExportedProgram, rows: tuple[torch.Tensor, ...]) -> bool:
    """Whether rows influence each other in float64, where rounding cannot be the reason."""
    graph = computing(in_float64(program))
    double = tuple(value.double() if value.is_floating_point() else value for value in rows)
    together = graph(*double)
    single = graph(*(value[:1] for value in double))
    return max(largest_difference(a, b[:1]) for a, b in zip(single, together, strict=True)) > _EXACT


def _depends_on_neighbors(program: ExportedProgram, graph: Any, rows: tuple[torch.Tensor, ...]) -> bool:
    """Whether the first row comes out otherwise beside rows of other magnitude: what takes a batch's largest value, or a share
    of its mean, may show among usual rows in no more than rounding does."""
    usual = tuple(value[:_BESIDE] for value in rows)
    stark = tuple(_with_stark_neighbors(value) for value in usual)
    try:
        pairs = list(zip(graph(*usual), graph(*stark), strict=True))
        if all(_same_first(*pair) for pair in pairs):
            return False
        exact = computing(in_float64(program))
        found = [exact(*(value.double() if value.is_floating_point() else value for value in some)) for some in (usual, stark)]
    except Exception:  # noqa: BLE001 - a model may check its inputs, and raise what it likes
        return False
    return max(largest_difference(a[:1], b[:1]) for a, b in zip(*found, strict=True)) > _EXACT


def _depends_on_layout(module: torch.nn.Module, graph: Any, rows: tuple[torch.Tensor, ...]) -> bool:
    """Whether the module answers images otherwise whose channels come last in memory, as arrays of pixels that are permuted."""
    if all(value.ndim != 4 for value in rows):
        return False
    inputs = [value[:2].contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value[:2] for value in rows]
    try:
        answered = flatten(module(*inputs), torch.is_tensor, lambda where, value: None)[0]
    except Exception:  # noqa: BLE001 - it may view what only another layout allows; then no script calls it so
        return False
    return _difference(answered, graph(*(value[:2].clone() for value in rows))) > _OTHER_KERNELS


def _with_stark_neighbors(value: torch.Tensor) -> torch.Tensor:
    factors = torch.tensor(_STARK, dtype=torch.float64, device=value.device).view(-1, *[1] * (value.ndim - 1))
    return (value * factors).to(value.dtype) if value.is_floating_point() else value[[0, 2, 1]]


def _same_first(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        torch.equal(one[:1].nan_to_num(), other[:1].nan_to_num())
        if one.is_floating_point()
        else torch.equal(one[:1], other[:1])
    )


def _shapes(values: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(tuple(value.shape)) for value in values)
