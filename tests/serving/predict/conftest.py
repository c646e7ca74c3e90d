"""Models of every task that answers images."""

import onnx
import pytest
from onnx import TensorProto, helper

from headrace.runtime.artifact.package import write_package
from headrace.runtime.base.task import Task
from headrace.specs import Preprocessing, Resize, Signature, TensorSpec

CHANNELS = ["red", "green", "blue"]


def _write(models, name, nodes, outputs, told, labels=None, preprocessing=True):
    files = models.parent / f"files-{name}"
    files.mkdir()
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 3]) for output in outputs],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), files / "model.onnx")
    signature = Signature(
        inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 8, 8)),),
        outputs=tuple(TensorSpec(name=output, dtype="float32", shape=("batch", 3)) for output in outputs),
    )
    normalized = Preprocessing(geometry=(Resize(size=(8, 8)),), mean=(0.5,) * 3, std=(0.25,) * 3)
    write_package(
        models / name,
        name=name,
        files_from=files,
        signature=signature,
        preprocessing=normalized if preprocessing else None,
        task=Task.of(signature, told),
        labels=labels,
        parity={},
        plans=[],
        provenance={},
        max_batch_size=4,
    )


@pytest.fixture(scope="session")
def tasks(tmp_path_factory):
    """A models folder: `single`, `several` (labels, above their thresholds), `heads` (one of each) and `vector`; `tensors` has
    no preprocessing, `maps` nothing that is answered for an image."""
    models = tmp_path_factory.mktemp("tasks") / "models"
    models.mkdir()
    mean = [helper.make_node("ReduceMean", ["images"], ["scores"], axes=[2, 3], keepdims=0)]
    highest = helper.make_node("ReduceMax", ["images"], ["high"], axes=[2, 3], keepdims=0)
    _write(models, "single", mean, ["scores"], "", CHANNELS)
    _write(models, "several", mean, ["scores"], "multi-label:0.3/0.5/0.6", CHANNELS)
    told = "scores=single-label,high=multi-label"
    _write(models, "heads", [*mean, highest], ["scores", "high"], told, {"scores": CHANNELS, "high": ["a", "b", "c"]})
    _write(models, "vector", mean, ["scores"], "embedding")
    _write(models, "tensors", mean, ["scores"], "", preprocessing=False)
    _write(models, "raw", mean, ["scores"], "raw")
    return models
