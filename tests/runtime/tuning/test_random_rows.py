"""Rows for measuring: of every input's type and shape, and the same each time."""

import numpy as np

from headrace.runtime.tuning.random_rows import random_rows
from headrace.specs import Signature, TensorSpec


def test_every_input_gets_values_that_it_takes():
    shapes = {"float32": (3, 4), "float16": (2,), "uint8": (50, 50), "int64": (5,)}
    inputs = tuple(TensorSpec(name=dtype, dtype=dtype, shape=("batch", *shape)) for dtype, shape in shapes.items())
    signature = Signature(inputs=inputs, outputs=inputs[:1])
    rows = random_rows(signature, 7)
    assert [(row.dtype.name, row.shape) for row in rows] == [(dtype, (7, *shape)) for dtype, shape in shapes.items()]
    assert np.ptp(rows[0]) > 2
    assert {rows[2].min(), rows[2].max()} == {0, 255}
    assert set(rows[3].ravel()) == {0, 1}
    for row, again in zip(rows, random_rows(signature, 7), strict=True):
        assert (row == again).all()
