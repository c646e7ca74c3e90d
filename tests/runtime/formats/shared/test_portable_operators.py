"""ONNX's operators one by one, against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from headrace.errors import BackendError
from headrace.runtime.formats.shared.portable_module import PortableModule


def one(kind, inputs, *, opset=17, initializers=(), domain="", **attributes):
    """A graph of one operator, written and opened by both."""
    node = helper.make_node(kind, list(inputs) + [item.name for item in initializers], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        list(initializers),
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def whole(name, *values):
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


X = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
CASES = {
    "uneven padding": ("MaxPool", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}, ()),
    "uneven average": ("AveragePool", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "count_include_pad": 1}, ()),
    "average without its padding": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, ()),
    "old softmax": ("Softmax", {"axis": 1, "opset": 11}, ()),
    "reduced over all": ("ReduceMean", {}, ()),
    "flat from the first": ("Flatten", {"axis": 0}, ()),
    "flat from the third": ("Flatten", {"axis": 2}, ()),
    "gathered from behind": ("Gather", {"axis": 3}, (whole("i", -1, 0, -6),)),
    "cut from behind": ("Slice", {}, (whole("s", -4), whole("e", 2**63 - 1), whole("a", -1), whole("t", 2))),
    "turned around": ("Slice", {}, (whole("s", -1), whole("e", -(2**63) + 1), whole("a", 2), whole("t", -1))),
    "reflected": ("Pad", {"mode": "reflect"}, (whole("p", 0, 0, 1, 2, 0, 0, 2, 1),)),
    "zero is the size that it had": ("Reshape", {}, (whole("n", 0, -1),)),
    "repeated": ("Tile", {}, (whole("n", 1, 2, 1, 3),)),
    "reversed": ("Transpose", {}, ()),
    "expanded": ("Expand", {}, (whole("n", 2, 1, 1, 1, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_in_their_corners(name, tmp_path):
    kind, attributes, initializers = CASES[name]
    model = one(kind, {"x": X}, initializers=initializers, **attributes)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": X})
    (given,) = PortableModule(path)(torch.from_numpy(X))
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (one("NonZero", {"x": X}), "without a translation to torch: NonZero"),
        (one("Own", {"x": X}, domain="com.example"), "those of com.example"),
        (one("Relu", {"x": X}, opset=9), "opset 9"),
        (one("Conv", {"x": X, "w": X}, auto_pad="SAME_UPPER"), "auto_pad=SAME_UPPER"),
        (one("Reshape", {"x": X, "n": X}), "computes a shape from the values of tensors"),
    ],
)
def test_what_has_no_translation_is_refused_by_name(model, says, tmp_path):
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(BackendError, match=says):
        PortableModule(tmp_path / "model.onnx")(torch.from_numpy(X), torch.from_numpy(X))
