"""The numbers behind the verdicts are those of the runs."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.migrate.proving.measurements import DECADES, agreements
from headrace.migrate.proving.verify import Recorded


def recorded(outputs: np.ndarray) -> Recorded:
    return Recorded(inputs=np.zeros((len(outputs), 1)), outputs=outputs)


def test_all_differences_are_counted() -> None:
    before = np.random.default_rng(0).normal(size=(500, 10))
    after = before.copy()
    after[0, 0] += 3e-5
    after[7, 3] -= 2e-13
    after[499, 9] += 500.0
    (made,) = agreements("main.py", {"main.py:3": recorded(before), "gone": recorded(before)}, {"main.py:3": recorded(after)})
    assert (made.script, made.site, made.rows) == ("main.py", "main.py:3", 500)
    assert made.max_abs == pytest.approx(500.0)
    assert sum(made.differences) == before.size
    counted = {index: count for index, count in enumerate(made.differences) if count}
    lowest, tens = 1, len(made.differences) - 1
    assert counted == {0: before.size - 3, lowest: 1, 1 - 5 - DECADES[0]: 1, tens: 1}


def test_what_cannot_be_compared_is_left_out() -> None:
    one, other = np.zeros((2, 3)), np.zeros((2, 4))
    assert agreements("m.py", {"s": recorded(one)}, {"s": recorded(other)}) == []
    assert agreements("m.py", {"s": recorded(one)}, {}) == []
    assert agreements("m.py", {"s": recorded(one * np.nan)}, {"s": recorded(one)}) == []
