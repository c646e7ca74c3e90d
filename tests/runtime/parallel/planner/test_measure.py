"""Rates measured on two real ranks, and by a job that is started for it."""

import math
import os
import sys
import tempfile

import pytest
import torch
from torch import nn

from headrace.errors import InputError
from headrace.runtime.parallel.planner import measure
from headrace.runtime.parallel.planner.measure import _alone, measured_apart
from headrace.runtime.parallel.planner.operators import Operator, read_model
from headrace.runtime.parallel.planner.plan import plan
from headrace.runtime.parallel.planner.rates import Rates


def small():
    parts = (
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 6),
    )
    return read_model(nn.Sequential(*parts), (4, 3, 16, 16))


def test_two_ranks_measure_alike_and_each_operator(ranks):
    model = small()
    first, second = ranks.run(2, "rates", mesh=[2], model=model.to_json())
    assert first == second  # or they would plan differently
    found = Rates.from_json(first, 1)
    assert set(found.operators) == {"conv2d", "batch_norm", "relu", "adaptive_avg_pool2d", "linear"}
    assert {"all_reduce", "all_gather", "point_to_point"} <= found.links[0].measured.keys()
    assert 1 <= found.crowding < math.inf
    assert 1e3 < found.updates < 1e13
    assert plan(model, (2,), found, 1e9).best.fits


@pytest.mark.parametrize(
    ("shapes", "held"),
    [
        ([], [1 << 20]),
        ([(8, 3), ()], [24, 1]),
        ([(1 << 12, 1 << 11), (1 << 12, 1 << 12)], [1 << 24]),
        ([(-1, 3)], [1]),
        ([(0,)], [1]),
    ],
)
def test_the_optimizer_is_measured_on_as_much_as_the_model_has_and_not_more_than_fits(monkeypatch, shapes, held):
    sizes = []

    def once(step):
        sizes.extend(value.numel() for group in step.__self__.param_groups for value in group["params"])
        return 1.0

    monkeypatch.setattr(measure, "timed", once)
    assert measure._updated("cpu", shapes) == 4 * sum(sizes)
    assert sizes == held


@pytest.mark.parametrize(
    "call",
    [
        {"target": "aten.from_file.default", "args": ["/etc/hostname", True, 4], "kwargs": {}},
        {"target": "aten.relu.default", "args": [{"shape": "much"}], "kwargs": {}},
        {"target": "aten.relu.default", "args": [{"shape": [4], "dtype": "system", "rows": True}], "kwargs": {}},
        {"target": "relu", "args": [], "kwargs": {}},
        {"target": "os.system.default", "args": ["true"], "kwargs": {}},
        {},
    ],
)
def test_a_description_makes_nothing_run_but_what_computes(call):
    assert _alone(Operator("x", "pointwise", "", (0,), (4,), 4, call=call), 4, 2, "cpu") is None


@pytest.mark.parametrize("mesh", [(1, 1), pytest.param((2, 1), marks=pytest.mark.slow)])  # two ranks: above, and below
def test_a_job_is_started_where_there_is_none(monkeypatch, tmp_path, mesh):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    found = Rates.from_json(measured_apart(mesh, "cpu", small()), 2)
    assert found.links[1].seconds("all_reduce", 1e6, 1) == 0
    assert found.linear > 1e6
    assert set(found.operators) == {"conv2d", "batch_norm", "relu", "adaptive_avg_pool2d", "linear"}
    assert os.listdir(tmp_path) == []


def test_the_job_has_a_rank_for_each_place_of_the_mesh(monkeypatch, tmp_path):
    """Told by what stands for Python, and fails."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "Error: %s " "$@" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(InputError, match=r"--nproc-per-node Error: 6 .* Error: 2x3 Error: cpu .*; give --rates FILE\.json"):
        measured_apart((2, 3), "cpu", small())


def test_a_rank_that_a_signal_ended_is_told(monkeypatch, tmp_path):
    """By what torchrun says of it, which raises an error of its own."""
    python = tmp_path / "python"
    text = "    raise ChildFailedError(\\n  exitcode  : -9 (pid: 7)\\n  traceback : Signal 9 (SIGKILL) received by PID 7\\n"
    python.write_text(f"#!/bin/sh\nprintf '{text}' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(InputError, match=r"measured \(traceback : Signal 9 \(SIGKILL\) received by PID 7\); give --rates"):
        measured_apart((1, 1), "cpu", small())


def test_a_mesh_that_is_not_here_takes_rates():
    with pytest.raises(InputError, match=r"torchrun.*--rates"):
        measured_apart((8, 8), "cpu", small())
    if torch.cuda.device_count() < 2:
        with pytest.raises(InputError, match=r"GPUs.*--rates"):
            measured_apart((2,), "cuda", small())
