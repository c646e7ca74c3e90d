import itertools
import json

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import ArtifactError, ParityError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import MANIFEST, read_content, write_manifest
from headrace.runtime.artifact.pipeline import splitting
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.artifact.split.splitting import split_model
from headrace.runtime.graph.loaded import load
from headrace.specs import Signature, TensorSpec
from tests.runtime.artifact.pipeline.models import CLASSES, deep, deep_package
from tests.runtime.artifact.split.models import images, linear, package

LABELS = [f"thing {number}" for number in range(CLASSES)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return deep_package(tmp_path_factory.mktemp("whole"), labels=LABELS)


@pytest.fixture(scope="module")
def halves(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("halves")
    done = CliRunner().invoke(app, ["split", str(whole), "--stages", "2", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "2 stages, which take " in done.output
    return out / "deep"


def test_the_package_says_its_mesh(halves, whole):
    artifact, before = load_artifact(halves), load_artifact(whole)
    assert set(artifact.files) == {"stage-0.onnx", "stage-1.onnx"}
    assert [stage.gives for stage in artifact.mesh.stages][-1] == ("scores",)
    assert (artifact.signature, artifact.task, artifact.labels) == (before.signature, before.task, before.labels)
    assert artifact.max_batch_size == before.max_batch_size
    assert artifact.config.backend == "headrace"
    plan = artifact.plan_here()
    assert plan.device == "cpu"
    assert "pipeline of 2 stages" in plan.reason
    assert set(plan.files) == set(artifact.files)


@pytest.mark.parametrize("options", [["--ranks", "2", "--stages", "2"], []])
def test_ranks_and_stages_exclude_each_other(whole, tmp_path, options):
    done = CliRunner().invoke(app, ["split", str(whole), *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "--ranks" in done.output
    assert "--stages" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stages", [-1, 0, 1, 65])
def test_how_many_stages_there_may_be(whole, tmp_path, stages):
    with pytest.raises(ArtifactError, match=f"--stages takes 2 to 64, got {stages}"):
        cut_model(whole, tmp_path / "out", stages)
    assert list(tmp_path.iterdir()) == []


def test_no_more_stages_than_there_are_places(tmp_path):
    names = ["images", "x", "y", "scores"]
    nodes = [helper.make_node(kind, [names[at]], [names[at + 1]]) for at, kind in enumerate(("Relu", "Abs", "Neg"))]
    folder = deep_package(tmp_path, short(nodes))
    with pytest.raises(ArtifactError, match="can be cut at 2 places, into up to 3 stages, not 4"):
        cut_model(folder, tmp_path / "out", 4)
    assert not (tmp_path / "out").exists()


def short(nodes):
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, 8, 8]) for name in ("images", "scores")}
    graph = helper.make_graph(nodes, "model", [value["images"]], [value["scores"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("stages", [2, 3, 6])
def test_skips_and_early_outputs_go_over_the_cuts(tmp_path, stages):
    folder = deep_package(tmp_path, deep(blocks=8, embedding=True))
    done = cut_model(folder, tmp_path / "out", stages)
    assert len(done.milliseconds) == stages
    assert done.difference <= 1e-6
    mesh = load_artifact(done.path).mesh
    assert any(len(stage.gives) > 1 for stage in mesh.stages[:-1])
    one, several = load_artifact(folder).open(), load_artifact(done.path).open()
    try:
        for rows in (1, 3, 16):
            for own, wanted in zip(several.run([images(rows)]), one.run([images(rows)]), strict=True):
                np.testing.assert_allclose(own, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    finally:
        one.close()
        several.close()


@pytest.mark.slow  # what layers take: test_measurement; stages of it: test_partition
def test_stages_are_balanced_by_what_they_take(tmp_path):
    """Six equal blocks of some milliseconds each, and little else: three stages of two."""
    done = cut_model(deep_package(tmp_path, deep(width=1500, blocks=6)), tmp_path / "out", 3)
    weights = [(done.path / "1" / stage.file).stat().st_size for stage in load_artifact(done.path).mesh.stages]
    assert max(weights) <= 3.5 * 1500 * 1500 * 4
    assert min(weights) >= 0.9 * 1500 * 1500 * 4


def test_other_answers_are_rejected_before_anything_is_written(whole, tmp_path, monkeypatch):
    """Stages that were exchanged for another model's."""
    other = splitting.Chain.of(deep(seed=9))

    def of_another(chain, places, values):
        return other_cut(other, places, values)

    other_cut = splitting.Chain.cut
    monkeypatch.setattr(splitting.Chain, "cut", of_another)
    with pytest.raises(ParityError, match=r"output 0 of the parts differs by .* at 1 rows \(allowed: 1e-06\)"):
        cut_model(whole, tmp_path / "out", 2)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_that_rounds_otherwise_gives_way_to_the_next(whole, tmp_path, monkeypatch):
    found = []
    real = splitting.largest_difference

    def strict(session, rows, answers):
        found.append(session)
        if len(found) == 1:
            raise ParityError("they differ")
        return real(session, rows, answers)

    monkeypatch.setattr(splitting, "largest_difference", strict)
    monkeypatch.setattr(splitting, "_EVEN", 0.0)  # so that another cut is tried
    monkeypatch.setattr(splitting, "_stage_seconds", lambda *_: [next(uneven), 1.0])
    uneven = itertools.count(10.0, 20.0)
    done = cut_model(whole, tmp_path / "out", 2)
    assert len(found) == 2
    assert load_artifact(done.path).mesh is not None


def test_a_model_is_not_cut_in_its_own_place(whole):
    with pytest.raises(ArtifactError, match="would be replaced"):
        cut_model(whole, whole.parent, 2)
    assert load_artifact(whole).mesh is None


def test_a_split_model_is_not_split_again(halves, tmp_path):
    for again in (cut_model, split_model):
        with pytest.raises(ArtifactError, match="split already"):
            again(halves, tmp_path / "out", 2)
    ranks, _ = split_model(package(tmp_path / "ranks", linear(10)), tmp_path / "of-ranks", 2)
    with pytest.raises(ArtifactError, match="split already"):
        cut_model(ranks, tmp_path / "out", 2)


def test_a_graph_whose_input_may_be_an_index_is_rejected(tmp_path):
    words = Signature(
        inputs=(TensorSpec(name="images", dtype="int64", shape=("batch", 3, 8, 8)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", CLASSES)),),
    )
    with pytest.raises(ArtifactError, match="integers"):
        cut_model(deep_package(tmp_path, signature=words), tmp_path / "out", 2)


def test_what_only_whole_models_can_do_says_so(halves):
    with pytest.raises(ArtifactError, match="pipeline of 2 stages; headrace serve runs it"):
        load(halves)


def hostile(folder, **values):
    """The manifest with other values, under digests that fit."""
    version = folder / "1"
    content = read_content(version)
    write_manifest(version, {key: value for key, value in (content | values).items() if key != "self"})


@pytest.fixture
def victim(whole, tmp_path):
    folder = cut_model(whole, tmp_path / "out", 2).path
    return folder, json.loads((folder / "1" / MANIFEST).read_text())["mesh"]


@pytest.mark.parametrize("file", ["../labels.txt", "../../../secret.onnx", "/etc/passwd", "model.onnx", "", None, 7])
def test_a_stage_outside_of_the_version_is_rejected(victim, file):
    folder, mesh = victim
    mesh["stages"][0]["file"] = file
    hostile(folder, mesh=mesh)
    with pytest.raises(ArtifactError, match="cannot read"):
        load_artifact(folder)


@pytest.mark.parametrize(
    "values", [{"plans": [{}]}, {"mesh": {"kind": "pipeline"}}, {"mesh": {"kind": "pipeline", "stages": 3}}]
)
def test_a_manifest_that_says_something_else_is_rejected(victim, values):
    hostile(victim[0], **values)
    with pytest.raises(ArtifactError, match="cannot read|no plans"):
        load_artifact(victim[0])


@pytest.mark.parametrize("change", [lambda m: m | {"shape": [3]}, lambda m: m | {"stages": m["stages"][:1], "shape": [1]}])
def test_a_wrong_number_of_stages_is_rejected(victim, change):
    folder, mesh = victim
    hostile(folder, mesh=change(mesh))
    with pytest.raises(ArtifactError, match="cannot read"):
        load_artifact(folder)


def test_a_digest_of_another_file_is_rejected(victim):
    folder, _ = victim
    digests = read_content(folder / "1")["digests"]
    swapped = digests | {"stage-0.onnx": digests["stage-1.onnx"], "stage-1.onnx": digests["stage-0.onnx"]}
    hostile(folder, digests=swapped)
    with pytest.raises(ArtifactError, match="is not the file that was written"):
        load_artifact(folder)
