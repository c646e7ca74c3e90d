import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import headrace
from headrace import GraphConfig
from headrace.cli import app
from headrace.errors import ArtifactError, InputError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.known_answers import differs, known_rows, of_another, recorded_span
from headrace.runtime.artifact.parity import ParityRecord
from headrace.runtime.artifact.plan import Plan
from headrace.runtime.images.image_folder import read_images
from headrace.runtime.inspect.plan_table import plan_table
from headrace.runtime.tuning import retune as tune_module
from headrace.runtime.tuning.retune import retune
from headrace.specs import FP32, INT8, Labels, Preprocessing, Resize

LABELS = ["ant", "bee", "cat", "dog", "elk"]
STEPS = Preprocessing(geometry=(Resize(size=(16, 16)),), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
QUICK = {"threads": 1, "buckets": (1, 2), "max_tuning_seconds": 20.0}


@pytest.fixture
def folder(once, new_conv_net, tmp_path):
    """Of a model like `conv_net`, packaged once; each test has a copy."""

    def packaged(folder):
        config = GraphConfig(backend="onnxruntime", buckets=(1, 4))
        graph = headrace.compile(new_conv_net(), torch.randn(2, 3, 16, 16), config=config)
        return graph.save(folder / "net", labels=LABELS, preprocessing=STEPS).parent

    return shutil.copytree(once("retuned-net", packaged), tmp_path / "models") / "net"


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for index in range(120):
        path = tmp_path / "photos" / LABELS[index % 5] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        color = random.integers(0, 255, 3)
        pixels = np.clip(color + random.normal(0, 20, (20, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    return tmp_path / "photos"


def test_a_plan_for_this_machine_is_added_and_the_answers_stay(folder, conv_net):
    config = (folder / "config.pbtxt").read_text() + "# an operator's remark\n"
    (folder / "config.pbtxt").write_text(config)
    seen = []
    artifact, plan = retune(folder, GraphConfig(**QUICK), progress=lambda part, text: seen.append(part))
    assert plan.buckets == (1, 2)
    assert [item.to_json() for item in artifact.plans] == [plan.to_json()]  # the one of this machine is replaced
    assert (folder / "config.pbtxt").read_text() == config
    assert seen == sorted(seen)
    names = {item.choice.backend: item for item in plan.measurements}
    assert names["eager"].status == names["inductor"].status == "skipped"
    assert "needs the model itself" in names["eager"].why
    rows = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(headrace.load(folder)(rows), conv_net(rows), atol=1e-5, rtol=1e-5)


def test_what_another_process_tuned_meanwhile_stays(folder, monkeypatch):
    """Two runs from one loaded artifact, as on two machines that share a file system: here the other one comes in between."""
    original = tune_module.tune

    def meanwhile(*given, **more):
        plan = original(*given, **more)
        monkeypatch.setattr(tune_module, "tune", lambda *a, **b: replace(original(*a, **b), fingerprint={"cpu": "another"}))
        retune(folder, GraphConfig(**QUICK))
        monkeypatch.setattr(tune_module, "tune", meanwhile)
        return plan

    monkeypatch.setattr(tune_module, "tune", meanwhile)
    artifact, plan = retune(folder, GraphConfig(**QUICK))
    assert [dict(item.fingerprint) for item in artifact.plans] == [dict(plan.fingerprint), {"cpu": "another"}]


def test_the_manifests_parity_is_that_of_packaging_and_of_the_latest_plan(folder, monkeypatch):
    packaged = ParityRecord.from_json(load_artifact(folder).parity)
    for difference, expected in ((0.25, 0.25), (0.0, packaged.max_abs)):
        worse = replace(packaged, max_abs=difference, top1_agreement=0.5 + difference)
        monkeypatch.setattr(Plan, "worst_parity", lambda self, worse=worse: worse)
        artifact, _ = retune(folder, GraphConfig(**QUICK))
        record = ParityRecord.from_json(artifact.parity)
        assert (record.status, record.max_abs, record.top1_agreement) == ("passed", expected, 0.5 + difference)
        assert record.rows == 2 * packaged.rows
        assert ParityRecord.from_json(artifact.provenance["parity_at_packaging"]) == packaged


def test_a_model_that_was_packaged_again_meanwhile_keeps_its_own_plans(folder, conv_net, monkeypatch):
    original = tune_module.tune

    def meanwhile(*given, **more):
        plan = original(*given, **more)
        with torch.no_grad():
            conv_net.head.bias.add_(1)
        graph = headrace.compile(conv_net, torch.randn(2, 3, 16, 16), config=GraphConfig(backend="onnxruntime", buckets=(1,)))
        graph.save(folder, labels=LABELS, preprocessing=STEPS)
        return plan

    monkeypatch.setattr(tune_module, "tune", meanwhile)
    with pytest.raises(ArtifactError, match="was packaged again while it was tuned"):
        retune(folder, GraphConfig(**QUICK))
    assert load_artifact(folder).plans[0].buckets == (1,)


def test_plans_of_other_machines_and_their_files_stay(folder, photos):
    artifact, plan = retune(folder, GraphConfig(precision="int8", backend="onnxruntime", **QUICK), images=photos)
    assert plan.choice(1).files[0].startswith("model-int8")
    elsewhere = {**plan.to_json(), "fingerprint": {**plan.fingerprint, "cpu": "another"}}
    from headrace.runtime.artifact.manifest import read_manifest, write_manifest

    content, _ = read_manifest(artifact.path)
    write_manifest(artifact.path, {**content, "plans": [elsewhere]})
    before = {name: (artifact.path / name).read_bytes() for name in artifact.files}
    other = photos.with_name("other")  # other images give other ranges, and so another file of the same name
    shutil.copytree(photos, other)
    for path in other.rglob("*.png"):
        Image.fromarray(np.asarray(Image.open(path)) // 2).save(path)
    again, fresh = retune(folder, GraphConfig(precision="int8", backend="onnxruntime", **QUICK), images=other)
    assert [item.fingerprint["cpu"] == "another" for item in again.plans] == [False, True]
    assert set(fresh.choice(1).files).isdisjoint(Plan.from_json(elsewhere).choice(1).files)
    for name, content in before.items():
        assert (again.path / name).read_bytes() == content
    assert load_artifact(folder).plan_here().choices == fresh.choices


def test_a_server_knows_what_was_tuned_by_images(folder, photos):
    """By rows like these, and like those that judged the plans of other machines."""
    assert recorded_span(load_artifact(folder).answers) is None  # it was packaged without images
    spans = []
    for darker in (1, 2):
        for path in photos.rglob("*.png"):
            Image.fromarray(np.asarray(Image.open(path)) // darker).save(path)
        artifact, plan = retune(folder, GraphConfig(precision="int8", backend="onnxruntime", **QUICK), images=photos)
        spans.append(recorded_span(artifact.answers))
        session = artifact.open_choice(plan, plan.first())
        answers = session.run(known_rows(artifact.signature, spans[-1]))[artifact.answers["output"]]
        session.close()
        assert of_another(artifact.answers, answers) is None
        lossless = artifact.lossless_plan()
        session = artifact.open_choice(lossless, lossless.first())
        assert differs(artifact.answers, session.run(known_rows(artifact.signature, spans[-1]))[0]) is None
        session.close()
    (low, high), (darker_low, darker_high) = spans
    assert -2 <= low <= darker_low < darker_high < 0.1 < 1.5 < high <= 2


def test_images_judge_and_calibrate(folder, photos):
    _, plan = retune(folder, GraphConfig(**QUICK), images=photos)
    judged = [item.parity for item in plan.measurements if item.choice.precision != FP32 and item.parity is not None]
    assert all(record.rows == 90 for record in judged)
    assert {item.choice.precision for item in plan.measurements} >= {FP32, INT8}


def test_images_are_read_as_the_server_reads_them_with_their_classes(photos):
    rows, classes = read_images(photos, STEPS, Labels.of(LABELS), most=60)
    assert rows.shape == (60, 3, 16, 16)
    assert rows.dtype == np.float32
    assert sorted(set(classes)) == [0, 1, 2, 3, 4]
    _, classes = read_images(photos, STEPS, Labels.of(["x", "y"]))
    assert classes is None


def test_what_cannot_be_tuned_is_said_and_nothing_changes(folder, photos, tmp_path, conv_net):
    before = {path.name: path.read_bytes() for path in (folder / "1").iterdir()}
    with pytest.raises(InputError, match="not a folder"):
        retune(folder, GraphConfig(**QUICK), images=tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no images"):
        retune(folder, GraphConfig(**QUICK), images=tmp_path / "empty")
    with pytest.raises(ArtifactError):
        retune(tmp_path, GraphConfig(**QUICK))
    bare = headrace.compile(conv_net, torch.randn(2, 3, 16, 16), config=GraphConfig(backend="eager", buckets=(1,)))
    with pytest.raises(ArtifactError, match="how an image becomes its input"):
        retune(bare.save(tmp_path / "bare"), GraphConfig(**QUICK), images=photos)
    assert {path.name: path.read_bytes() for path in (folder / "1").iterdir()} == before


def test_the_command_prints_every_candidate(folder, photos):
    options = ["--calibration", str(photos), "--buckets", "1,2", "--threads", "1", "--max-tuning-seconds", "20"]
    done = CliRunner().invoke(app, ["tune", str(folder), *options], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    for part in (
        "candidate",
        "batch 1",
        "batch 2",
        "latency",
        "memory",
        "onnxruntime fp32",
        "onnxruntime int8",
        "won",
        "inductor",
    ):
        assert part in done.output
    done = CliRunner().invoke(app, ["tune", str(folder), "--format", "json", "--buckets", "1", "--max-tuning-seconds", "5"])
    assert Plan.from_json(json.loads(done.stdout)).buckets == (1,)
    assert CliRunner().invoke(app, ["tune", str(folder), "--precision", "fp64"]).exit_code == 2


def test_the_table_explains_what_was_refused_and_skipped(folder):
    _, plan = retune(folder, GraphConfig(**QUICK))
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(plan_table(plan.to_json()))
    text = console.export_text()
    assert "eager fp32: eager needs the model itself" in text
    measured = plan.to_json()["measurements"]
    won = {(item["backend"], item["precision"], item.get("variant")) for item in measured if item["status"] == "won"}
    assert text.count("won") == len(won), "one line for each form, also where it won at several batch sizes"


def test_sigterm_leaves_no_temporary_folder(folder, tmp_path, warm_torch):
    """What is measured there are copies of the model."""
    (temporary := tmp_path / "temporary").mkdir()
    command = ["-m", "headrace", "tune", folder, "--buckets", "1,2,4,8,16"]
    tuning = warm_torch.popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.DEVNULL)
    try:
        while not any(temporary.glob("headrace-*")):
            assert tuning.poll() is None
            time.sleep(0.02)
        tuning.terminate()
        assert tuning.wait(120) == 128 + signal.SIGTERM
    finally:
        tuning.kill()
    assert not any(temporary.glob("headrace-*"))
