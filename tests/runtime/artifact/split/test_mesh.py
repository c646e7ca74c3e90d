import copy

import pytest

from headrace.runtime.artifact.split.mesh import MAX_RANKS, Mesh, Part, check_model
from headrace.runtime.base.task import Task
from tests.runtime.artifact.split.models import signature

MESH = Mesh(
    trunk="trunk.onnx",
    parts=(Part(file="a.onnx", classes=3, digest="sha256:a"), Part(file="b.onnx", classes=7, digest="sha256:b")),
)
DIGESTS = {"trunk.onnx": "sha256:t", "a.onnx": "sha256:a", "b.onnx": "sha256:b"}
SIGNATURE = signature(10)


def read(data, *, digests=DIGESTS, of=SIGNATURE, told=""):
    return Mesh.from_json(data, digests=digests, signature=of, task=Task.of(of, told))


def test_a_mesh_is_read_as_it_was_written():
    assert read(MESH.to_json()) == MESH
    assert MESH.bounds == ((0, 3), (3, 10))
    assert MESH.files == ("trunk.onnx", "a.onnx", "b.onnx")


def changed(**values):
    return MESH.to_json() | values


def with_part(**values):
    data = copy.deepcopy(MESH.to_json())
    data["parts"][0] |= values
    return data


@pytest.mark.parametrize(
    "data",
    [
        [],
        "mesh",
        7,
        {},
        changed(shape=[3]),
        changed(shape=[1, 2]),
        changed(shape=2),
        changed(sbp="split(1)"),
        changed(more=1),
        changed(trunk="../../secret.onnx"),
        changed(trunk="a.onnx"),
        changed(trunk=["trunk.onnx"]),
        changed(trunk=None),
        changed(parts=None),
        changed(parts=[]),
        changed(parts="ab"),
        changed(parts=[7, 8]),
        changed(shape=[1], parts=[{"file": "a.onnx", "classes": 10}]),
        changed(shape=[2], parts=[{"file": "a.onnx", "classes": 5}] * 2),
        with_part(file="c.onnx"),
        with_part(file="/etc/passwd"),
        with_part(file={}),
        with_part(file="b.onnx"),
        with_part(classes=4),
        with_part(classes=0),
        with_part(classes=-3),
        with_part(classes=3.0),
        with_part(classes="3"),
        with_part(classes=None),
        with_part(more=True),
    ],
)
def test_anything_else_is_rejected(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(data)


def test_one_class_is_not_true():
    data = changed(parts=[{"file": "a.onnx", "classes": True}, {"file": "b.onnx", "classes": 9}])
    with pytest.raises(ValueError, match="classes"):
        read(data)


def test_there_are_so_many_ranks_at_most():
    files = [f"{number}.onnx" for number in range(MAX_RANKS + 1)]
    data = {"shape": [len(files)], "sbp": "split(0)", "trunk": "trunk.onnx"}
    data["parts"] = [{"file": file, "classes": 1} for file in files]
    with pytest.raises(ValueError, match=f"2 to {MAX_RANKS} ranks"):
        read(data, digests=DIGESTS | dict.fromkeys(files, "sha256:x"), of=signature(len(files)))


@pytest.mark.parametrize(
    ("outputs", "told", "activated", "why"),
    [
        (("scores", "age"), "", {}, "several outputs"),
        (("scores",), "multi-label", {}, "multi-label"),
        (("scores",), "embedding", {}, "embedding"),
        (("scores",), "", {"scores": "softmax"}, "softmax"),
    ],
)
def test_which_models_can_be_split(outputs, told, activated, why):
    of = signature(10, outputs)
    with pytest.raises(ValueError, match=why):
        check_model(of, Task.of(of, told, activated=activated))
