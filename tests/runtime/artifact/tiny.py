"""A model of one linear layer, as files and as a plan of it."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.runtime.artifact.parity import ParityRecord
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.specs import FP32, CenterCrop, Preprocessing, Resize, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 4, 4)),),
    outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 5)),),
)
PREPROCESSING = Preprocessing(geometry=(Resize(size=5), CenterCrop(size=(4, 4))), source="evaluate.py:7")
WEIGHTS = np.random.default_rng(3).standard_normal((48, 5)).astype(np.float32)


def write_onnx(path, weights=WEIGHTS):
    nodes = [helper.make_node("Flatten", ["images"], ["flat"]), helper.make_node("MatMul", ["flat", "weights"], ["logits"])]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 4, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def plan(backend="onnxruntime", files=("model.onnx",), where=None, buckets=(1, 4)):
    choice = Choice(backend=backend, precision=FP32, files=files)
    record = ParityRecord(status="passed", max_abs=1e-7, top1_agreement=1.0, batches=(1, 2, 5))
    won = Measurement(choice=Choice(backend=backend, precision=FP32), bucket=1, status="won", median_ms=0.5, parity=record)
    return Plan(fingerprint=where or fingerprint(), choices=dict.fromkeys(buckets, choice), measurements=(won,))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
