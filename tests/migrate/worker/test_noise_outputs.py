"""What a model computes on noise, asked of two builds with the same weights."""

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import SandboxError
from headrace.migrate.worker.noise_outputs import compute_outputs


class Pair(nn.Module):
    """Two outputs, a head that starts at zero, and batch-norm statistics that start empty."""

    def __init__(self, factor: float = 1.0, width: int = 4) -> None:
        super().__init__()
        self.factor = factor
        self.conv = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        features = self.norm(self.conv(x)).mean((2, 3)) * self.factor
        return {"scores": self.head(features), "rest": [features]}


def loaded(folder):
    with np.load(folder / "outputs.npz") as file:
        return {name: file[name] for name in file.files}


def test_another_build_with_the_same_weights_gives_the_same(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    compute_outputs(Pair().eval(), (3, 8, 8), tmp_path / "one", weights=None)
    compute_outputs(Pair().eval(), (3, 8, 8), tmp_path / "two", weights=str(tmp_path / "one" / "weights.pt"))
    one, two = loaded(tmp_path / "one"), loaded(tmp_path / "two")
    assert {name: value.shape for name, value in one.items()} == {
        f"{batch}.{index}": (batch, (2, 4)[index]) for batch in (1, 2, 5) for index in (0, 1)
    }
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])
        assert np.ptp(value) > 1e-3, "a zero head would agree with anything"


def test_another_computation_gives_something_else(tmp_path):
    compute_outputs(Pair().eval(), (3, 8, 8), tmp_path, weights=None)
    before = loaded(tmp_path)
    compute_outputs(Pair(1.01).eval(), (3, 8, 8), tmp_path, weights=str(tmp_path / "weights.pt"))
    assert np.abs(loaded(tmp_path)["2.0"] - before["2.0"]).max() > 1e-4


def test_weights_that_do_not_fit_are_refused(tmp_path):
    compute_outputs(Pair().eval(), (3, 8, 8), tmp_path, weights=None)
    with pytest.raises(SandboxError, match="do not have the same weights"):
        compute_outputs(Pair(width=6).eval(), (3, 8, 8), tmp_path, weights=str(tmp_path / "weights.pt"))
