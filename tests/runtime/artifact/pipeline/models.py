"""Deep classifiers with skip connections, as packages."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.specs import Signature, TensorSpec
from tests.runtime.artifact.split.models import SIDE, package

WIDTH, BLOCKS, CLASSES = 48, 6, 40


def deep(*, width=WIDTH, blocks=BLOCKS, classes=CLASSES, long_skip=True, embedding=False, seed=1):
    """Residual blocks x = x + relu(x @ weight), over all of which goes what the first one takes; with `embedding` a second
    output, which is made in the middle."""
    random = np.random.default_rng(seed)

    def weight(rows, columns):
        return random.normal(0, 0.7 / np.sqrt(rows), (rows, columns)).astype(np.float32)

    weights = {"stem": weight(3 * SIDE * SIDE, width), "head": weight(width, classes), "scale": np.float32([0.5])}
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "stem"], ["x0"]),
        helper.make_node("Mul", ["scale", "scale"], ["quarter"]),  # a constant, which several stages need
    ]
    for number in range(blocks):
        weights[f"weight{number}"] = weight(width, width)
        nodes += [
            helper.make_node("MatMul", [f"x{number}", f"weight{number}"], [f"made{number}"]),
            helper.make_node("Relu", [f"made{number}"], [f"taken{number}"]),
            helper.make_node("Mul", [f"taken{number}", "quarter"], [f"small{number}"]),
            helper.make_node("Add", [f"x{number}", f"small{number}"], [f"x{number + 1}"]),
        ]
    end = f"x{blocks}"
    if long_skip:
        nodes.append(helper.make_node("Add", [end, "x0"], ["sum"]))
        end = "sum"
    nodes.append(helper.make_node("MatMul", [end, "head"], ["scores"]))
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])]
    if embedding:
        nodes.append(helper.make_node("Identity", [f"x{blocks // 2}"], ["embedding"]))
        outputs.append(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", width]))
    made = helper.make_graph(
        nodes,
        "deep",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def signature_of(model: onnx.ModelProto) -> Signature:
    """Of a graph of floats, whose first dimension is the batch."""

    def spec(value):
        sizes = tuple(part.dim_value for part in value.type.tensor_type.shape.dim)[1:]
        return TensorSpec(name=value.name, dtype="float32", shape=("batch", *sizes))

    return Signature(inputs=tuple(map(spec, model.graph.input)), outputs=tuple(map(spec, model.graph.output)))


def deep_package(folder, model=None, *, name="deep", **more):
    """The package FOLDER/models/NAME of a graph, by default the usual one."""
    model = deep() if model is None else model
    return package(folder, model, name=name, **{"signature": signature_of(model), **more})
