"""Simulated precisions are as far off as the real ones are, in the same direction, and in no other's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headrace.runtime.artifact.artifact import load_artifact
from headrace.serving.verify.precision import PRECISIONS, resemblance, simulated
from headrace.serving.verify.reference import Reference
from tests.serving.verify.network import network, package, scores


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("fish")
    made = Reference(load_artifact(package(folder / "models", folder) / "fish"))
    yield made
    made.close()


ROWS = np.random.default_rng(0).normal(size=(60, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_a_precision_is_recognized_by_what_it_adds(reference, name, dtype):
    low = network.__wrapped__().to(dtype)
    with torch.no_grad():
        given = low(torch.from_numpy(ROWS).to(dtype)).float().numpy()
    added = given - scores(ROWS)
    alike = {one: resemblance(added, simulated(reference, one, ROWS)(ROWS) - reference.scores(ROWS)) for one in PRECISIONS}
    assert max(alike, key=alike.get) == name
    assert alike[name] > 0.3
    assert all(abs(value) < 0.3 for one, value in alike.items() if one != name)


@pytest.mark.parametrize("name", PRECISIONS)
def test_what_a_simulation_adds_is_small_and_not_nothing(reference, name):
    exact = reference.scores(ROWS)
    added = simulated(reference, name, ROWS)(ROWS) - exact
    assert 1e-5 < np.linalg.norm(added) / np.linalg.norm(exact) < 0.2


def test_noise_resembles_no_precision(reference):
    noise = np.random.default_rng(1).normal(size=(60, 7))
    for name in PRECISIONS:
        assert abs(resemblance(noise, simulated(reference, name, ROWS)(ROWS) - reference.scores(ROWS))) < 0.25


def test_without_a_portable_graph_there_is_none(reference, tmp_path):
    models = package(tmp_path / "models", tmp_path)
    (models / "fish" / "1" / "model.onnx").write_bytes(b"no graph")
    broken = Reference.__new__(Reference)
    broken.artifact = type("Artifact", (), {"path": models / "fish" / "1"})()
    assert simulated(broken, "bf16", ROWS) is None
    broken.artifact.path = tmp_path
    assert simulated(broken, "bf16", ROWS) is None
