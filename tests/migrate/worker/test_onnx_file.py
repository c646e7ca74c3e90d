"""ONNX files as they come: batched or not, with and without metadata, broken."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import ArtifactError
from headrace.migrate.proving.worker_protocol import PackageOnnx
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.onnx_file import LABELS, PREPROCESSING, package_onnx
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.package import write_package
from headrace.runtime.export.export import export
from headrace.specs import FP32, Preprocessing, Resize

WEIGHT = np.random.default_rng(0).standard_normal((48, 5)).astype(np.float32)


def graph(path, batch, *, reshaped=None, side=4, metadata=None):
    """images [batch, 3, 4, 4] to scores [batch, 5]; `reshaped` fixes the batch inside."""
    nodes = [
        helper.make_node("Reshape", ["images", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["scores"]),
    ]
    shape = np.array([reshaped or -1, 48] if reshaped else [-1, 48], np.int64)
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, side, side])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(WEIGHT, "weight"), numpy_helper.from_array(shape, "shape")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def packaged(tmp_path, path, **asked):
    recipe = Recipe(root=str(tmp_path), script="onnx_file.py")
    request = PackageOnnx(recipe=recipe, path=str(path), name="net", out=str(tmp_path / "net"), planned=False, **asked)
    package_onnx(request, lambda part, text: None)
    return load_artifact(tmp_path / "net")


def scores(artifact, rows):
    session = artifact.open()
    try:
        return session.run([rows])[0]
    finally:
        session.close()


@pytest.mark.parametrize("batch", ["n", 1, 4])
def test_a_batch_that_is_fixed_for_nothing_is_made_free(tmp_path, batch):
    artifact = packaged(tmp_path, graph(tmp_path / "net.onnx", batch))
    assert artifact.max_batch_size == 16
    assert artifact.parity["status"] == "passed"
    rows = np.random.default_rng(1).standard_normal((3, 3, 4, 4)).astype(np.float32)
    assert np.allclose(scores(artifact, rows), rows.reshape(3, -1) @ WEIGHT, atol=1e-5)


def test_a_graph_for_one_row_is_served_one_row_at_a_time(tmp_path):
    artifact = packaged(tmp_path, graph(tmp_path / "net.onnx", 1, reshaped=1))
    assert artifact.max_batch_size == 1
    assert "one row at a time" in artifact.parity["why"]


def test_a_graph_for_four_rows_alone_is_rejected(tmp_path):
    with pytest.raises(ArtifactError, match="batches of 4 alone"):
        packaged(tmp_path, graph(tmp_path / "net.onnx", 4, reshaped=4))
    assert not (tmp_path / "net").exists()


def test_images_and_labels_are_what_the_metadata_says(tmp_path):
    made = Preprocessing(geometry=(Resize(size=(4, 4)),), mean=(0.5, 0.5, 0.5))
    metadata = {PREPROCESSING: json.dumps(made.to_json()), LABELS: json.dumps(list("abcde"))}
    artifact = packaged(tmp_path, graph(tmp_path / "net.onnx", "n", metadata=metadata))
    assert artifact.preprocessing == made
    assert artifact.labels.names == tuple("abcde")
    assert (tmp_path / "net_classify").is_dir()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({PREPROCESSING: "{}"}, "cannot be read"),
        ({LABELS: "[1"}, "cannot be read"),
        ({LABELS: '["a"]'}, "label"),
        ({PREPROCESSING: json.dumps(Preprocessing(geometry=(Resize(size=(9, 9)),)).to_json())}, "the model takes"),
    ],
)
def test_metadata_that_does_not_fit_is_an_error(tmp_path, metadata, said):
    with pytest.raises(ArtifactError, match=said):
        packaged(tmp_path, graph(tmp_path / "net.onnx", "n", metadata=metadata))


def test_sizes_that_are_open_are_asked_for(tmp_path):
    path = graph(tmp_path / "net.onnx", "n", side="side")
    with pytest.raises(ArtifactError, match="--input-size"):
        packaged(tmp_path, path)
    assert packaged(tmp_path, path, input=(3, 4, 4)).signature.inputs[0].row_shape == (3, 4, 4)


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x07" * 400])
def test_files_that_are_no_graphs_are_rejected(tmp_path, content):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(ArtifactError, match="no ONNX graph|no input|needs at least one"):
        packaged(tmp_path, tmp_path / "net.onnx")
    assert not (tmp_path / "net").exists()


def test_weights_that_lie_elsewhere_are_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "given"
    folder.mkdir()
    path = graph(folder / "net.onnx", "n")
    model = onnx.load(path)
    weight = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(weight, "../secret")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match="no ONNX graph"):
        packaged(tmp_path, path)


def test_what_export_writes_is_understood_again(tmp_path):
    """Labels, preprocessing and task of several labels, by way of the file alone."""
    steps = Preprocessing(geometry=(Resize(size=(4, 4)),), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))
    first = packaged(tmp_path, graph(tmp_path / "first.onnx", "n"), task="multi-label:0.3")
    labels = [f"class {number}" for number in range(5)]
    (tmp_path / "files").mkdir()
    shutil.copy(first.path / "model.onnx", tmp_path / "files")
    write_package(
        tmp_path / "models" / "net", name="net", files_from=tmp_path / "files", signature=first.signature, preprocessing=steps,
        labels=labels, task=first.task, parity={}, plans=[], provenance={},
    )  # fmt: skip
    export(tmp_path / "models" / "net", "onnx", tmp_path / "again.onnx", precision=FP32)
    shutil.rmtree(tmp_path / "net")
    again = packaged(tmp_path, tmp_path / "again.onnx")
    assert again.preprocessing == steps
    assert again.task.to_json() == first.task.labeled(labels, first.signature).to_json()
    assert [list(head.labels) for head in again.task.heads] == [labels]


def test_a_fixed_batch_is_made_free_also_where_the_weights_lie_beside_the_graph(tmp_path):
    model = onnx.load(graph(tmp_path / "whole.onnx", 1))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    assert packaged(tmp_path, tmp_path / "net.onnx").max_batch_size == 16
