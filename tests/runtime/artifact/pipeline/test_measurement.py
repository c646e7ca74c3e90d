import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import BackendError
from headrace.runtime.artifact.pipeline.cutting import Chain
from headrace.runtime.artifact.pipeline.measurement import ROWS, measure
from tests.runtime.artifact.pipeline.models import deep
from tests.runtime.artifact.split.models import images


def test_every_node_has_its_time():
    chain = Chain.of(deep(blocks=2))
    seconds = measure(chain, [], [images(6)], threads=1).seconds
    assert len(seconds) == len(chain.nodes)
    assert min(seconds) > 0


def test_a_large_product_takes_longer_than_small_ones():
    model = deep(blocks=2)
    large = numpy_helper.from_array(np.zeros((48, 200_000), np.float32), "large")
    model.graph.initializer.append(large)
    model.graph.node.append(helper.make_node("MatMul", ["x2", "large"], ["wide"]))
    model.graph.output.append(helper.make_tensor_value_info("wide", TensorProto.FLOAT, ["batch", 200_000]))
    chain = Chain.of(model)
    found = dict(zip([node.output[0] for node in chain.nodes], measure(chain, [], [images(6)], threads=1).seconds, strict=True))
    assert found["wide"] > 10 * max(found[name] for name in ("made0", "made1", "taken0"))


def test_what_crosses_is_known_by_its_dtype_and_shape():
    nodes = [
        helper.make_node("Shape", ["images"], ["sizes"]),
        helper.make_node("Transpose", ["images"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["images", "flat"], ["all"]),
        helper.make_node("SplitToSequence", ["images"], ["pieces"], axis=1),
        helper.make_node("Greater", ["images", "zero"], ["positive"]),
        helper.make_node("ConcatFromSequence", ["pieces"], ["joined"], axis=1),
        helper.make_node("Where", ["positive", "joined", "images"], ["chosen"]),
        helper.make_node("Reshape", ["all", "sizes"], ["again"]),
        helper.make_node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        helper.make_node("Sum", ["chosen", "again", "back"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.int64([-1]), "flat"), numpy_helper.from_array(np.float32(0), "zero")],
    )
    chain = Chain.of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    values = measure(chain, [5], [np.ones((6, 3), np.float32)], threads=1).values
    assert {name: (str(value.dtype), value.shape, value.size) for name, value in values.items()} == {
        "images": ("float32", ("batch", 3), ROWS * 12),
        "sizes": ("int64", (2,), 16),
        "turned": ("float32", (3, "turned_1"), ROWS * 12),
        "all": ("float32", ("all_0",), ROWS * 12),
        "positive": ("bool", ("batch", 3), ROWS * 3),
    }, "a sequence is no tensor, and cannot cross"


def test_a_graph_that_does_not_run_is_an_error():
    chain = Chain.of(deep())
    with pytest.raises(BackendError, match="cannot be measured"):
        measure(chain, [], [np.zeros((6, 3, 5, 5), np.float32)], threads=1)
