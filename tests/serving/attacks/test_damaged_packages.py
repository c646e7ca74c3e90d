"""Packages whose files are something else than files, or gone: every command ends with a message that names the file, and none
waits."""

import os

import onnx
import pytest
from onnx import TensorProto

from headrace.errors import ArtifactError, BackendError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import MANIFEST, digest, read_content, write_manifest
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.export.export import export
from headrace.serving.config import ServeConfig
from headrace.serving.models.repository import ModelRepository
from headrace.serving.predict.config import PredictConfig
from headrace.serving.predict.predict import predict
from headrace.serving.triton.lint import lint
from headrace.specs import FP32


@pytest.fixture(autouse=True)
def survives():
    """No server is attacked here."""


@pytest.fixture
def folder(repository):
    repository.package("net")
    return repository.path / "net"


def served(folder):
    """The reason for which the model is not served."""
    repository = ModelRepository(ServeConfig.of(models=folder.parent, model_control_mode="explicit", load_models=("net",)))
    try:
        repository.load()
        return "; ".join(entry.reason for entry in repository.entries)
    finally:
        repository.close()


@pytest.mark.parametrize("name", ["config.pbtxt", "labels.txt", "1/model.onnx", f"1/{MANIFEST}"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_named_and_not_waited_for(folder, name, kind):
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    with pytest.raises(ArtifactError) as raised:
        load_artifact(folder)
    assert name.rpartition("/")[2] in str(raised.value)
    with pytest.raises(ArtifactError) as raised:
        export(folder, "onnx", folder.parent / "out.onnx", precision=FP32)
    assert not (folder.parent / "out.onnx").exists()


def test_a_pipe_in_place_of_a_companion_s_config_does_not_keep_the_model_from_serving(folder):
    for name in ("net_decode", "net_classify"):
        config = folder.parent / name / "config.pbtxt"
        config.unlink()
        os.mkfifo(config)
    assert served(folder) == ""


def test_images_for_a_model_that_headrace_did_not_package(folder):
    (folder / "1" / MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=rf"{folder / '1'} holds no {MANIFEST}"):
        predict(folder, [], PredictConfig(), lambda row: None)


@pytest.mark.parametrize("place", ["../../../etc/hostname", "/etc/hostname", "nothing", ".", "pipe"])
def test_weights_elsewhere_end_a_split_with_the_graph_s_name(folder, tmp_path, place):
    path = folder / "1" / "model.onnx"
    graph = onnx.load(path)
    weights = graph.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=place)
    path.write_bytes(graph.SerializeToString())
    content = read_content(folder / "1")
    content["digests"]["model.onnx"] = digest(path, inside=folder / "1")
    write_manifest(folder / "1", content)
    os.mkfifo(folder / "1" / "pipe")
    with pytest.raises(BackendError, match=r"model\.onnx cannot be loaded"):
        cut_model(folder, tmp_path / "parts", 2)


def test_a_link_to_itself_is_no_model_s_folder(tmp_path):
    (tmp_path / "net").symlink_to("net")
    with pytest.raises(ArtifactError, match="not a model's folder"):
        load_artifact(tmp_path / "net")


@pytest.mark.parametrize(
    ("place", "value", "said"), [(("choices", "1", "files"), [], "opens no file"), (("fingerprint", "gpus"), [[]], None)]
)
def test_a_plan_of_odd_values_is_named_or_not_taken(folder, place, value, said):
    here = Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))
    content = read_content(folder / "1")
    content["plans"] = [plan := Plan(fingerprint=fingerprint(), choices={1: here}, device="cuda").to_json()]
    for key in place[:-1]:
        plan = plan[key]
    plan[place[-1]] = value
    write_manifest(folder / "1", content)
    if said is None:
        assert load_artifact(folder).plan_here().portable
    else:
        with pytest.raises(ArtifactError, match=rf"{MANIFEST}: the plan's .* {said}"):
            load_artifact(folder)


@pytest.mark.parametrize("size", [True, 1 << 63, 10**29, [20], [20, 10**29], [20, True], 0, "20", None])
@pytest.mark.parametrize("step", [1, 2])
def test_sizes_that_no_image_has_are_no_preprocessing(folder, step, size):
    content = read_content(folder / "1")
    content["preprocessing"]["steps"][step]["size"] = size
    write_manifest(folder / "1", content)
    with pytest.raises(ArtifactError, match=rf"{MANIFEST} holds what .* size must be"):
        load_artifact(folder)


def test_labels_as_large_as_a_disk_are_a_finding(folder):
    with (folder / "labels.txt").open("r+b") as file:
        file.truncate(64 << 30)
    found = [str(finding) for finding in lint(folder.parent, gpus=0) if "labels.txt is larger" in str(finding)]
    assert len(found) == 1
