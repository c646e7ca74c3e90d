"""What is taken over as a package: what Headrace writes is, and nothing that Triton or a server would run or follow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.migrate.stages.left_package import why_no_package
from headrace.runtime.artifact.package import write_package
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 4, 4)),),
    outputs=(TensorSpec(name="head[0] é", dtype="float32", shape=("batch", 2)),),
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "model.onnx").write_bytes(b"onnx")
    models = tmp_path / "models"
    write_package(
        models / "net",
        name="net",
        files_from=tmp_path / "files",
        signature=SIGNATURE,
        preprocessing=Preprocessing(geometry=(Resize(size=5), CenterCrop(size=(4, 4)))),
        labels=["a", "b"],
        parity={},
        plans=[],
        provenance={},
    )
    return models


def test_what_headrace_writes_is_taken(models: Path, tmp_path: Path) -> None:
    assert why_no_package(models, "net") is None
    write_package(
        tmp_path / "alone/net",
        name="net",
        files_from=tmp_path / "files",
        signature=SIGNATURE,
        parity={},
        plans=[],
        provenance={},
    )
    assert why_no_package(tmp_path / "alone", "net") is None


def appended(place: str, text: str) -> Callable[[Path], object]:
    return lambda models: (models / place).write_text((models / place).read_text() + text)


def changed(place: str, old: str, new: str) -> Callable[[Path], object]:
    def change(models: Path) -> None:
        text = (models / place).read_text()
        assert old in text
        (models / place).write_text(text.replace(old, new))

    return change


def written(place: str) -> Callable[[Path], object]:
    def write(models: Path) -> None:
        (models / place).parent.mkdir(parents=True, exist_ok=True)
        (models / place).write_text("import os\n")

    return write


CONFIG, DECODE, CLASSIFY = "net/config.pbtxt", "net_decode/config.pbtxt", "net_classify/config.pbtxt"
HARM: dict[str, Callable[[Path], object]] = {
    "a decoder of its own": appended("net_decode/1/model.py", "\nimport os\n"),
    "preprocessing of its own": appended("net_decode/1/preprocessing.py", "\nimport os\n"),
    "a module that comes before numpy": written("net_decode/1/numpy.py"),
    "a package that comes before numpy": written("net_decode/1/numpy/__init__.py"),
    "a compiled module": written("net_decode/1/_json.so"),
    "another version of the decoder": written("net_decode/2/model.py"),
    "code beside the ensemble": written("net_classify/1/model.py"),
    "a model in Python": changed(CONFIG, 'backend: "onnxruntime"', 'backend: "python"'),
    "a model of torch": changed(CONFIG, 'backend: "onnxruntime"', 'platform: "pytorch_libtorch"'),
    "a backend beside the model": written("net/libtriton_onnxruntime.so"),
    "a backend beside the version": written("net/1/libtriton_onnxruntime.so"),
    "two backends": appended(CONFIG, '\nbackend: "onnxruntime"\n'),
    "no backend": changed(CONFIG, 'backend: "onnxruntime"', ""),
    "a backend in quotes of another kind": changed(CONFIG, 'backend: "onnxruntime"', "backend: 'python'"),
    "a backend in two parts": changed(CONFIG, 'backend: "onnxruntime"', 'backend: "pyt" "hon"'),
    "a backend by escapes": changed(CONFIG, 'backend: "onnxruntime"', 'backend: "\\160ython"'),
    "another file for the model": appended(CONFIG, 'default_model_filename: "other.onnx"\n'),
    "parameters": appended(DECODE, 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/x.tar.gz" } }\n'),
    "a warm-up from a file": appended(CONFIG, 'model_warmup { name: "x" }\n'),
    "an agent": appended(CONFIG, 'model_repository_agents { agents { name: "x" } }\n'),
    "labels from elsewhere": changed(CONFIG, '"labels.txt"', '"../../../etc/passwd"'),
    "two fields on a line": changed(CLASSIFY, 'platform: "ensemble"', 'platform: "ensemble" backend: "python"'),
    "a comment": appended(CONFIG, "# backend\n"),
    "a config without end": appended(CONFIG, "\n" * 2**20),
    "no config": lambda models: (models / CONFIG).unlink(),
    "a folder for a config": lambda models: ((models / CONFIG).unlink(), (models / CONFIG).mkdir()),
    "a file for a decoder": lambda models: [
        *((models / "net_decode").rename(models.parent / "gone"),),
        (models / "net_decode").write_text("x"),
    ],
    "a pipe": lambda models: os.mkfifo(models / "net/1/pipe"),
    "a link": lambda models: (models / "net/1/link").symlink_to("/etc/passwd"),
    "another model": written("other/config.pbtxt"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_package_with(models: Path, harm: str) -> None:
    HARM[harm](models)
    assert why_no_package(models, "net")
