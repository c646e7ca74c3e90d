import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import ArtifactError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import MANIFEST, read_content, write_manifest
from headrace.runtime.artifact.routes.answer_template import Name, Pick
from headrace.runtime.artifact.routes.kept_route import ImageForm, KeptRoute
from headrace.runtime.artifact.split.splitting import split_model
from headrace.specs import Signature, TensorSpec
from tests.runtime.artifact.split.models import graph, linear, package

LABELS = [f"person {number}" for number in range(10)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return package(tmp_path_factory.mktemp("whole"), linear(10), labels=LABELS)


@pytest.fixture(scope="module")
def halves(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("halves")
    done = CliRunner().invoke(app, ["split", str(whole), "--ranks", "2", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "2 ranks" in done.output
    return out / "faces"


def test_the_package_says_its_mesh(halves, whole):
    artifact, before = load_artifact(halves), load_artifact(whole)
    assert artifact.mesh.bounds == ((0, 5), (5, 10))
    assert set(artifact.files) == {"trunk.onnx", "part-0.onnx", "part-1.onnx"}
    assert (artifact.signature, artifact.task, artifact.labels) == (before.signature, before.task, before.labels)
    assert artifact.max_batch_size == before.max_batch_size
    assert artifact.config.backend == "headrace"
    plan = artifact.plan_here()
    assert plan.device == "cpu"
    assert "2 ranks" in plan.reason
    assert set(plan.files) == set(artifact.files)


@pytest.mark.parametrize("ranks", [0, 1, 11, -1])
def test_no_more_ranks_than_classes(whole, tmp_path, ranks):
    with pytest.raises(ArtifactError, match="takes 2 to 10"):
        split_model(whole, tmp_path / "out", ranks)
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_not_split_in_its_own_place(whole):
    with pytest.raises(ArtifactError, match="would be replaced"):
        split_model(whole, whole.parent, 2)
    assert load_artifact(whole).mesh is None


def test_a_split_model_is_not_split_again(halves, tmp_path):
    with pytest.raises(ArtifactError, match="split already"):
        split_model(halves, tmp_path / "out", 2)


def test_several_outputs_are_rejected(tmp_path):
    tail = linear(10).graph.node[-1]
    constants = {"weight": np.ones((10, 24), np.float32), "bias": np.ones(10, np.float32)}
    both = graph([tail], constants, outputs=("scores", "hidden"))
    folder = package(tmp_path, both, outputs=("scores", "hidden"))
    with pytest.raises(ArtifactError, match="several outputs"):
        split_model(folder, tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()


def test_a_graph_whose_input_may_be_an_index_is_rejected(tmp_path):
    words = Signature(
        inputs=(TensorSpec(name="images", dtype="int64", shape=("batch", 3, 8, 8)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 10)),),
    )
    folder = package(tmp_path, linear(10), signature=words)
    with pytest.raises(ArtifactError, match="integers"):
        split_model(folder, tmp_path / "out", 2)


def hostile(folder, **values):
    """The manifest with other values, under digests that fit."""
    version = folder / "1"
    content = read_content(version)
    write_manifest(version, {key: value for key, value in (content | values).items() if key != "self"})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"plans": [{}]}, "no plans|cannot read"),
        ({"mesh": {"shape": [2]}}, "cannot read"),
        ({"mesh": []}, "cannot read"),
        ({"task": [{"output": "scores", "kind": "multi-label", "probabilities": False}]}, "cannot read"),
        ({"task": [{"output": "scores", "kind": "single-label", "probabilities": True}]}, "cannot read"),
    ],
)
def test_a_manifest_that_says_something_else_is_rejected(whole, tmp_path, values, why):
    split_model(whole, tmp_path, 2)
    hostile(tmp_path / "faces", **values)
    with pytest.raises(ArtifactError, match=why):
        load_artifact(tmp_path / "faces")


def test_a_part_outside_of_the_version_is_rejected(whole, tmp_path):
    split_model(whole, tmp_path, 2)
    mesh = json.loads((tmp_path / "faces/1" / MANIFEST).read_text())["mesh"]
    mesh["parts"][0]["file"] = "../labels.txt"
    hostile(tmp_path / "faces", mesh=mesh)
    with pytest.raises(ArtifactError, match="cannot read"):
        load_artifact(tmp_path / "faces")


def test_the_routes_of_its_application_stay(whole, tmp_path):
    """`headrace serve --keep-routes` of the split model would else say that nothing was proved."""
    folder = tmp_path / "models" / "faces"
    shutil.copytree(whole, folder)
    route = KeptRoute(path="/who", image=ImageForm(kind="body"), template=Name(pick=Pick(rank=0)), proved=12, source="app.py:1")
    write_manifest(folder / "1", {**read_content(folder / "1"), "routes": [route.to_json()]})
    assert load_artifact(split_model(folder, tmp_path / "out", 2)[0]).routes == (route,)


def test_a_file_in_the_place_of_the_models_folder_is_an_error_of_one_line(whole, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ArtifactError, match=r"cannot write .*out/faces.*nothing was changed"):
        split_model(whole, tmp_path / "out", 2)
    assert (tmp_path / "out").read_text() == "mine"
