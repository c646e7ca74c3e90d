import pytest

from headrace.errors import AmbiguousError, ArtifactError
from headrace.runtime.artifact.model_folder import model_folder
from headrace.runtime.artifact.package import write_package
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec


def package(models, name):
    files = models.parent / f"files-{name}"
    files.mkdir()
    (files / "model.onnx").write_bytes(b"not opened here")
    write_package(
        models / name,
        name=name,
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 8, 8)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 2)),),
        ),
        preprocessing=Preprocessing(geometry=(Resize(size=9), CenterCrop(size=(8, 8)))),
        parity={},
        plans=[],
        provenance={},
    )


def test_a_model_is_named_by_its_folder_its_companions_or_its_repository(tmp_path, monkeypatch):
    models = tmp_path / "models"
    models.mkdir()
    package(models, "one")
    for path in (models, models / "one", models / "one_decode", models / "one_classify"):
        assert model_folder(path, flag="--model") == models / "one"
    monkeypatch.chdir(models / "one_classify")
    assert model_folder(type(models)("."), flag="--model") == models / "one"
    package(models, "two")
    with pytest.raises(AmbiguousError, match="--model .*two"):
        model_folder(models, flag="--model")
    with pytest.raises(ArtifactError, match="no model in"):
        model_folder(models / "none", flag="--model")
