import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import BackendError
from headrace.runtime.backends.shared.onnx_graph import read_graph


def graph(weights):
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2])] for name in ("x", "y")]
    nodes = [helper.make_node("Add", ["x", "weights"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "sum", *ends, [weights]))


def test_weights_beside_the_graph_are_read_with_it(tmp_path):
    weights = np.array([1.0, 2.0], np.float32)
    onnx.save(
        graph(numpy_helper.from_array(weights, "weights")),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        size_threshold=0,
    )
    (found,) = read_graph(tmp_path / "model.onnx").graph.initializer
    assert numpy_helper.to_array(found).tolist() == weights.tolist()


@pytest.mark.parametrize("place", ["../secret", "nothing", "."])
def test_weights_elsewhere_are_refused_with_the_file_s_name(tmp_path, place):
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder := tmp_path / "model").mkdir()
    weights = TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=place)
    (folder / "model.onnx").write_bytes(graph(weights).SerializeToString())
    with pytest.raises(BackendError, match=r"model\.onnx cannot be loaded by onnx "):
        read_graph(folder / "model.onnx")


def test_bytes_that_are_no_graph(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(BackendError, match=r"model\.onnx cannot be loaded by onnx "):
        read_graph(tmp_path / "model.onnx")
