import numpy as np
import pytest

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.known_answers import known_rows, record
from headrace.runtime.artifact.same_model import how_another
from headrace.specs import Signature, TensorSpec
from tests.runtime.artifact.split.models import graph, linear, package, signature

LABELS = [f"person {number}" for number in range(10)]


def answers(shift=0.0):
    rows = known_rows(signature(10))[0].reshape(6, -1)[:, :10]
    return record(rows + shift * np.arange(60, dtype=np.float32).reshape(6, 10), 0.0) | {"output": 0}


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    def packaged(model=None, weights=None, **more):
        found = package(
            tmp_path_factory.mktemp("one"), model or linear(10), provenance={"weights": weights} if weights else {}, **more
        )
        return load_artifact(found)

    return packaged


def reordered():
    """The same model, whose file has other bytes."""
    made = linear(10)
    made.doc_string = "made by another version"
    return made


def test_the_same_graph_is_the_same_model(packaged):
    assert how_another(packaged(labels=LABELS), packaged(labels=LABELS)) is None


def test_what_is_seen_of_it_from_outside(packaged):
    plain = packaged()
    assert how_another(plain, packaged(labels=LABELS)) == "labels or task"
    assert how_another(packaged(labels=LABELS), packaged(labels=LABELS[::-1])) == "labels or task"
    wide = Signature(
        inputs=(TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 8, 8)),), outputs=plain.signature.outputs
    )
    assert how_another(plain, packaged(signature=wide)) == "inputs or outputs"


def test_another_graph_with_other_weights(packaged):
    constants = {"weight": np.ones((10, 24), np.float32), "bias": np.ones(10, np.float32)}
    other = graph([linear(10).graph.node[-1]], constants)
    assert how_another(packaged(), packaged(other)) == "weights"
    assert how_another(packaged(weights="a"), packaged(other, weights="b")) == "weights"


def test_another_graph_with_the_same_weights_is_known_by_its_answers(packaged):
    one = packaged(weights="a", answers=answers())
    assert how_another(one, packaged(reordered(), weights="a", answers=answers(1e-7))) is None
    assert how_another(one, packaged(reordered(), weights="a", answers=answers(0.1))) == "answers"
    assert how_another(one, packaged(reordered(), weights="a")) == "answers"
    assert how_another(packaged(weights="a"), packaged(reordered(), weights="a")) is None
