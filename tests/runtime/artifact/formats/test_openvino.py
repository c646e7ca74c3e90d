"""OpenVINO's own files."""

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.formats.openvino import FORMAT

openvino = pytest.importorskip("openvino")
opset = openvino.opset13


@pytest.fixture
def saved(tmp_path):
    """y = x + 1 on rows of four numbers."""
    x = opset.parameter([-1, 4], np.float32, name="x")
    y = opset.add(x, np.ones((1, 4), np.float32))
    x.output(0).tensor.set_names({"x"})
    y.output(0).tensor.set_names({"y"})
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Model([y], [x], "model"), path, compress_to_fp16=False)
    return path


def test_a_model(saved):
    graph = FORMAT.open(saved, ((), ()), threads=1, parameters={})
    assert [(one.name, one.datatype, one.shape) for one in (*graph.inputs, *graph.outputs)] == [
        ("x", "FP32", (-1, 4)), ("y", "FP32", (-1, 4)),
    ]  # fmt: skip
    given = np.zeros((3, 4), np.float32)
    assert graph.session.run([given])[0].tolist() == (given + 1).tolist()
    assert FORMAT.beside(saved) == [saved.with_suffix(".bin")]


@pytest.mark.parametrize(
    "damage", ["<net", "", "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM '/etc/passwd'>]><net>&e;</net>"]
)
def test_a_damaged_file(saved, damage):
    saved.write_text(damage)
    with pytest.raises(BackendError, match="cannot be loaded by openvino") as caught:
        FORMAT.open(saved, ((), ()), threads=1, parameters={})
    assert "root:" not in str(caught.value)


def test_weights_that_are_cut_short(saved):
    weights = saved.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:5])
    with pytest.raises(BackendError, match="cannot be loaded by openvino"):
        FORMAT.open(saved, ((), ()), threads=1, parameters={})


def test_weights_that_are_cut_short_while_it_serves(saved):
    """A mapped file would end the process (SIGBUS)."""
    session = FORMAT.open(saved, ((), ()), threads=1, parameters={}).session
    with saved.with_suffix(".bin").open("r+b") as file:
        file.truncate(0)
    assert session.run([np.zeros((1, 4), np.float32)])[0].tolist() == [[1.0] * 4]
