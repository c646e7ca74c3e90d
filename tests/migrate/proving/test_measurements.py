"""The numbers behind the verdicts are those of the runs."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.migrate.proving.measurements import DECADES, agreements, speeds
from headrace.migrate.proving.verify import Recorded
from headrace.migrate.proving.worker_protocol import Timing


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


def test_speeds_need_both_times() -> None:
    def measured(backend: str, bucket: int, status: str, ms: float | None, precision: str = "fp32") -> Timing:
        return Timing(backend=backend, precision=precision, bucket=bucket, status=status, median_ms=ms)

    timings = [
        measured("eager", 1, "lost", 4.0),
        measured("openvino", 1, "won", 1.0, "bf16"),
        measured("onnxruntime", 1, "lost", 2.0),
        measured("eager", 2, "won", 5.0),
        measured("eager", 4, "skipped", None),
        measured("openvino", 4, "won", 3.0),
    ]
    found = speeds("net", timings)
    assert [(speed.batch, speed.eager_ms, speed.chosen_ms, speed.chosen) for speed in found] == [
        (1, 4.0, 1.0, "openvino bf16"),
        (2, 5.0, 5.0, "eager fp32"),
    ]
    assert speeds("net", []) == []
