"""A packaged model whose scores follow from a photo's mean colors, so that made images are of all its classes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.runtime.artifact.package import write_package
from headrace.specs import Preprocessing, Resize, Signature, TensorSpec

LABELS = ("red", "green", "blue")
WEIGHTS = (12 * np.eye(3)).astype(np.float32)


def write_colors(place, *, preprocessing=True, outputs=1):
    """Write the package `colors` into `place/models`."""
    files = place / "files"
    files.mkdir(parents=True)
    names = ["scores", "more"][:outputs]
    nodes = [helper.make_node("GlobalAveragePool", ["images"], ["means"]), helper.make_node("Flatten", ["means"], ["flat"])]
    nodes += [helper.make_node("MatMul", ["flat", "weights"], [name]) for name in names]
    graph = helper.make_graph(
        nodes,
        "colors",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in names],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), files / "model.onnx")
    specs = tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 3)) for name in names)
    return write_package(
        place / "models" / "colors",
        name="colors",
        files_from=files,
        signature=Signature(inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 16, 16)),), outputs=specs),
        preprocessing=Preprocessing(geometry=(Resize(size=(16, 16)),)) if preprocessing else None,
        labels=LABELS,
        parity={},
        plans=[],
        provenance={},
    )
