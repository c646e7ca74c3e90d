"""The forms of one packaged model that a waterfall serves: each loads, computes what the module computes, or says why not."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.errors import ArtifactError
from headrace.migrate.worker.packaging import Order, package_model
from headrace.runtime import backends
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.config import GraphConfig
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.uint8_input import with_preprocessing
from headrace.runtime.passes import run_passes
from headrace.specs import BF16, FP16, FP32, INT8, Precision, Preprocessing, Resize, Signature, TensorSpec
from tests.benchmarks.serving import forms
from tests.benchmarks.serving.forms import FORMS, _held_to, _why_not, write_variants

PREPROCESSING = Preprocessing(geometry=(Resize(size=(16, 16)),), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def images(folder, count=6):
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        path = folder / f"{number}.png"
        Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
        paths.append(path)
    return paths


@pytest.fixture(scope="module")
def models(new_conv_net, once):
    """A models folder with the network; nobody may write there."""
    return once("forms-models", lambda folder: _models(folder / "models", new_conv_net))


def _models(folder, new_conv_net):
    folder.mkdir()
    order = Order(
        name="net",
        out=folder / "net",
        row=(3, 16, 16),
        config=GraphConfig(backend="onnxruntime", buckets=(1, 4), max_tuning_seconds=1),
        preprocessing=PREPROCESSING,
        provenance={},
    )
    package_model(new_conv_net(), order, lambda fraction, text: None)
    return folder


@pytest.fixture
def packaged(models, tmp_path):
    return Path(shutil.copytree(models, tmp_path / "models")) / "net"


def rows_of(pixels):
    """The model's input of uint8 [n, 16, 16, 3]."""
    mean, std = np.float32(PREPROCESSING.mean), np.float32(PREPROCESSING.std)
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(0, 3, 1, 2), np.float32)


def int8_wins(module, packaged, pictures):
    """The artifact again, with a plan in which int8 has won and bf16 was a second slower."""
    artifact = load_artifact(packaged, trusted=True)
    files = packaged.parent / "files"
    files.mkdir()
    (files / "model.onnx").write_bytes((artifact.path / "model.onnx").read_bytes())
    choice = Choice(backend="onnxruntime", precision=INT8, files=("model-int8.onnx",))

    def measured(precision, bucket, status, milliseconds, why=""):
        backend = "eager" if precision == BF16 else "onnxruntime"
        return Measurement(
            choice=Choice(backend=backend, precision=precision), bucket=bucket, status=status, median_ms=milliseconds, why=why
        )

    graph = run_passes(capture(module, torch.zeros(2, 3, 16, 16)))[0]
    ranges = Calibration([rows_of(np.stack([np.asarray(Image.open(path)) for path in pictures]))])
    target = Target(precision=INT8)
    assert backends.get("onnxruntime").prepare(replace(graph, calibration=ranges), target, files) == list(choice.files)
    return write_artifact(
        packaged.parent / "other" / "net",
        name="net",
        files_from=files,
        signature=artifact.signature,
        preprocessing=PREPROCESSING,
        parity={},
        plans=[
            Plan(
                fingerprint=fingerprint(),
                choices={1: choice, 4: choice},
                measurements=tuple(
                    measured(precision, bucket, status, time)
                    for bucket in (1, 4)
                    for precision, status, time in ((FP32, "lost", 3.0), (BF16, "lost", 2.0), (INT8, "won", 1.0))
                ),
            )
        ],
        provenance={},
    )


def outputs(models, rows, pixels=None):
    artifact = load_artifact(models / "net", trusted=True)
    session = artifact.open(len(rows))
    try:
        return session.run([pixels if artifact.signature.takes_pixels else rows])[0]
    finally:
        session.close()


def test_every_form_computes_what_the_module_computes(conv_net, packaged, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    rows = rows_of(pixels)
    expected = conv_net(torch.from_numpy(rows)).detach().numpy()
    told = []
    made = write_variants(conv_net, packaged, tmp_path / "out", report=lambda fraction, text: told.append(fraction))
    assert [variant.form for variant in made] == list(FORMS)
    assert told == sorted(told)
    for variant in made:
        if variant.form in ("precision", "int8"):
            assert variant.models is None
            assert "did not try" in variant.why
        else:
            assert variant.why == ""
            np.testing.assert_allclose(outputs(variant.models, rows, pixels), expected, rtol=1e-3, atol=1e-4)
    by_form = {variant.form: variant.models for variant in made if variant.models}
    assert load_artifact(by_form["unbatched"] / "net", trusted=True).max_batch_size == 1
    assert load_artifact(by_form["eager"] / "net", trusted=True).max_batch_size == 4
    assert {
        choice.backend for choice in load_artifact(by_form["layout"] / "net", trusted=True).plan_here().choices.values()
    } == {"eager"}
    assert load_artifact(by_form["compiled"] / "net", trusted=True).plan_here().choices[1].backend == "onnxruntime"
    assert load_artifact(by_form["pixels"] / "net", trusted=True).signature.takes_pixels
    assert (by_form["compiled"] / "net_classify").is_dir()  # companions, so that gRPC can be asked too
    # The layout form stores its weights in channels last, the one before it does not.
    sizes = {form: sum(path.stat().st_size for path in by_form[form].rglob("*.pt2")) for form in ("eager", "graph", "layout")}
    assert all(sizes.values())


@pytest.mark.slow  # int8 of given images: runtime/lowering/test_quantize; of pixels: test_uint8_input; other forms: above
def test_int8_of_pixels_is_calibrated_with_the_given_images(conv_net, packaged, tmp_path):
    other = int8_wins(conv_net, packaged, images(tmp_path))
    made = {variant.form: variant for variant in write_variants(conv_net, other, tmp_path / "out", images=images(tmp_path))}
    assert made["precision"].runs == "eager bf16"
    assert made["int8"].runs == "onnxruntime int8"
    assert load_artifact(made["compiled"].models / "net", trusted=True).plan_here().choices[4].precision == FP32
    pixels = np.random.default_rng(2).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    rows = rows_of(pixels)
    expected = conv_net(torch.from_numpy(rows)).detach().numpy()
    assert made["pixels"].runs == "onnxruntime int8, from uint8 pixels"
    assert np.abs(outputs(made["pixels"].models, rows, pixels) - expected).max() < 0.2 * np.abs(expected).max()
    without = {variant.form: variant for variant in write_variants(conv_net, other, tmp_path / "without")}
    assert "real images" in without["pixels"].why


def test_a_form_that_answers_something_else_is_none(conv_net, packaged, tmp_path, monkeypatch):
    """As OpenVINO once did: int8 of pixels with other answers than the packaged model's."""

    def dark(captured, preprocessing):
        return with_preprocessing(captured, replace(preprocessing, mean=(2.5, -1.4, 1.3)))

    monkeypatch.setattr(forms, "with_preprocessing", dark)
    made = {
        variant.form: variant for variant in write_variants(conv_net, packaged, tmp_path / "out", images=images(tmp_path, 12))
    }
    assert made["pixels"].models is None
    assert re.fullmatch(r"onnxruntime fp32, from uint8 pixels: top-1 agrees .* on \d+\.\d% of 12 images", made["pixels"].why)


def test_a_plan_is_held_to_precisions_by_its_own_measurements():
    def measured(precision, bucket, status, milliseconds, batch=None, why=""):
        choice = Choice(backend="openvino", precision=precision, batch=batch)
        return Measurement(choice=choice, bucket=bucket, status=status, median_ms=milliseconds, why=why)

    int8, fp32 = Choice(backend="openvino", precision=INT8), Choice(backend="openvino", precision=FP32)
    plan = Plan(
        fingerprint={},
        choices={1: int8, 2: int8, 8: fp32},
        measurements=(
            measured(FP32, 1, "lost", 5.0),
            measured(FP32, 1, "lost", 4.0, 1),
            measured(BF16, 1, "refused", 2.0, why="top-1 agreement is 90 %"),
            measured(INT8, 1, "won", 1.0),
            measured(INT8, 2, "won", 1.0),
            measured(FP32, 8, "won", 1.0),
        ),
    )
    fixed = Choice(backend="openvino", precision=FP32, batch=1)
    # Batch 2 was measured in int8 only, and does as its nearest neighbor, which cannot be a session for batch 1 alone.
    assert _held_to(plan, (FP32,)) == {1: fixed, 2: fp32, 8: fp32}
    assert _held_to(plan, (FP32, BF16)) == _held_to(plan, (FP32,))
    assert _held_to(plan, (FP32, INT8)) == plan.choices
    assert "top-1 agreement is 90 %" in _why_not(plan, (BF16,))
    assert _held_to(plan, (FP16,)) is None


def test_a_measurement_reads_its_choice_back():
    choice = Choice(backend="openvino", precision=Precision("int8", in_floats=0.25), batch=8, streams=2)
    one = Measurement(choice=choice, bucket=8, status="won").to_json()
    assert (one["precision"], one["variant"]) == ("int8", "25% of layers in floats, fixed batch, 2 streams")
    assert Measurement.from_json(one).choice == choice


def test_a_model_of_pixels_is_refused(conv_net, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "model.pt2").write_bytes(b"0")
    folder = write_artifact(
        tmp_path / "net",
        name="net",
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="x", dtype="uint8", shape=("batch", 16, 16, 3)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 5)),),
        ),
        parity={},
        plans=[],
        provenance={},
    )
    with pytest.raises(ArtifactError, match="takes pixels already"):
        write_variants(conv_net, folder, tmp_path / "out")
