"""Arrays as clients have them and as a graph has them: order, shape, the row that a model without batches is."""

import numpy as np
import pytest

from headrace.errors import ExecutionError
from headrace.runtime.artifact.formats import GraphTensor, OpenedGraph
from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.models.foreign.model import GraphSession


class Session:
    """Gives its second input and its first, as they came."""

    closed = False

    def run(self, inputs):
        self.seen = [array.shape for array in inputs]
        return [inputs[1], inputs[0]]

    def close(self):
        self.closed = True


def session_of(text, inner):
    tensors = {name: GraphTensor(name=name, datatype="FP32", shape=None) for name in ("a", "b", "first", "second")}
    graph = OpenedGraph(inputs=(tensors["a"], tensors["b"]), outputs=(tensors["first"], tensors["second"]), session=inner)
    return GraphSession(parse_config(text), graph, inner)


def tensor(side, name, dims, reshape=None):
    more = "" if reshape is None else f"reshape {{ shape: {reshape} }}"
    return f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} {more} }} '


def test_tensors_go_in_the_graphs_order_and_come_in_the_configs():
    inner = Session()
    text = "max_batch_size: 4 " + tensor("input", "b", [3]) + tensor("input", "a", [2]) + tensor("output", "second", [2])
    (second,) = session_of(text, inner).run([np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)])
    assert inner.seen == [(4, 2), (4, 3)]
    assert second.shape == (4, 2)


def test_reshaped_and_without_batches():
    inner = Session()
    text = (
        tensor("input", "a", [3, 4], [1, 3, 4]) + tensor("input", "b", [-1], [1, -1])
        + tensor("output", "first", [-1], [1, -1]) + tensor("output", "second", [3, 4], [1, 3, 4])
    )  # fmt: skip
    found = session_of(text, inner).run([np.zeros((1, 3, 4), np.float32), np.zeros((1, 5), np.float32)])
    assert inner.seen == [(1, 3, 4), (1, 5)]
    assert [array.shape for array in found] == [(1, 5), (1, 3, 4)]  # each a batch of one row


@pytest.mark.parametrize(
    ("value", "wrong"), [(np.zeros((1, 3), np.float32), "cannot become"), (np.zeros((1, 4)), "is float64")]
)
def test_what_was_not_declared_is_no_answer(value, wrong):
    class Wrong(Session):
        def run(self, inputs):
            return [value, value]

    text = tensor("input", "a", [1]) + tensor("input", "b", [1]) + tensor("output", "first", [4], [2, 2])
    with pytest.raises(ExecutionError, match=wrong):
        session_of(text, Wrong()).run([np.zeros((1, 1), np.float32)] * 2)


def test_closing_closes_the_graph():
    inner = Session()
    session_of(tensor("input", "a", [1]) + tensor("input", "b", [1]), inner).close()
    assert inner.closed
