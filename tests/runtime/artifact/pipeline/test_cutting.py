import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from headrace.errors import ArtifactError
from headrace.runtime.artifact.pipeline.cutting import Chain, Value, check_names
from headrace.runtime.artifact.pipeline.measurement import measure
from tests.runtime.artifact.pipeline.models import deep
from tests.runtime.artifact.split.models import images


def run(model, given):
    names = [value.name for value in model.graph.output]
    read = {value.name for value in model.graph.input}
    return dict(zip(names, ReferenceEvaluator(model).run(None, {k: v for k, v in given.items() if k in read}), strict=True))


def chained(chain, places, values, given):
    """The last stage's outputs, each stage having only what the one before it gives."""
    for graph, gives in chain.cut(places, values):
        onnx.checker.check_model(graph, full_check=True)
        made = run(graph, given)
        given = {name: made[name] if name in made else given[name] for name in gives}
    return given


@pytest.mark.parametrize("each", [31, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"embedding": True}, {"long_skip": False}, {"blocks": 1}])
def test_stages_at_any_places_compute_the_same(options, each):
    model = deep(**options)
    chain = Chain.of(model)
    rows = [images(6)]
    values = measure(chain, list(chain.crossing), rows, threads=1).values
    wanted = run(model, {"images": rows[0][:3]})
    for stages in (1, 2, 3, 4):
        for places in list(itertools.combinations(chain.crossing, stages - 1))[::each]:
            given = chained(chain, places, values, {"images": rows[0][:3]})
            assert list(given) == list(wanted)
            assert all(np.array_equal(given[name], wanted[name]) for name in wanted)


def test_what_crosses_is_what_is_needed_behind():
    chain = Chain.of(deep(blocks=2, embedding=True))
    made = [node.output[0] for node in chain.nodes]
    assert "quarter" not in made, "a constant is no stage's work"
    behind_first = made.index("made1")
    assert set(chain.crossing[behind_first]) == {"x0", "x1"}, "the long skip goes along"
    assert set(chain.crossing[made.index("scores")]) == {"sum", "x1"}, "the second output is made of x1 at the end"
    assert all("flat" not in names for place, names in chain.crossing.items() if place > 1)


def test_an_output_that_is_made_early_goes_along():
    model = deep(blocks=3)
    model.graph.output.append(helper.make_tensor_value_info("x1", TensorProto.FLOAT, ["batch", 48]))
    chain = Chain.of(model)
    made = [node.output[0] for node in chain.nodes]
    assert all("x1" in chain.crossing[place] for place in range(made.index("x1") + 1, len(made)))


def test_constants_and_weights_are_where_they_are_read():
    chain = Chain.of(deep(blocks=4))
    made = [node.output[0] for node in chain.nodes]
    places = [made.index("made1"), made.index("made3")]
    values = measure(chain, places, [images(6)], threads=1).values
    graphs = [graph for graph, _ in chain.cut(places, values)]
    weights = [{weight.name for weight in graph.graph.initializer} for graph in graphs]
    assert weights == [{"stem", "weight0", "scale"}, {"weight1", "weight2", "scale"}, {"weight3", "head", "scale"}]


def test_no_cut_before_what_is_fused_with_what_comes_before():
    chain = Chain.of(deep(blocks=3))
    allowed = chain.places(3)
    assert {chain.nodes[place].op_type for place in allowed} == {"MatMul"}
    assert len(chain.places(len(chain.nodes))) == len(chain.nodes) - 1, "unless there are too few other places"


def test_functions_are_written_out():
    double = helper.make_function(
        "own", "Double", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 18)]
    )
    graph = helper.make_graph(
        [helper.make_node("Double", ["images"], ["twice"], domain="own"), helper.make_node("Relu", ["twice"], ["scores"])],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[double], ir_version=9)
    assert [node.op_type for node in Chain.of(model).nodes] == ["Add", "Relu"]


def test_a_body_that_reads_from_outside_gets_it():
    """The branches of an If take x from the graph around them, over a cut."""
    body = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [f"{kind}-out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}-out", TensorProto.FLOAT, None)],
        )
        for kind in ("Neg", "Relu")
    ]
    nodes = [
        helper.make_node("Abs", ["images"], ["x"]),
        helper.make_node("ReduceSum", ["images"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["scores"], then_branch=body[0], else_branch=body[1]),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    chain = Chain.of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert set(chain.crossing[3]) == {"x", "positive"}
    values = {"x": Value(np.dtype("f4"), ("batch", 3), 12), "positive": Value(np.dtype(bool), (), 1)}
    given = np.float32([[1, -2, 4]])
    for sign in (1, -1):
        wanted = run(chain.model, {"images": sign * given})["scores"]
        assert np.array_equal(chained(chain, [3], values, {"images": sign * given})["scores"], wanted)


def test_names_that_are_not_the_signatures_are_an_error():
    model = deep(embedding=True)
    check_names(model, ["images"], ["scores", "embedding"])
    for names in ((["image"], ["scores", "embedding"]), (["images"], ["embedding", "scores"])):
        with pytest.raises(ArtifactError, match="from images to scores, embedding, and the signature says"):
            check_names(model, *names)
