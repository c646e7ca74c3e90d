"""What an ONNX file says of itself, and strings on their way through the library."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from headrace.errors import BackendError
from headrace.runtime.artifact.formats.onnx import FORMAT


def opened(tmp_path, kind, shape, **options):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return FORMAT.open(path, ((), ()), threads=1, parameters=options)


@pytest.mark.parametrize(("shape", "said"), [(("b", 3), (-1, 3)), ((2, None), (2, -1)), ((), None), (None, None)])
def test_tensors(tmp_path, shape, said):
    graph = opened(tmp_path, TensorProto.FLOAT, shape)
    assert [(one.name, one.datatype, one.shape) for one in (*graph.inputs, *graph.outputs)] == [
        ("x", "FP32", said), ("y", "FP32", said),
    ]  # fmt: skip


def test_strings_are_bytes_outside_and_text_inside(tmp_path):
    session = opened(tmp_path, TensorProto.STRING, ("b",)).session
    given = np.array(["é".encode(), b"", b"b"], object)
    for one in (session, session.twin()):
        assert one.run([given])[0].tolist() == given.tolist()
    assert given.tolist() == ["é".encode(), b"", b"b"]
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([given])


@pytest.mark.parametrize("count", ["2", "0", "-1", "99999999999999999999", "x"])
def test_threads_of_a_config(tmp_path, count):
    assert opened(tmp_path, TensorProto.FLOAT, ("b",), intra_op_thread_count=count).session.run([np.ones(2, np.float32)])


def test_what_is_no_tensor(tmp_path):
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b"])],
        [helper.make_value_info("y", helper.make_sequence_type_proto(element))],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with pytest.raises(BackendError, match=r"'y' is a seq\(tensor\(float\)\), for which the protocol has no name"):
        FORMAT.open(path, ((), ()), threads=1, parameters={})
