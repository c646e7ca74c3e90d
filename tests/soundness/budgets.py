"""`python -m tests.soundness budgets`: does a plan that was held to a budget keep to it, on images that it has not seen?

Eight networks, five sets of labeled images each, and for each of these 40 pairs a candidate whose rounding is so coarse that it
loses more than the budget, by a little or by much, which is known from 10,000 other images. It may be taken in 5 % of the
pairs. Then the same with candidates that lose a fifth of the budget, which are to be taken.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from headrace import GraphConfig
from headrace.errors import ParityError
from headrace.runtime import backends
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.judging_data import JudgingData
from headrace.runtime.tuning.source import CapturedSource
from headrace.runtime.tuning.tune import tune

from . import page
from .candidates import Net, Planted, Rows, pictures, run_module

BUDGET, IMAGES, ALL = 2.0, 600, 10_000
_NETWORKS, _SETS = 8, 5
_BEYOND, _WITHIN = (1.01, 1.05, 1.1, 1.25, 1.5), 0.2  # times the budget
_STEPS = 14


@functools.cache
def network(seed: int) -> Net:
    """One that is right in about nine of ten pictures."""
    torch.manual_seed(seed)
    model = Net()
    images, classes = (torch.from_numpy(value) for value in pictures(800, seed=100 + seed))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        chosen = torch.randint(len(images), (128,))
        nn.functional.cross_entropy(model(images[chosen])["logits"], classes[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@functools.cache
def _all(seed: int) -> tuple[Rows, np.ndarray]:
    """The outputs for the images that say what is lost in truth, and their classes."""
    images, classes = pictures(ALL, seed=1000 + seed)
    return run_module(network(seed))([images]), classes


def rounded(outputs: Rows, size: float) -> Rows:
    """The scores off by noise of that size, which the row alone decides."""
    scores, features = outputs
    noise = np.sin(1e4 * features @ np.random.default_rng(0).normal(size=(features.shape[1], scores.shape[1])))
    return [(scores + size * noise).astype(np.float32), features]


def loss(seed: int, size: float) -> float:
    """Points of accuracy that the candidate loses of all images."""
    outputs, classes = _all(seed)
    right = [(scores.argmax(axis=1) == classes).mean() for scores, _ in (outputs, rounded(outputs, size))]
    return float(100 * (right[0] - right[1]))


def size_of(seed: int, points: float) -> float:
    """How large the noise must be to lose that."""
    low, high = 0.0, 16.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(seed, middle) < points else (low, middle)
    return high


def refusal(seed: int, images: int, size: float) -> str | None:
    """Why the candidate is not taken; None where it is."""
    run, judging = run_module(network(seed)), pictures(IMAGES, seed=5000 + images)

    def coarse(inputs: Sequence[np.ndarray]) -> Rows:
        return rounded(run(inputs), size)

    backends.discover()["planted"] = Planted(run=coarse)
    config = GraphConfig(backend="planted", precision="bf16", budget=BUDGET, buckets=(1,), threads=1, max_tuning_seconds=0.05)
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = CapturedSource.of(capture(network(seed), torch.from_numpy(judging[0][:2])))
            tune(source, config, directory=Path(folder), device="cpu", judging=JudgingData((judging[0],), judging[1]))
    except ParityError as error:
        return str(error).splitlines()[-1].strip()
    finally:
        del backends.discover()["planted"]
    return None


def main() -> int:
    """Print each pair, and keep the counts; 1 where more than 5 % of what loses more was taken."""
    taken, by_budget, lost, kept = 0, 0, list[float](), 0
    for seed in range(_NETWORKS):
        for number in range(_SETS):
            size = size_of(seed, _BEYOND[number] * BUDGET)
            why = refusal(seed, 10 * seed + number, size)
            lost.append(loss(seed, size))
            taken += why is None
            by_budget += why is not None and "the budget is" in why
            within = refusal(seed, 10 * seed + number, size_of(seed, _WITHIN * BUDGET))
            kept += within is None
            print(f"{seed}, {number}: loses {lost[-1]:.2f}: {why or 'TAKEN'}; a fifth: {within or 'taken'}", flush=True)
    pairs = len(lost)
    print(f"{taken} of {pairs} that lose more than the budget were taken, {kept} of {pairs} that lose a fifth of it")
    counted = {"pairs": pairs, "budget": BUDGET, "images": IMAGES, "taken": taken, "by_budget": by_budget, "kept": kept}
    page.update("budgets", {**counted, "least": min(lost), "most": max(lost), "all": ALL})
    return int(taken > 0.05 * pairs)
