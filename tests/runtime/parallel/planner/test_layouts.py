"""How layouts pass through operators."""

import pytest

from headrace.runtime.parallel.planner.layouts import WHOLE, options
from headrace.runtime.parallel.planner.operators import Operator


def op(kind, shape, dims=(), **more):
    return Operator("x", kind, "", (0,), shape, 4, dims=dims, **more)


def outs(operator, shape, layout):
    value = Operator("v", "pointwise", "", (), shape, 4)
    return {option.out for option in options(operator, [value], [layout]) if option.needs == (layout,)}


@pytest.mark.parametrize(
    ("operator", "shape", "layout", "expected"),
    [
        (op("view", (4, 10, 8, 8)), (4, 10, 64), 2, {2}),  # heads come first
        (op("view", (4, 10, 64)), (4, 10, 8, 8), 2, {2}),
        (op("view", (4, 10, 64)), (4, 10, 8, 8), 3, set()),  # what lies within
        (op("view", (40, 64)), (4, 10, 64), 0, {0}),
        (op("view", (40, 64)), (4, 10, 64), 1, set()),
        (op("permute", (4, 8, 10, 8), (0, 2, 1, 3)), (4, 10, 8, 8), 2, {1}),
        (op("last_dim", (4, 10, 64), (2,)), (4, 10, 64), 2, set()),
        (op("last_dim", (4, 10, 64), (2,)), (4, 10, 64), 1, {1}),
        (op("pool", (4, 8), (2, 3)), (4, 8, 5, 5), 1, {1}),
        (op("pool", (4, 8), (2, 3)), (4, 8, 5, 5), 2, set()),
        (op("cut", (4, 8), (1,)), (4, 3, 8), 2, {1}),
        (op("pointwise", (4, 8)), (8,), 0, {1}),
        (op("batch_norm", (4, 8, 5, 5)), (4, 8, 5, 5), 0, {0}),
        (op("batch_norm", (4, 8, 5, 5)), (4, 8, 5, 5), 1, set()),
        (op("attention", (4, 8, 10, 8)), (4, 8, 10, 8), 1, {1}),
        (op("attention", (4, 8, 10, 8)), (4, 8, 10, 8), 2, set()),
        (op("other", (4, 8)), (4, 8), 0, {0}),
        (op("other", (4, 8)), (4, 8), 1, set()),
    ],
)
def test_a_layout_passes(operator, shape, layout, expected):
    assert outs(operator, shape, layout) == expected


def test_there_is_always_a_way():
    for kind in (
        "view",
        "permute",
        "last_dim",
        "cut",
        "pool",
        "pointwise",
        "matmul",
        "attention",
        "other",
        "item",
        "embedding",
    ):
        value = Operator("v", "pointwise", "", (), (6, 5), 4)
        assert options(op(kind, (6, 5)), [value, value], [1, WHOLE])


def test_weights_are_split_by_rows_or_columns_where_they_are_weights():
    linear = op("linear", (4, 8), weights=("w",), direct=True)
    value = Operator("v", "pointwise", "", (), (4, 8), 4)
    found = {(option.needs[0], option.weight, option.out) for option in options(linear, [value], [0])}
    assert found == {(WHOLE, WHOLE, WHOLE), (0, WHOLE, 0), (WHOLE, 0, 1), (1, 1, WHOLE), (1, 1, 0)}
    conv = op("conv", (4, 8, 5, 5), weights=("w",), direct=True)
    assert all(option.weight == WHOLE for option in options(conv, [value], [0]))
