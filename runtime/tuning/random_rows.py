"""Inputs for measuring a model of which no real ones are at hand."""

from __future__ import annotations

import numpy as np

from ...specs import Signature


def random_rows(signature: Signature, count: int) -> list[np.ndarray]:
    """[count, ...] for each input: normally distributed floats, any pixel of 8 bits, else 0 or 1, which any index may be.

    The same for the same signature and count.
    """
    random = np.random.default_rng(0)
    return [
        random.standard_normal((count, *spec.row_shape)).astype(spec.dtype)
        if spec.dtype.startswith("float")
        else random.integers(0, 256 if spec.dtype == "uint8" else 2, (count, *spec.row_shape)).astype(spec.dtype)
        for spec in signature.inputs
    ]
