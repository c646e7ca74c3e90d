"""Plans of small models, and images to judge them by."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace import GraphConfig
from headrace.runtime.capture.capture import capture
from headrace.runtime.passes import run_passes
from headrace.runtime.tuning.judging_data import JudgingData
from headrace.runtime.tuning.source import CapturedSource
from headrace.runtime.tuning.tune import tune


@pytest.fixture(scope="module")
def source_of():
    """The source of a module, whose capture and whose passes are made once for all that are alike: nothing changes them."""
    known = {}

    def made(module, example, task):
        values = b"".join(value.detach().numpy().tobytes() for value in module.state_dict().values())
        key = (str(module), values, tuple(example.shape), task)
        if key not in known:
            captured = capture(module, example, task=task)
            known[key] = captured, run_passes(captured)[0]
        return CapturedSource(*known[key])

    return made


@pytest.fixture
def tuned(tmp_path, source_of):
    def run(
        module, *, example=None, images=None, labels=None, scores=None, calibration=None, progress=None, keep=None, **config
    ):
        example = torch.randn(2, 3, 16, 16) if example is None else example
        return tune(
            source_of(module, example, config.get("task", "")),
            GraphConfig(**{"threads": 1, "buckets": (1, 4), **config}),
            directory=tmp_path, device="cpu", progress=progress, keep=keep,
            judging=replace(JudgingData.of(images, labels, calibration), scores=scores),
        )  # fmt: skip

    return run


@pytest.fixture
def images():
    """Noise of different colors, so that the classes differ."""
    random = np.random.default_rng(0)
    return (random.normal(size=(96, 3, 16, 16)) + 3 * random.normal(size=(96, 3, 1, 1))).astype(np.float32)
