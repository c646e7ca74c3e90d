import copy

import pytest

from headrace.runtime.artifact.pipeline.mesh import MAX_STAGES, PipelineMesh, Stage, is_pipeline
from headrace.specs import Signature, TensorSpec

MESH = PipelineMesh(
    takes=("images",),
    stages=(
        Stage(file="a.onnx", gives=("x", "skip"), digest="sha256:a"),
        Stage(file="b.onnx", gives=("scores", "embedding"), digest="sha256:b"),
    ),
)
DIGESTS = {"a.onnx": "sha256:a", "b.onnx": "sha256:b"}
SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3)),),
    outputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 2)) for name in ("scores", "embedding")),
)


def read(data, *, digests=DIGESTS):
    return PipelineMesh.from_json(data, digests=digests, signature=SIGNATURE)


def test_a_mesh_is_read_as_it_was_written():
    assert read(MESH.to_json()) == MESH
    assert MESH.files == ("a.onnx", "b.onnx")
    assert MESH.taken == (("images",), ("x", "skip"))
    assert "2 stages" in MESH.described
    assert is_pipeline(MESH.to_json())


@pytest.mark.parametrize("data", [None, [], "pipeline", {}, {"kind": "ranks"}, {"shape": [2], "trunk": "a.onnx"}])
def test_what_is_no_pipeline(data):
    assert not is_pipeline(data)


def changed(**values):
    return MESH.to_json() | values


def with_stage(**values):
    data = copy.deepcopy(MESH.to_json())
    data["stages"][0] |= values
    return data


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        changed(shape=[3]),
        changed(shape=[1, 2]),
        changed(shape=2),
        changed(kind="ranks"),
        changed(more=1),
        changed(stages=None),
        changed(stages=[]),
        changed(stages="ab"),
        changed(stages=[7, 8]),
        changed(shape=[1], stages=MESH.to_json()["stages"][1:]),
        changed(shape=[3], stages=[*MESH.to_json()["stages"], MESH.to_json()["stages"][1]]),
        changed(stages=MESH.to_json()["stages"][::-1]),
        with_stage(file="c.onnx"),
        with_stage(file="../../secret.onnx"),
        with_stage(file="/etc/passwd"),
        with_stage(file={}),
        with_stage(file=None),
        with_stage(file="b.onnx"),
        with_stage(gives=[]),
        with_stage(gives=["x", "x"]),
        with_stage(gives=["x", ""]),
        with_stage(gives=["x", 7]),
        with_stage(gives=[["x"]]),
        with_stage(gives="x"),
        with_stage(gives=None),
        with_stage(gives={"x": 1}),
        with_stage(more=True),
    ],
)
def test_anything_else_is_rejected(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(data)


@pytest.mark.parametrize("gives", [["scores"], ["embedding", "scores"], ["scores", "embedding", "x"]])
def test_the_last_stage_gives_the_models_outputs(gives):
    data = copy.deepcopy(MESH.to_json())
    data["stages"][1]["gives"] = gives
    with pytest.raises(ValueError, match="model's outputs"):
        read(data)


def test_there_are_so_many_stages_at_most():
    files = [f"{number}.onnx" for number in range(MAX_STAGES + 1)]
    stages = [{"file": file, "gives": ["scores", "embedding"]} for file in files]
    with pytest.raises(ValueError, match=f"2 to {MAX_STAGES} stages"):
        read(changed(shape=[len(files)], stages=stages), digests=dict.fromkeys(files, "sha256:x"))
    assert read(changed(shape=[2], stages=stages[:2]), digests=dict.fromkeys(files, "sha256:x"))
