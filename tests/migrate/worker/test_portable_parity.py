"""The graph that is served before a plan is there is held to the model."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from headrace.errors import ParityError
from headrace.migrate.worker.portable_parity import portable_parity
from headrace.runtime.base.config import GraphConfig
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx


def net(zero=False):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
    nn.init.normal_(made[0].weight)
    if zero:
        nn.init.zeros_(made[4].weight)
    return capture(made, torch.randn(2, 3, 12, 12))


def test_a_graph_that_computes_the_same_passes(tmp_path):
    captured = net()
    write_onnx(captured, tmp_path)
    record = portable_parity(captured, tmp_path, GraphConfig())
    assert record.passed
    assert record.top1_agreement == 1.0


def test_one_that_does_not_is_no_package(tmp_path):
    captured = net()
    write_onnx(captured, tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    first = next(value for value in model.graph.initializer if len(value.dims) == 4)
    first.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(first) * np.float32(1.01), first.name))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ParityError, match="does not compute what the model computes"):
        portable_parity(captured, tmp_path, GraphConfig())


def test_outputs_that_tell_nothing_prove_nothing(tmp_path):
    captured = net(zero=True)
    write_onnx(captured, tmp_path)
    record = portable_parity(captured, tmp_path, GraphConfig())
    assert record.status == "not-run"
    assert "does not depend on its input" in record.why
