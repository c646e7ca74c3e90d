"""What a config or a link may not reach, and what a folder without one is taken for."""

import os
from functools import partial

import pytest

from headrace.errors import ArtifactError
from headrace.runtime.artifact.formats import format_named
from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.models.foreign.files import backend_of, declared_config, graph_file, has_graph, is_packaged, labels_of


def file_of(foreign, name="m", text="", backend="onnxruntime"):
    return graph_file(foreign.root, foreign.root / name / "1", parse_config(text), format_named(backend))


def test_a_graph_under_its_usual_name_or_another(foreign):
    usual = foreign.add("m")
    other = foreign.add("m", file="other.onnx")
    assert file_of(foreign) == usual
    assert file_of(foreign, text='default_model_filename: "other.onnx"') == other


def test_a_graph_that_is_a_folder_with_its_data(foreign):
    inside = foreign.add("m", file="model.onnx/model.onnx")
    assert file_of(foreign) == inside


@pytest.mark.parametrize("name", ["../secret.onnx", "/etc/passwd", "a/../../secret.onnx", "..", "x\\000y"])
@pytest.mark.parametrize("field", ["default_model_filename", "label_filename"])
def test_a_config_names_files_of_its_own_folder_only(foreign, name, field):
    foreign.add("m")
    (foreign.root / "secret.onnx").write_bytes(b"secret")
    output = f'output {{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "{name}" }}'
    config = parse_config(f'{field}: "{name}"' if field.startswith("default") else output)
    folder = foreign.root / "m"
    if field.startswith("default"):
        read = partial(graph_file, foreign.root, folder / "1", config, format_named("onnxruntime"))
    else:
        read = partial(labels_of, foreign.root, folder, config)
    with pytest.raises(ArtifactError, match=f"{field} .*must name a file inside the model's own folder"):
        read()


@pytest.mark.parametrize("place", ["m/1/model.onnx", "m/1/data.bin", "m/1"])
def test_a_link_out_of_the_repository_is_refused(foreign, tmp_path, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    foreign.add("m").rename(outside / "model.onnx")
    link = foreign.root / place
    if place == "m/1":
        link.rmdir()
    else:
        foreign.add("m")
        link.unlink(missing_ok=True)
    link.symlink_to(outside if place == "m/1" else outside / "model.onnx")
    with pytest.raises(ArtifactError, match="leads out of the repository"):
        file_of(foreign)


def test_a_link_within_the_repository_is_followed(foreign):
    foreign.add("m").rename(foreign.root / "shared.onnx")
    link = foreign.root / "m" / "1" / "model.onnx"
    link.symlink_to("../../shared.onnx")
    assert file_of(foreign) == link


def test_a_pipe_is_not_opened(foreign):
    foreign.add("m").unlink()
    os.mkfifo(foreign.root / "m" / "1" / "model.onnx")
    with pytest.raises(ArtifactError, match="special file"):
        file_of(foreign)


def test_labels_are_lines_and_not_without_end(foreign):
    foreign.add("m")
    config = parse_config('output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }')
    path = foreign.root / "m" / "labels.txt"
    path.write_bytes(b"a b\r\n\xff\n\nc \xe2\x80\xa8 d\x0c\n")  # what Python calls lines of text would be two more
    assert labels_of(foreign.root, foreign.root / "m", config) == {"y": ("a b", "\ufffd", "", "c \u2028 d\x0c")}
    with path.open("wb") as file:
        file.truncate(1 << 30)  # a hole, of no bytes on the disk
    with pytest.raises(ArtifactError, match="holds no labels"):
        labels_of(foreign.root, foreign.root / "m", config)
    path.write_text("a\n" + "b" * 10_001)
    with pytest.raises(ArtifactError, match="has a label of 10,001 characters; a label may have 10,000"):
        labels_of(foreign.root, foreign.root / "m", config)
    path.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        labels_of(foreign.root, foreign.root / "m", config)


def test_what_runs_a_model(foreign):
    version = foreign.add("m").parent
    cases = {
        "": "onnxruntime",
        'platform: "onnxruntime_onnx"': "onnxruntime",
        'platform: "pytorch_libtorch"': "pytorch_libtorch",
        'default_model_filename: "model.pt"': "pytorch",
        "ensemble_scheduling { }": "ensemble",
    }
    assert {text: backend_of(parse_config(text), version) for text in cases} == cases
    (version / "model.onnx").rename(version / "model.plan")
    with pytest.raises(ArtifactError, match=r"names no backend, and version 1 holds none of model\.onnx"):
        backend_of(parse_config(""), version)


@pytest.mark.parametrize("backend", ["tensorrt_plan", "tensorflow_savedmodel", "python", "dali", "x" * 5000])
def test_other_backends_are_refused_with_what_to_do(backend):
    with pytest.raises(ArtifactError, match=r"is not served here.*export the model to ONNX") as caught:
        format_named(backend)
    assert len(str(caught.value)) < 500


def test_folders_without_a_config(foreign, models):
    foreign.add("m")
    assert has_graph(foreign.root / "m")
    assert declared_config(foreign.root / "m").inputs == ()
    assert not is_packaged(foreign.root / "m")
    foreign.folder("empty")
    assert not has_graph(foreign.root / "empty")
    assert is_packaged(models / "tiny")
