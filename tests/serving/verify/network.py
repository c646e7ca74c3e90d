"""A small network, packaged by writing its ONNX graph by hand, and the same network in eager torch."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.plan import Plan
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec

SIDE, CLASSES = 16, 7
LABELS = ("tench", "great white shark", "hammerhead", "electric ray", "cock", "ostrich", "brambling")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PREPROCESSING = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(SIDE, SIDE))), mean=MEAN, std=STD)
GRAY = Preprocessing(mode="L", channels="L", geometry=(Resize(size=(SIDE, SIDE)),), mean=(0.13,), std=(0.31,))


@functools.cache
def network(seed: int = 5, channels: int = 3) -> nn.Sequential:
    """Random weights whose scores spread as those of trained networks do, and depend on all of an image."""
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * (SIDE // 4) ** 2, CLASSES),
    ).eval()
    with torch.no_grad():
        made[5].weight *= 60
    return made


def write_onnx(model: nn.Sequential, path: Path, *, softmax: bool = False) -> None:
    names = ("conv1", "conv2", "head")
    tensors = {}
    for name, layer in zip(names, (model[0], model[2], model[5]), strict=True):
        tensors |= {f"{name}.w": layer.weight, f"{name}.b": layer.bias}
    conv = {"strides": [2, 2], "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    last = "raw" if softmax else "scores"
    nodes = [
        helper.make_node("Conv", ["images", "conv1.w", "conv1.b"], ["a"], **conv),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "conv2.w", "conv2.b"], ["c"], **conv),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"], axis=1),
        helper.make_node("Gemm", ["e", "head.w", "head.b"], [last], transB=1),
        *([helper.make_node("Softmax", ["raw"], ["scores"], axis=1)] if softmax else []),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", model[0].in_channels, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def package(
    models: Path,
    aside: Path,
    name: str = "fish",
    *,
    seed: int = 5,
    preprocessing: Preprocessing | None = PREPROCESSING,
    labels: tuple[str, ...] | None = LABELS,
    softmax: bool = False,
    plans: tuple[Plan, ...] = (),
) -> Path:
    """A models folder with the network; returns it."""
    channels = 1 if preprocessing is not None and preprocessing.mode == "L" else 3
    files = aside / f"{name}-{seed}"
    files.mkdir(parents=True)
    write_onnx(network(seed, channels), files / "model.onnx", softmax=softmax)
    write_package(
        models / name,
        name=name,
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", channels, SIDE, SIDE)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", CLASSES)),),
        ),
        preprocessing=preprocessing,
        labels=labels,
        probabilities=softmax,
        parity={},
        plans=plans,
        provenance={},
        max_batch_size=8,
    )
    return models


def scores(rows: np.ndarray, model: nn.Module | None = None) -> np.ndarray:
    """What eager torch gives, [rows, classes]."""
    with torch.no_grad():
        return (model or network())(torch.from_numpy(np.ascontiguousarray(rows, np.float32))).numpy()
