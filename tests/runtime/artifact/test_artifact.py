import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import ArtifactError, BackendError, DigestError
from headrace.runtime import backends
from headrace.runtime.artifact import artifact as artifact_module
from headrace.runtime.artifact import manifest
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import check_file, check_name, labels_file, plain
from headrace.runtime.artifact.plan import Choice, Measurement
from headrace.runtime.base.fingerprint import fingerprint
from headrace.specs import FP32, INT8, Labels
from tests.runtime.artifact.split.models import linear, package
from tests.runtime.artifact.tiny import PREPROCESSING, SIGNATURE, WEIGHTS, plan


def test_reads_back_what_was_written(write):
    path = write()
    artifact = load_artifact(path)
    assert (artifact.name, artifact.version, artifact.path) == ("tiny", 1, path / "1")
    assert artifact.signature == SIGNATURE
    assert artifact.preprocessing == PREPROCESSING
    assert artifact.preprocessing.source == "evaluate.py:7"
    assert artifact.labels == Labels(("a", "b c", "dé", "e/f", "g"))
    assert str(artifact.task.heads[0]) == "class scores"
    assert artifact.plans == (plan(),)
    assert artifact.parity["status"] == "passed"
    assert artifact.parity["max_abs"] is None
    assert artifact.provenance["factory"] == "model.py:3"
    assert artifact.max_batch_size == 4
    assert artifact.files == ("model.onnx", "model.pt2")
    assert artifact.config.outputs[0].label_filename == "labels.txt"
    assert (path / "labels.txt").read_bytes() == "a\nb c\ndé\ne/f\ng\n".encode()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["tiny"]


def test_opens_the_plans_choice_and_computes(write):
    artifact = load_artifact(write())
    assert not artifact.plan_here().portable
    images = np.random.default_rng(0).standard_normal((3, 3, 4, 4)).astype(np.float32)
    session = artifact.open(3, threads=1)
    np.testing.assert_allclose(session.run([images])[0], images.reshape(3, -1) @ WEIGHTS, rtol=1e-4, atol=1e-5)
    session.close()


def test_another_machines_plan_is_not_used(write):
    elsewhere = {**fingerprint(), "cpu": "Another Processor 9000"}
    plans = [plan("openvino", where=elsewhere)]
    found = load_artifact(write(plans=plans)).plan_here()
    assert found.portable
    assert found.choice(1) == Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))
    assert found.buckets == (1, 4)
    assert "cpu Another Processor 9000 there" in found.reason
    both = load_artifact(write(plans=[*plans, plan("openvino", buckets=(1, 8))]))
    assert not both.plan_here().portable
    assert both.plan_here().choice(1).backend == "openvino"
    assert both.max_batch_size == 8


@pytest.mark.parametrize(
    ("times", "backend"),
    [
        ({("openvino", 1): 1.0}, "openvino"),  # nothing was measured at batch 16: the nearest tells
        ({("onnxruntime", 1): 2.0, ("openvino", 1): 3.0, ("onnxruntime", 16): 30.0, ("openvino", 16): 20.0}, "openvino"),
        ({}, "onnxruntime"),
    ],
)
def test_in_place_of_a_lossy_choice_the_form_in_fp32_that_was_measured_to_be_fastest_runs(write, times, backend):
    lossy = Choice(backend="openvino", precision=INT8, files=("model.onnx",))
    measured = [
        Measurement(choice=Choice(backend=name, precision=FP32), bucket=size, status="lost", median_ms=taken)
        for (name, size), taken in times.items()
    ]
    refused = Measurement(choice=Choice(backend="onnxruntime", precision=FP32), bucket=16, status="refused", median_ms=0.1)
    chosen = replace(plan("openvino"), choices={16: lossy}, measurements=(*measured, refused))
    found = load_artifact(write(plans=[chosen])).lossless_plan()
    assert found.choice(16) == Choice(backend=backend, precision=FP32, files=("model.onnx",))


def versions_there(**changed):
    return {**fingerprint(), "versions": {**fingerprint()["versions"], **changed}}


def test_another_torch_does_not_void_a_plan_that_runs_without_it(write):
    found = load_artifact(write(plans=[plan("openvino", where=versions_there(torch="2.0.0", tensorrt="9"))])).plan_here()
    assert (found.portable, found.choice(1).backend) == (False, "openvino")


def test_a_plan_of_another_version_of_its_own_library_says_how_to_bring_it_back(write):
    artifact = load_artifact(write(plans=[plan("openvino", where=versions_there(openvino="2020.1"))]))
    reason = artifact.plan_here().reason
    assert "pip install openvino==2020.1 brings back what was measured" in reason
    assert f"headrace tune {artifact.path.parent} measures it here" in reason
    assert "\n" not in reason


def test_a_plan_whose_library_cannot_use_the_device_gives_way_to_the_portable_one(write):
    """onnxruntime in the place of onnxruntime-gpu has the same version, and no provider for CUDA."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime is the one for GPUs")
    found = load_artifact(write(plans=[replace(plan(), device="cuda")])).plan_here()
    assert found.portable
    assert "has no CUDAExecutionProvider: pip install onnxruntime-gpu" in found.reason


def test_the_portable_plan_is_for_the_gpu_where_the_library_can_use_one(write, monkeypatch):
    """No machine of the tests has a GPU and the library for it: what both would say stands here."""
    artifact = load_artifact(write(plans=[]))
    backend = type(backends.get("onnxruntime"))
    asked = backend.supports
    here = {**fingerprint(), "gpus": ["H200"]}
    monkeypatch.setattr(artifact_module, "fingerprint", lambda: here)
    assert artifact.plan_here().device == "cpu"
    monkeypatch.setattr(backend, "supports", lambda self, target: None if target.device == "cuda" else asked(self, target))
    found = artifact.plan_here()
    assert (found.device, found.choice(1).backend, found.portable) == ("cuda", "onnxruntime", True)


def test_a_plan_by_a_backend_that_is_gone_is_no_reason_to_fail(write):
    found = load_artifact(write(plans=[plan("abacus")])).plan_here()
    assert found.portable
    assert "there is no backend 'abacus'" in found.reason


def test_nothing_to_run_it_with_names_what_is_missing(write, files):
    (files / "model.onnx").unlink()
    (files / "model.pt2").rename(files / "other.bin")
    path = write(plans=[])
    assert 'backend: "headrace"' in (path / "config.pbtxt").read_text()
    with pytest.raises(BackendError, match="nothing here can run tiny: the model has no portable graph"):
        load_artifact(path).plan_here()


@pytest.mark.parametrize("file", ["1/model.onnx", "1/model.pt2", "labels.txt", "1/headrace.json"])
def test_any_flipped_byte_is_found_and_named(write, file):
    path = write()
    intact = (path / file).read_bytes()
    rng = np.random.default_rng(5)
    places = range(len(intact)) if len(intact) < 200 else rng.integers(0, len(intact), 150)
    for at in places:
        broken = bytearray(intact)
        broken[at] ^= 1 << int(rng.integers(8))
        (path / file).write_bytes(broken)
        with pytest.raises(DigestError, match=Path(file).name.replace(".", r"\.")):
            load_artifact(path)
    (path / file).write_bytes(intact[:-1])
    with pytest.raises(DigestError, match=Path(file).name):
        load_artifact(path)
    (path / file).write_bytes(intact)
    load_artifact(path)


@pytest.mark.parametrize("file", ["1/model.onnx", "labels.txt", "1/headrace.json", "config.pbtxt"])
def test_a_missing_file_is_named(write, file):
    path = write()
    (path / file).unlink()
    with pytest.raises(ArtifactError, match=f"{Path(file).name} is missing") as caught:
        load_artifact(path)
    assert not isinstance(caught.value, DigestError)


def forge(path, **changes):
    """Rewrite the manifest as a hostile writer would: with changes and a digest that fits."""
    content = json.loads((path / "1/headrace.json").read_text())
    del content["self"]
    manifest.write_manifest(path / "1", {**content, **changes})
    return content


def test_other_formats_are_told_from_damage(write):
    path = write()
    forge(path, format=7, headrace="9.9")
    with pytest.raises(ArtifactError, match=r"has format 7, and this version of Headrace reads format 1.*'9\.9'") as caught:
        load_artifact(path)
    assert not isinstance(caught.value, DigestError)


@pytest.mark.parametrize("number", [0, 2, None, "1", 1.0, True])
def test_any_other_format_is_refused(write, number):
    path = write()
    forge(path, format=number)
    with pytest.raises(ArtifactError, match="this version of Headrace reads format 1") as caught:
        load_artifact(path)
    assert not isinstance(caught.value, DigestError)


def test_a_missing_format_and_one_that_is_verified_in_another_way_are_refused(write):
    path = write()
    content = forge(path)
    del content["format"]
    manifest.write_manifest(path / "1", content)
    with pytest.raises(ArtifactError, match="has format None"):
        load_artifact(path)
    (path / "1/headrace.json").write_text('{"format": 7, "headrace": "9.9", "sealed": "differently"}')
    with pytest.raises(
        DigestError, match=r"not as it was written, or has format 7.*written by Headrace '9\.9': use that version"
    ):
        load_artifact(path)


def test_another_versions_artifact_of_this_format_is_used_with_a_note(write):
    path = write()
    forge(path, headrace="0.0.7", plans=[plan(where={**fingerprint(), "headrace": "0.0.7"}).to_json()])
    found = load_artifact(path).plan_here()
    assert found.portable
    assert "headrace 0.0.7 there" in found.reason


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe\x00", b"null", b"[]", b"3", b'{"self": 1}', b'{"self": {}}'])
def test_a_manifest_that_is_none_is_damage(write, content):
    path = write()
    (path / "1/headrace.json").write_bytes(content)
    with pytest.raises(DigestError, match=r"headrace\.json is not as it was written.*package the model again"):
        load_artifact(path)


def test_a_manifest_cut_short_anywhere_is_damage(write):
    path = write()
    intact = (path / "1/headrace.json").read_bytes()
    for length in np.random.default_rng(7).integers(0, len(intact), 40):
        (path / "1/headrace.json").write_bytes(intact[:length])
        with pytest.raises(DigestError, match=r"headrace\.json"):
            load_artifact(path)


@pytest.mark.parametrize("file", ["1/model.onnx", "1/headrace.json", "labels.txt", "config.pbtxt"])
def test_a_folder_in_place_of_a_file_is_named(write, file):
    path = write()
    (path / file).unlink()
    (path / file).mkdir()
    with pytest.raises(ArtifactError, match=Path(file).name.replace(".", r"\.")):
        load_artifact(path)


@pytest.mark.parametrize(
    "name",
    [
        "../../secret",
        "/etc/hostname",
        "a/../../../secret",
        "../labels.txt/../../../secret",
        "",
        ".",
        "..",
        "a//b",
        "C:\\x",
        "a\0b",
    ],
)
def test_no_name_leads_out_of_the_folder(write, tmp_path, name):
    path = write()
    (tmp_path / "secret").write_text("x")
    content = forge(path)
    forge(path, digests={**content["digests"], name: "sha256:0"})
    with pytest.raises(ArtifactError, match="outside the model's folder"):
        load_artifact(path)


def test_plans_open_only_verified_files(write):
    path = write()
    (path / "1/evil.so").write_bytes(b"x")
    forge(path, plans=[plan("eager", files=("evil.so",)).to_json()])
    with pytest.raises(ArtifactError, match=r"'evil\.so', which is not one of its files"):
        load_artifact(path)


@pytest.mark.parametrize(
    "changes", [{"signature": 3}, {"plans": [{}]}, {"preprocessing": {"steps": []}}, {"digests": []}, {"parity": 1}]
)
def test_values_that_make_no_sense_are_an_artifact_error(write, changes):
    path = write()
    forge(path, **changes)
    with pytest.raises(ArtifactError, match=r"headrace\.json"):
        load_artifact(path)


def _with(path, value):
    """The changes that put a value into a plan or another part, by the way to it."""
    part, *keys = path

    def changes(content):
        changed = copy.deepcopy({**content, "plans": [plan("onnxruntime", files=("model.onnx",)).to_json()]})
        place = changed[part]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return {part: changed[part]}

    return changes


@pytest.mark.parametrize(
    "changes",
    [
        _with(("signature", "inputs", 0, "name"), 7),
        _with(("plans", 0, "device"), "tpu"),
        _with(("plans", 0, "threads"), 0),
        _with(("plans", 0, "threads"), "2"),
        _with(("plans", 0, "choices", "1", "backend"), ["onnxruntime"]),
        _with(("plans", 0, "choices", "1", "streams"), 3),
        _with(("plans", 0, "choices", "1", "streams"), None),
        _with(("preprocessing", "steps", -2, "mean"), [10**400, 0, 0]),
        lambda _: {"answers": {}},
        lambda _: {"answers": {"output": 1, "values": [[0.5]] * 6}},
        lambda _: {"answers": {"output": 0, "values": [[0.5]] * 5}},
        lambda _: {"answers": {"output": 0, "values": [[None]] * 6}},
        lambda _: {"answers": {"output": 0, "values": [[10**400]] * 6}},
    ],
)
def test_each_value_is_looked_at_where_it_is_read(write, changes):
    """And not where it is used: by then an error is a traceback, or comes while a server runs."""
    path = write()
    forge(path, **changes(forge(path)))
    with pytest.raises(ArtifactError, match=r"headrace\.json holds what this version of Headrace cannot read"):
        load_artifact(path)


@pytest.mark.parametrize("file", ["1/model.onnx", "1/headrace.json", "labels.txt", "1"])
def test_symbolic_links_are_refused(write, tmp_path, file):
    path = write()
    (path / file).rename(tmp_path / "elsewhere")
    (path / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="symbolic link"):
        load_artifact(path)


def test_a_pipe_in_place_of_a_file_does_not_hang(write):
    path = write()
    (path / "1/model.onnx").unlink()
    os.mkfifo(path / "1/model.onnx")
    with pytest.raises(ArtifactError, match="not a regular file"):
        load_artifact(path)


def test_a_huge_or_bottomless_manifest_is_refused(write):
    path = write()
    (path / "1/headrace.json").write_bytes(b"[" * 200_000)
    with pytest.raises(DigestError):
        load_artifact(path)
    with (path / "1/headrace.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(ArtifactError, match="larger than"):
        load_artifact(path)


def test_config_may_be_edited_but_must_fit(write):
    path = write()
    text = (path / "config.pbtxt").read_text()
    (path / "config.pbtxt").write_text(text.replace("max_batch_size: 4", "max_batch_size: 32"))
    assert load_artifact(path).max_batch_size == 32
    (path / "config.pbtxt").write_text(text.replace("max_batch_size: 4", "max_batch_size: 1000000000"))
    with pytest.raises(ArtifactError, match="max_batch_size must be from 1 to 16,384, got 1,000,000,000"):
        load_artifact(path)
    (path / "config.pbtxt").write_text(text.replace("dims: 5", "dims: 6"))
    with pytest.raises(ArtifactError, match=r"dims \[6\], the model's are \[5\]"):
        load_artifact(path)
    (path / "config.pbtxt").write_text(text.replace('"labels.txt"', '"/etc/passwd"'))
    with pytest.raises(ArtifactError, match="label_filename"):
        load_artifact(path)


def test_a_model_s_folder_may_be_a_link_that_has_its_name_or_leads_to_it(write, tmp_path):
    """As orchestrators mount volumes: models/tiny leads to ..2026_11_30, or current to tiny."""
    path = write()
    (tmp_path / "current").symlink_to(path)
    assert load_artifact(tmp_path / "current").name == "tiny"
    (tmp_path / "current").unlink()
    path.rename(tmp_path / "..2026_11_30")
    path.symlink_to(tmp_path / "..2026_11_30")
    assert load_artifact(path).name == "tiny"
    (tmp_path / "other").symlink_to(tmp_path / "..2026_11_30")
    with pytest.raises(ArtifactError, match="holds the model 'tiny'"):
        load_artifact(tmp_path / "other")


def test_versions_are_chosen_as_triton_does(write):
    path = write()
    for name in ("3", "03", "x", ".5"):
        (path / name).mkdir()
    (path / "9").write_text("a file")
    for file in (path / "1").iterdir():
        (path / "3" / file.name).write_bytes(file.read_bytes())
    assert load_artifact(path).version == 3
    assert load_artifact(path, version=1).version == 1
    with pytest.raises(ArtifactError, match="has no version 2; it has 1, 3"):
        load_artifact(path, version=2)


def test_a_renamed_folder_is_refused(write):
    path = write()
    with pytest.raises(ArtifactError, match="holds the model 'tiny'"):
        load_artifact(path.rename(path.with_name("other")))


def test_what_is_no_model_is_told_apart(tmp_path, write):
    for wrong in (tmp_path / "absent", tmp_path / "files/model.onnx"):
        with pytest.raises(ArtifactError, match="not a model's folder"):
            load_artifact(wrong)
    with pytest.raises(ArtifactError, match="holds no version"):
        load_artifact(tmp_path / "files")
    with pytest.raises(ArtifactError, match="load the model's own folder"):
        load_artifact(write() / "1")


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_server_never_imports_torch(write, backend):
    path = write(plans=[plan(backend)])
    code = (
        "import sys, numpy as np\n"
        "from headrace.runtime.artifact.artifact import load_artifact\n"
        f"artifact = load_artifact({str(path)!r})\n"
        "print(artifact.plan_here().choice(2).backend)\n"
        "print(artifact.open(2, threads=1).run([np.ones((2, 3, 4, 4), np.float32)])[0].shape)\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split("\n")[:3] == [backend, "(2, 5)", "False"], done.stderr


def test_names_have_128_letters_at_most_and_labels_are_of_an_output():
    assert check_name("a" * 128) == "a" * 128
    with pytest.raises(ArtifactError, match="cannot name a model"):
        check_name("a" * 129)
    assert [labels_file(output, 1) for output in (0, 1)] == ["labels_0.txt", "labels.txt"]


@pytest.mark.parametrize("name", [None, 3, ["model.onnx"], "", "a//b", "../labels_x.txt"])
def test_a_file_s_name_is_a_text_inside_the_folder(name):
    with pytest.raises(ArtifactError, match="which may lie outside"):
        check_file(name)


def test_what_json_cannot_hold_is_null_wherever_it_stands():
    assert plain({1: [float("nan"), (float("inf"), 2.0)], "b": {"c": -float("inf")}}) == {
        "1": [None, [None, 2.0]],
        "b": {"c": None},
    }


def test_a_model_without_preprocessing_says_why(tmp_path):
    """Who asked a repository for an image's labels has packaged nothing by hand, and cannot know what is missing."""
    why = "the code that makes the transform failed: No module named 'torchvision'"
    plain = package(tmp_path / "plain", linear(10))
    told = package(tmp_path / "told", linear(10), provenance={"no_preprocessing": why})
    assert load_artifact(plain).imageless == "faces does not say how an image becomes its input"
    assert load_artifact(told).imageless == f"faces does not say how an image becomes its input ({why})"
