"""Peaks that bound what runs, and operations counted by hand."""

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from headrace.errors import ArtifactError
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx
from tests.benchmarks.serving import roofline as module
from tests.benchmarks.serving.roofline import Work, work_of


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1)
        self.deep = torch.nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = self.deep(self.conv(x).relu())
        return self.head(x.mean((2, 3)))


def test_operations_are_counted_as_by_hand(tmp_path):
    write_onnx(capture(Net().eval(), torch.randn(2, 3, 16, 16)), tmp_path)
    work = work_of(tmp_path / "model.onnx")
    conv, deep, head = 8 * 8 * 8 * 27, 8 * 6 * 6 * 9, 8 * 5
    assert work.operations == 2 * (conv + deep + head)
    assert work.weights == (8 * 27 + 8) + 8 * 9 + (40 + 5)
    assert work.elements == 3 * 16 * 16 + 5
    assert work.bytes_per_row(8, 1.0) == pytest.approx(work.weights / 8 + 4 * work.elements)
    # A matrix product over many rows counts every row.
    attention = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    (tmp_path / "other").mkdir()
    write_onnx(capture(attention, torch.randn(2, 7, 8)), tmp_path / "other")
    projections, feed_forward, scores = 7 * 8 * (24 + 8), 2 * 7 * 8 * 16, 2 * (2 * 7 * 7 * 4)
    assert work_of(tmp_path / "other" / "model.onnx").operations == 2 * (projections + feed_forward + scores)


def test_sizes_that_are_not_known_are_said(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "any"]) for name in ("a", "b")],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, ["batch", "any"])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "model.onnx")
    with pytest.raises(ArtifactError, match="cannot be told"):
        work_of(tmp_path / "model.onnx")


def test_peaks_come_from_what_is_installed(monkeypatch):
    monkeypatch.setattr(module, "_SIDE", {"cpu": 256})
    monkeypatch.setattr(module, "_ROWS", {"cpu": 128})
    peaks = module.matmul_peaks("cpu", seconds=0.01)
    assert {"fp32", "bf16", "int8"} <= set(peaks)
    assert all(peak["operations_per_second"] > 1e6 and peak["by"] for peak in peaks.values())


def test_a_copy_moves_bytes(monkeypatch):
    monkeypatch.setattr(module, "_COPIED", {"cpu": 1 << 20})
    assert module.copy_bandwidth("cpu", seconds=0.01) > 1e6


def test_roofs_are_the_lower_of_arithmetic_and_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "matmul_peaks", lambda device, seconds: {"fp32": {"operations_per_second": 1000.0, "by": "x"}})
    monkeypatch.setattr(module, "copy_bandwidth", lambda device, seconds: 100.0)
    monkeypatch.setattr(module, "work_of", lambda path: Work(operations=10, weights=100, elements=0))
    from headrace import GraphConfig, compile

    graph = compile(Net(), torch.randn(2, 3, 16, 16), config=GraphConfig(backend="onnxruntime", buckets=(1, 8)))
    graph.save(tmp_path / "net")
    found = module.roofline(tmp_path / "net", seconds=0.05)
    # 400 bytes of weights per batch at 100 bytes a second; arithmetic would allow 100 rows.
    assert found["roofs"] == {"fp32": {"1": 0.25, "8": 2.0}}
    assert [item["batch"] for item in found["batches"]] == [1, 8]
    for item in found["batches"]:
        assert item["rows_per_second"]["low"] <= item["rows_per_second"]["median"] <= item["rows_per_second"]["high"]


def test_a_model_that_cannot_be_read_is_one_line(tmp_path, capsys):
    assert module.main([str(tmp_path), str(tmp_path / "out.json")]) == 2
    assert "error:" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
