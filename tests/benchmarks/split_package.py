"""What the benchmarks of split models share: a graph as a package, and the time until a lost process is back."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from headrace.runtime.artifact.package import write_package
from headrace.specs import Signature, TensorSpec


def package(
    folder: Path,
    name: str,
    nodes: Sequence[NodeProto],
    weights: Mapping[str, np.ndarray],
    *,
    row: tuple[int, ...],
    classes: int,
) -> Path:
    """The package FOLDER/models/NAME of nodes that go from "given", rows of that shape, to the "scores" of the classes."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, ["batch", *row])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value.astype(np.float32, copy=False), key) for key, value in weights.items()],
    )
    (folder / "files").mkdir()
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    large = sum(value.size * 4 for value in weights.values()) > 2_000_000_000
    onnx.save(made, folder / "files/model.onnx", save_as_external_data=large, location="model.onnx.data" if large else None)
    signature = Signature(
        inputs=(TensorSpec(name="given", dtype="float32", shape=("batch", *row)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", classes)),),
    )
    return write_package(
        folder / "models" / name,
        name=name,
        files_from=folder / "files",
        signature=signature,
        preprocessing=None,
        parity={},
        plans=[],
        provenance={},
        max_batch_size=16,
    )


def seconds_lost(session: Any, number: signal.Signals) -> float:
    """From a signal to the first process of a split model's session until all compute again."""
    begin = time.perf_counter()
    os.kill(session.ranks.pids[0], number)
    while not session.ranks.trouble:
        time.sleep(0.001)
    while session.ranks.trouble:
        time.sleep(0.001)
    return time.perf_counter() - begin
