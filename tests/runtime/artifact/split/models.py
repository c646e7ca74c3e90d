"""Classifiers whose last layer is a matrix product, as packages."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.runtime.artifact.package import write_package
from headrace.specs import Signature, TensorSpec

SIDE, WIDTH = 8, 24


def graph(tail, constants, *, outputs=("scores",), classes=10):
    """features = relu(flatten(images) @ trunk), then the nodes of `tail`."""
    random = np.random.default_rng(1)
    trunk = random.normal(0, 0.2, (3 * SIDE * SIDE, WIDTH)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "trunk"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["features"]),
        *tail,
    ]
    made = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", classes]) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in {"trunk": trunk, **constants}.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def linear(classes, *, ties=False):
    """scores = features @ weight' + bias; with `ties` every class is like the one three before it."""
    random = np.random.default_rng(classes)
    weight = random.normal(0, 1, (classes, WIDTH)).astype(np.float32)
    bias = random.normal(0, 1, classes).astype(np.float32)
    if ties:
        weight, bias = weight[np.arange(classes) % 3], bias[np.arange(classes) % 3]
    node = helper.make_node("Gemm", ["features", "weight", "bias"], ["scores"], name="fc", transB=1)
    return graph([node], {"weight": weight, "bias": bias}, classes=classes)


def signature(classes, outputs=("scores",)):
    return Signature(
        inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
        outputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch", classes)) for name in outputs),
    )


def package(folder: Path, model, *, name="faces", classes=10, outputs=("scores",), **more) -> Path:
    """The model as the package FOLDER/models/NAME."""
    files = folder / "files"
    files.mkdir(parents=True)
    onnx.save(model, files / "model.onnx")
    contents = {"signature": signature(classes, outputs), "preprocessing": None, "parity": {}, "plans": [], "provenance": {}}
    return write_package(folder / "models" / name, name=name, files_from=files, **{"max_batch_size": 16, **contents, **more})


def images(rows, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 3, SIDE, SIDE)).astype(np.float32)
