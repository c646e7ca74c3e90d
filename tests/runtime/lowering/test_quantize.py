import copy
import functools
import shutil
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx
from headrace.runtime.lowering.quantize import _channel_sums, write_int8
from headrace.runtime.passes import run_passes
from headrace.specs import INT8


class Residual(nn.Module):
    """A little residual network with a squeeze-and-excite gate."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.one, self.two = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.gate = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 7)

    def forward(self, x):
        x = self.stem(x).relu()
        y = self.two(self.one(x).relu())
        y = y * self.gate(y.mean((2, 3), keepdim=True)).sigmoid()
        return self.head((x + y).relu().mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, stride=4)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, x):
        return self.head(self.block(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return (random.normal(size=(24, 3, 16, 16)) + 2 * random.normal(size=(24, 3, 1, 1))).astype(np.float32)


@pytest.fixture(scope="module")
def made(rows, tmp_path_factory):
    """made(Residual) is a module of that kind and a folder with its portable graph; nobody may write there."""

    @functools.cache
    def make(kind):
        torch.manual_seed(1)
        module, folder = kind().eval(), tmp_path_factory.mktemp("portable")
        captured = capture(module, torch.from_numpy(rows[:2]))
        write_onnx(run_passes(captured)[0], folder)
        return module, folder

    return make


def written(portable, rows, directory, level=0):
    """The int8 model of that level, beside a copy of the portable graph."""
    shutil.copytree(portable, directory, dirs_exist_ok=True)
    precision = INT8
    for _ in range(level):
        precision = precision.with_more_in_floats
    (name,) = write_int8(directory, Calibration([rows]), precision)
    return onnx.load(directory / name)


def run(path, rows):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]


@pytest.mark.parametrize("kind", [Residual, Transformer])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_computes_nearly_the_same(kind, level, made, rows, tmp_path):
    module, portable = made(kind)
    model = written(portable, rows, tmp_path, level)
    onnx.checker.check_model(model)
    fresh = rows[::-1][:5].copy() * 0.9
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.from_numpy(fresh).double()).numpy()
    name = "model-int8.onnx" if not level else f"model-int8-{level}.onnx"
    actual = run(tmp_path / name, fresh)
    assert np.sqrt(np.mean((actual - expected) ** 2)) < 0.05 * np.std(expected)


def test_between_convolutions_everything_is_an_integer(made, rows, tmp_path):
    model = written(made(Residual)[1], rows, tmp_path)
    producers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Add", "Mul", "Gemm"):
            assert {producers[name].op_type for name in node.input if name in producers} == {"DequantizeLinear"}
    assert Counter(node.op_type for node in model.graph.node)["Relu"] == 0  # an unsigned range does its work
    weights = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Conv":
            scale = weights[producers[node.input[1]].input[1]]
            assert list(scale.dims) == [16]  # per output channel


def test_in_a_transformer_only_products_take_integers_and_the_rest_stays_in_floats(made, rows, tmp_path):
    model = written(made(Transformer)[1], rows, tmp_path)
    producers = {name: node for node in model.graph.node for name in node.output}
    constant = {item.name for item in model.graph.initializer}
    for node in model.graph.node:
        kinds = {producers[name].op_type for name in node.input if name in producers}
        if node.op_type in ("LayerNormalization", "Softmax", "Add", "Erf", "Gelu"):
            assert "DequantizeLinear" not in kinds
        if node.op_type == "Gemm" or (node.op_type == "MatMul" and producers.get(node.input[1], node).op_type[:2] == "De"):
            assert kinds == {"DequantizeLinear"}
    quantized = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.input[0] not in constant]
    readers = Counter(name for node in model.graph.node for name in node.input)
    assert all(readers[node.output[0]] for node in quantized)


def test_levels_keep_more_and_more_layers_in_floats_the_worst_first(made, tmp_path, rows):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.loud, self.last = nn.Linear(48, 32), nn.Linear(32, 32), nn.Linear(32, 7)
            nn.init.zeros_(self.loud.weight[:, 0])  # else the outlier would saturate what follows

        def forward(self, x):
            x = self.first(x.mean((2, 3)).repeat(1, 16)).tanh()
            outlier = torch.cat([x[:, :1] * 0 + 500, x[:, 1:]], 1)
            return self.last(self.loud(outlier).tanh())

    counts = []
    for level in range(3):
        model = written(made(Net)[1], rows, tmp_path, level)
        products = [node for node in model.graph.node if node.op_type == "Gemm"]
        producers = {name: node for node in model.graph.node for name in node.output}
        in_floats = [node for node in products if producers[node.input[0]].op_type != "DequantizeLinear"]
        counts.append(len(in_floats))
        if level == 1:
            assert [producers[node.input[0]].op_type for node in in_floats] == ["Concat"]  # the outlier's
    assert counts[:2] == [0, 1]
    assert counts == sorted(counts)


@pytest.mark.parametrize("kind", ["product", "convolution"])
def test_a_layer_whose_weights_leave_noise_alone_stays_in_floats(kind, made, tmp_path, rows):
    """It takes the differences of values that are nearly alike: 8 bits hold these well, and nothing of those."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            make = functools.partial(nn.Conv2d, kernel_size=1) if kind == "convolution" else nn.Linear
            self.first, self.difference, self.last = make(3, 32), make(32, 31, bias=False), make(31, 7)
            nn.init.constant_(self.first.weight, 0.2)
            with torch.no_grad():
                self.first.weight += 0.002 * torch.randn_like(self.first.weight)
                steps = 100 * (torch.eye(32)[1:] - torch.eye(32)[:-1])
                self.difference.weight.copy_(steps.reshape(self.difference.weight.shape))

        def forward(self, x):
            x = x if kind == "convolution" else x.mean((2, 3))
            return self.last(self.difference(self.first(x))).flatten(1)

    model = written(made(Net)[1], rows, tmp_path, level=1)
    layers = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul", "Conv")]
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {item.name for item in model.graph.initializer}
    assert [node.input[1] in constants for node in layers] == [False, True, False], [producers.get(n.input[0]) for n in layers]


@pytest.mark.parametrize("level", [0, 1])
def test_gates_may_be_computed_in_floats(level, made, tmp_path, rows):
    module, portable = made(Residual)
    shutil.copytree(portable, tmp_path, dirs_exist_ok=True)
    precision = INT8.with_more_in_floats if level else INT8
    calibration = Calibration([rows])
    usual = write_int8(tmp_path, calibration, precision)
    (name,) = write_int8(tmp_path, calibration, precision, float_gates=True)
    assert [name] != usual
    model = onnx.load(tmp_path / name)
    producers = {output: node for node in model.graph.node for output in node.output}
    readers = Counter(name for node in model.graph.node for name in node.input)
    constants = {item.name for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            assert producers[node.input[0]].op_type == "Conv"
        if node.op_type == "Mul":
            assert "Sigmoid" in {producers[name].op_type for name in node.input}
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            assert readers[node.output[0]]
    in_floats = [node for node in model.graph.node if node.op_type == "Conv" and node.input[1] in constants]
    assert len(in_floats) == level
    fresh = rows[::-1][:5].copy() * 0.9
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.from_numpy(fresh).double()).numpy()
    assert np.sqrt(np.mean((run(tmp_path / name, fresh) - expected) ** 2)) < 0.05 * np.std(expected)
    written = (tmp_path / name).stat().st_mtime_ns
    assert write_int8(tmp_path, calibration, precision, float_gates=True) == [name]
    assert (tmp_path / name).stat().st_mtime_ns == written


def test_a_graph_without_gates_has_one_form(made, tmp_path, rows):
    shutil.copytree(made(Transformer)[1], tmp_path, dirs_exist_ok=True)
    calibration = Calibration([rows])
    assert write_int8(tmp_path, calibration, float_gates=True) == write_int8(tmp_path, calibration) == ["model-int8.onnx"]
    (tmp_path / "model.onnx").unlink()  # nor is it read again to find that out
    assert write_int8(tmp_path, calibration, float_gates=True) == ["model-int8.onnx"]


def test_the_images_run_once_for_all_levels(made, tmp_path, rows):
    shutil.copytree(made(Residual)[1], tmp_path, dirs_exist_ok=True)
    calibration = Calibration([rows])
    write_int8(tmp_path, calibration)
    assert calibration.of_portable
    known = dict(calibration.of_portable)
    write_int8(tmp_path, calibration, INT8.with_more_in_floats)
    assert all(calibration.of_portable[name] is spread for name, spread in known.items())


def test_a_graph_without_layers_to_quantize_is_refused(made, tmp_path, rows):
    class Pool(nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    with pytest.raises(BackendError, match="no convolution or matrix product"):
        written(made(Pool)[1], rows, tmp_path)


def test_calibration_images_that_overflow_are_refused(made, tmp_path, rows):
    rows = rows.copy()
    rows[3, 0, 0, 0] = np.inf
    with pytest.raises(BackendError, match="NaN or infinite"):
        written(made(Residual)[1], rows, tmp_path)
    assert not list(tmp_path.glob("*int8*"))


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 7, 2), 1), ((3, 4, 5), -1), ((6, 5), -1), ((2, 3, 4, 5), -1)])
def test_channels_have_the_sums_of_their_values(shape, axis):
    values = np.random.default_rng(0).normal(100, 3, shape).astype(np.float32)
    others = tuple(index for index in range(len(shape)) if index != axis % len(shape))
    count, totals, squares = _channel_sums(values, axis)
    assert count == values.size // shape[axis]
    np.testing.assert_allclose(totals, values.sum(axis=others, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(squares, np.square(values, dtype=np.float64).sum(axis=others), rtol=1e-6)
