import pytest

from headrace.errors import AmbiguousError, ArtifactError
from headrace.runtime.artifact.model_config import parse_config
from headrace.runtime.artifact.model_folder import companion_target, model_folder
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


@pytest.mark.parametrize("elsewhere", ["../other/net", "/models/net", "..", ".", "", "a/b", "net\\000"])
def test_an_ensemble_is_a_companion_of_a_model_beside_it_alone(elsewhere):
    steps = f'step {{ model_name: "{elsewhere}_decode" }} step {{ model_name: "{elsewhere}" }}'
    assert companion_target("net_classify", parse_config(f'platform: "ensemble" ensemble_scheduling {{ {steps} }}')) is None
    beside = parse_config(
        'platform: "ensemble" ensemble_scheduling { step { model_name: "net_decode" } step { model_name: "net" } }'
    )
    assert companion_target("net_classify", beside) == "net"
