import copy

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array
from torch import nn

from headrace.runtime.base.calibration import Calibration, Observer
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.equalize import equalizable, equalize
from headrace.runtime.lowering.portable import write_onnx
from headrace.runtime.lowering.quantize import write_int8
from headrace.runtime.passes import run_passes


class Blocks(nn.Module):
    """A little transformer; with `by`, the norms before its products give some channels that are so many times as large."""

    def __init__(self, by=1.0):
        super().__init__()
        torch.manual_seed(3)
        self.patch = nn.Conv2d(3, 32, 4, stride=4)
        self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)]) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 7)
        for norm, first in [*((block[0], block[1]) for block in self.blocks), (self.norm, self.head)]:
            nn.init.normal_(norm.bias, std=0.3)
            factors = torch.ones(32)
            factors[[3, 17]] = by
            norm.weight.data *= factors
            norm.bias.data *= factors
            first.weight.data /= factors

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for norm, first, second in self.blocks:
            x = x + second(torch.nn.functional.gelu(first(norm(x))))
        return self.head(self.norm(x)).mean(1)


def int8_error(module, rows, folder):
    """Of the scores, beside their spread."""
    folder.mkdir()
    write_onnx(run_passes(capture(module, torch.from_numpy(rows[:2])))[0], folder)
    (name,) = write_int8(folder, Calibration([rows]))
    session = onnxruntime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
    given = rows[::-1].copy()
    expected = module(torch.from_numpy(given)).detach().numpy()
    (found,) = session.run(None, {session.get_inputs()[0].name: given})
    return float(np.sqrt(np.square(found - expected).mean()) / expected.std())


def test_a_few_large_channels_cost_int8_nothing(tmp_path):
    rows = np.random.default_rng(0).normal(size=(32, 3, 16, 16)).astype(np.float32)
    usual, large = (int8_error(Blocks(by).eval(), rows, tmp_path / f"by-{by}") for by in (1.0, 100.0))
    assert large < 1.5 * usual


def model(nodes, constants, outputs=("y",)):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


RANDOM = np.random.default_rng(1)
FACTORS = np.where(np.arange(8) == 2, 50.0, 1.0)
CONSTANTS = {
    "factor": FACTORS,
    "offset": RANDOM.normal(size=8) * FACTORS,
    "one": RANDOM.normal(size=(8, 5)),
    "two": RANDOM.normal(size=(4, 8)),
    "bias": RANDOM.normal(size=4),
}
NORM = helper.make_node("LayerNormalization", ["x", "factor", "offset"], ["n"], name="norm")
PLAIN = helper.make_node("LayerNormalization", ["x", "factor"], ["n"], name="norm")
MATMUL = helper.make_node("MatMul", ["n", "one"], ["y"], name="matmul")
GEMM = helper.make_node("Gemm", ["n", "two", "bias"], ["z"], name="gemm", transB=1, alpha=0.5)


def run(proto, rows):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": rows})


def seen_in(proto, rows):
    watched = copy.deepcopy(proto)
    watched.graph.output.add().name = "n"
    values = run(watched, rows)[-1]
    observer = Observer()
    observer.take(values.min(0), values.max(0), len(values), values.sum(0, dtype=float), np.square(values).sum(0, dtype=float))
    return observer


@pytest.mark.parametrize("norm", [NORM, PLAIN])
@pytest.mark.parametrize("products", [[MATMUL], [GEMM], [MATMUL, GEMM]])
def test_the_answers_stay_and_the_range_is_that_of_all_channels(norm, products):
    rows = RANDOM.normal(size=(64, 8)).astype(np.float32)
    proto = model([norm, *products], CONSTANTS, [node.output[0] for node in products])
    before = seen_in(proto, rows)
    expected = run(proto, rows)
    proto = copy.deepcopy(proto)
    after = equalize(proto, list(proto.graph.node)[1:], {"n": before})["n"]
    for found, answer in zip(run(proto, rows), expected, strict=True):
        np.testing.assert_allclose(found, answer, rtol=1e-4, atol=1e-4 * np.abs(answer).max())
    again = seen_in(proto, rows)
    np.testing.assert_allclose([after.low, after.high], [again.low, again.high], rtol=1e-4)
    np.testing.assert_allclose(after.power, again.power, rtol=1e-4)
    assert after.noise < before.noise / 4
    assert len(proto.graph.initializer) == len(norm.input) - 1 + sum(len(node.input) - 1 for node in products)


def test_what_lies_beside_a_norm_keeps_its_constants():
    """The same factors and the same matrix serve another norm, which the graph's end reads, and another product."""
    other = helper.make_node("LayerNormalization", ["x", "factor", "offset"], ["m"], name="other")
    product = helper.make_node("MatMul", ["x", "one"], ["w"], name="product")
    rows = RANDOM.normal(size=(16, 8)).astype(np.float32)
    proto = model([NORM, MATMUL, other, product], CONSTANTS, ["y", "m", "w"])
    expected = run(proto, rows)
    equalize(proto, [proto.graph.node[1]], {"n": seen_in(proto, rows)})
    for found, answer in zip(run(proto, rows), expected, strict=True):
        np.testing.assert_allclose(found, answer, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([NORM, MATMUL, helper.make_node("Add", ["x", "n"], ["z"], name="residual")], ["y", "z"]),
        ([NORM, MATMUL], ["y", "n"]),
        ([NORM, MATMUL, helper.make_node("MatMul", ["one", "n"], ["z"], name="turned")], ["y", "z"]),
    ],
)
def test_a_norm_that_something_else_reads_stays(nodes, outputs):
    proto = model(nodes, CONSTANTS, outputs)
    assert not equalizable(proto, [node for node in proto.graph.node if node.op_type == "MatMul"])


def test_channels_that_are_alike_or_dead_stay():
    rows = np.random.default_rng(2).normal(size=(256, 8)).astype(np.float32)
    alike = {"factor": np.ones(8), "one": np.eye(8)}
    for constants in (alike, {**alike, "factor": np.zeros(8)}, {**alike, "one": np.zeros((8, 8))}):
        proto = model([PLAIN, MATMUL], constants)
        before = proto.SerializeToString()
        equalize(proto, [proto.graph.node[1]], {"n": seen_in(proto, rows)})
        assert proto.SerializeToString() == before


def test_a_dead_channel_does_not_carry_the_others_away():
    rows = RANDOM.normal(size=(64, 8)).astype(np.float32)
    factor = FACTORS.copy()
    factor[5] = 0.0
    proto = model([PLAIN, MATMUL], {**CONSTANTS, "factor": factor})
    expected = run(proto, rows)
    equalize(proto, [proto.graph.node[1]], {"n": seen_in(proto, rows)})
    np.testing.assert_allclose(run(proto, rows)[0], expected[0], rtol=1e-4, atol=1e-3)
