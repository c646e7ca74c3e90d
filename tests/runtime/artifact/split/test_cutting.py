import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from headrace.errors import ArtifactError
from headrace.runtime.artifact.split.cutting import cut
from tests.runtime.artifact.split.models import WIDTH, graph, images, linear

CLASSES = 10
BOUNDS = [(0, 3), (3, 4), (4, CLASSES)]
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.normal(0, 1, (CLASSES, WIDTH)).astype(np.float32)
ACROSS = np.ascontiguousarray(WEIGHT.T)
BIAS = RANDOM.normal(0, 1, CLASSES).astype(np.float32)
node = helper.make_node

PRODUCT = [node("MatMul", ["features", "weight"], ["product"])]
NORMALIZED = [  # as a head of faces has it: cosines of the features with each class's direction, times a scale
    node("ReduceL2", ["features", "last"], ["length"], keepdims=1),
    node("Div", ["features", "length"], ["direction"]),
    node("ReduceL2", ["weight", "last"], ["lengths"], keepdims=1),
    node("Div", ["weight", "lengths"], ["directions"]),
    node("Transpose", ["directions"], ["across"], perm=[1, 0]),
    node("MatMul", ["direction", "across"], ["cosines"]),
    node("Clip", ["cosines", "least", "most"], ["clipped"]),
    node("Mul", ["scale", "clipped"], ["scores"]),
]
SPLITTABLE = {
    "gemm": (linear(CLASSES), {}),
    "matmul": ([node("MatMul", ["features", "weight"], ["scores"])], {"weight": ACROSS}),
    "bias": ([*PRODUCT, node("Add", ["bias", "product"], ["scores"])], {"weight": ACROSS, "bias": BIAS}),
    "row": ([*PRODUCT, node("Sub", ["product", "bias"], ["scores"])], {"weight": ACROSS, "bias": BIAS[None]}),
    "scalar": ([*PRODUCT, node("Div", ["product", "bias"], ["scores"])], {"weight": ACROSS, "bias": np.float32(8)}),
    "gemm across": (
        [node("Gemm", ["features", "weight", "bias"], ["scores"], alpha=0.5, beta=2.0)],
        {"weight": ACROSS, "bias": BIAS[None]},
    ),
    "gemm without bias": ([node("Gemm", ["features", "weight"], ["scores"], transB=1)], {"weight": WEIGHT}),
    "one bias": ([node("Gemm", ["features", "weight", "bias"], ["scores"], transB=1)], {"weight": WEIGHT, "bias": BIAS[:1]}),
    "normalized": (
        NORMALIZED,
        {"weight": WEIGHT, "last": np.array([1]), "least": np.float32(-1), "most": np.float32(1), "scale": np.float32(64)},
    ),
}


def made(tail, constants):
    return graph(tail, constants, classes=CLASSES) if isinstance(tail, list) else tail


def run(model, **inputs):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


@pytest.mark.parametrize("name", SPLITTABLE)
def test_the_parts_compute_what_the_whole_does(name):
    model = made(*SPLITTABLE[name])
    trunk, parts = cut(model, BOUNDS)
    rows = images(5)
    features = run(trunk, images=rows)
    assert features.shape == (5, WIDTH)
    for (first, end), part in zip(BOUNDS, parts, strict=True):
        taken = onnxruntime.InferenceSession(part.SerializeToString()).get_inputs()[0].name
        scores = run(part, **{taken: features})
        np.testing.assert_allclose(scores, run(model, images=rows)[:, first:end], rtol=1e-5, atol=1e-6)
        large = [value.dims for value in part.graph.initializer if len(value.dims) == 2 and min(value.dims) > 1]
        assert all(end - first in dims and CLASSES not in dims for dims in large)
    assert not {value.name for value in trunk.graph.initializer} & {"weight", "bias"}


SQUARE = RANDOM.normal(0, 1, (CLASSES, CLASSES)).astype(np.float32)
REJECTED = {
    "Softmax": ([*PRODUCT, node("Softmax", ["product"], ["scores"])], {"weight": ACROSS}),
    "Relu": ([*PRODUCT, node("Relu", ["product"], ["scores"])], {"weight": ACROSS}),
    "Mul": ([*PRODUCT, node("Mul", ["product", "product"], ["scores"])], {"weight": ACROSS}),
    "transposed": (
        [node("Transpose", ["features"], ["turned"]), node("Gemm", ["turned", "weight"], ["scores"], transA=1)],
        {"weight": ACROSS},
    ),
    "shape": ([*PRODUCT, node("Add", ["product", "bias"], ["scores"])], {"weight": ACROSS, "bias": np.ones((5, CLASSES), "f")}),
    "float64": (
        [
            node("Cast", ["features"], ["wide"], to=11),
            node("MatMul", ["wide", "weight"], ["product"]),
            node("Cast", ["product"], ["scores"], to=1),
        ],
        {"weight": ACROSS.astype(np.float64)},
    ),
    "MatMul": (
        [node("MatMul", ["weight", "turned"], ["scores"]), node("Transpose", ["features"], ["turned"])],
        {"weight": WEIGHT},
    ),
    "several of its axes": (
        [
            *PRODUCT,
            node("Gemm", ["product", "square", "row"], ["middle"], transB=1),
            node("Add", ["middle", "row"], ["scores"]),
        ],
        {"weight": ACROSS, "square": SQUARE, "row": SQUARE[:1]},
    ),
}


@pytest.mark.parametrize("name", [name for name in REJECTED if name != "several of its axes"])
def test_what_is_no_linear_layer_of_classes_is_rejected(name):
    tail, constants = REJECTED[name]
    with pytest.raises(ArtifactError, match=r"cannot be split|can be split|a split one is|has a constant"):
        cut(made(tail, constants), BOUNDS)


def test_a_layer_before_the_last_stays_in_the_trunk():
    model = made(*REJECTED["several of its axes"])
    trunk, parts = cut(model, BOUNDS)
    assert {value.name for value in trunk.graph.initializer} == {"trunk", "weight"}
    features = run(trunk, images=images(4))
    scores = np.concatenate([run(part, product=features) for part in parts], axis=1)
    np.testing.assert_allclose(scores, run(model, images=images(4)), rtol=1e-5, atol=1e-5)


def test_a_model_that_is_nothing_but_its_last_layer():
    model = helper.make_model(
        helper.make_graph(
            [node("Gemm", ["given", "weight"], ["scores"], transB=1)],
            "head",
            [helper.make_tensor_value_info("given", 1, ["batch", WIDTH])],
            [helper.make_tensor_value_info("scores", 1, ["batch", CLASSES])],
            [numpy_helper.from_array(WEIGHT, "weight")],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    trunk, parts = cut(model, BOUNDS)
    rows = RANDOM.normal(size=(3, WIDTH)).astype(np.float32)
    assert np.array_equal(run(trunk, given=rows), rows)
    scores = np.concatenate([run(part, given=rows) for part in parts], axis=1)
    np.testing.assert_allclose(scores, run(model, given=rows), rtol=1e-5, atol=1e-6)


def test_a_head_within_a_branch_keeps_what_the_branch_reads():
    """The trunk has an If, whose bodies read values of the graph around them."""

    def body(name, value):
        return helper.make_graph(
            [node("Add", ["features", value], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )

    tail = [
        node("If", ["flag"], ["chosen"], then_branch=body("yes", "more"), else_branch=body("no", "less")),
        node("MatMul", ["chosen", "weight"], ["scores"]),
    ]
    constants = {"flag": np.array(True), "more": np.float32(1), "less": np.float32(-1), "weight": ACROSS}
    model = made(tail, constants)
    trunk, parts = cut(model, BOUNDS)
    chosen = run(trunk, images=images(2))
    scores = np.concatenate([run(part, chosen=chosen) for part in parts], axis=1)
    np.testing.assert_allclose(scores, run(model, images=images(2)), rtol=1e-5, atol=1e-6)
