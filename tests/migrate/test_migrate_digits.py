"""The main job on the examples: one call gives the same repository in graph mode, proved, and a folder that serves."""

from __future__ import annotations

import filecmp
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree, ignore_patterns

import numpy as np
import pytest

import headrace
from headrace.migrate.reporting.report import Report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def migrated(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    out = tmp_path_factory.mktemp("migrated") / "digits"
    return headrace.migrate(digits, out=out, tuning_seconds=5), out


def python(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_everything_is_proved(migrated: tuple[Report, Path]) -> None:
    report, _ = migrated
    assert report.exit_status == 0, report.findings
    (model, *others) = report.models
    assert (model.name, model.factory, model.input, model.classes) == ("smallcnn", "model.py:100", [1, 32, 32], 10)
    assert (model.built, model.captured, model.served, model.parity.status) == (True, True, True, "passed")
    assert model.parity.top1_agreement >= 0.98  # less than all only where a lossy precision won, which its gate then says
    assert sorted(other.name for other in others) == ["mobilecnn", "resnet8"]
    executed = {script.path: (script.rewritten, script.executed) for script in report.scripts}
    assert executed == {"evaluate.py": (True, "passed"), "predict.py": (True, "passed"), "train.py": (True, "passed")}
    assert all(finding.severity == "note" for finding in report.findings)


def test_training_is_proved_by_its_losses(migrated: tuple[Report, Path]) -> None:
    report, out = migrated
    (train,) = (script for script in report.scripts if script.path == "train.py")
    assert (train.rules, train.why) == (["PS203", "PS301"], None)
    assert train.loss_trace is not None
    assert (train.loss_trace.status, train.loss_trace.steps) == ("passed", 20)
    assert train.loss_trace.max_relative <= train.loss_trace.tolerance == 1e-5
    (losses,) = report.losses
    assert (losses.script, len(losses.original), len(losses.migrated)) == ("train.py", 20, 20)
    assert losses.original == pytest.approx(losses.migrated, rel=1e-5)
    source = (out / "train.py").read_text()
    assert "    train_step = headrace.training_step(model, criterion, optimizer)\n" in source
    assert "loss, outputs = train_step(images, targets)" in source
    assert "backward" not in source


def test_the_migrated_training_prints_the_same_epochs(migrated: tuple[Report, Path], digits: Path, tmp_path: Path) -> None:
    """Whole epochs, not only the steps that were compared: losses and accuracies as printed, and a run that is resumed."""
    printed = []
    for root in (digits, migrated[1]):
        folder = str(tmp_path / f"weights-{len(printed)}")
        lines = [python(root, "train.py", "--epochs", "2", "--checkpoint-dir", folder)]
        lines.append(python(root, "train.py", "--epochs", "3", "--checkpoint-dir", folder, "--resume", f"{folder}/last.pth"))
        kept = (line for text in lines for line in text.splitlines() if not line.startswith("Resumed"))
        printed.append([re.sub(r"  [\d.]+s$", "", line) for line in kept])
    assert printed[0] == printed[1]
    assert sum(line.startswith("Epoch") for line in printed[0]) == 3


def test_the_preprocessing_is_the_evaluation_transform(migrated: tuple[Report, Path]) -> None:
    (recovered,) = migrated[0].preprocessing
    assert recovered.for_models == ["smallcnn"]
    decode, resize, scale, normalize, layout = recovered.steps
    assert (decode["mode"], resize["size"], resize["interpolation"]) == ("L", (32, 32), "bilinear")
    assert scale["factor"] == pytest.approx(1 / 255)
    assert (normalize["mean"], normalize["std"], layout["channels"]) == ([0.305], [0.376], "L")


def test_only_the_rewritten_scripts_differ(migrated: tuple[Report, Path], digits: Path) -> None:
    _, out = migrated
    added = {name for name in files(out) - files(digits) if not name.startswith("models/")}
    assert added == {"headrace-report.json", ".headrace-written.json"}
    assert files(digits) <= files(out)
    assert filecmp.cmpfiles(digits, out, sorted(files(digits)), shallow=False)[1:] == (
        ["evaluate.py", "predict.py", "train.py"],
        [],
    )


def test_the_migrated_script_prints_the_same_accuracy(migrated: tuple[Report, Path], digits: Path) -> None:
    _, out = migrated
    original = python(digits, "evaluate.py")
    assert "Top-1 accuracy" in original
    assert python(out, "evaluate.py") == original


def test_the_served_accuracy_is_the_scripts(migrated: tuple[Report, Path], digits: Path, tmp_path: Path) -> None:
    """All test images over HTTP, against the line that evaluate.py prints."""
    import httpx

    _, out = migrated
    ready = tmp_path / "ready.json"
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--ready-file", str(ready)]
    with subprocess.Popen([sys.executable, "-m", "headrace", "serve", str(out / "models"), *ports]) as server:
        try:
            end = time.monotonic() + 180
            while not ready.exists():
                assert server.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            images = sorted((digits / "data" / "test").rglob("*.png"))
            right = 0
            with httpx.Client(base_url=f"http://127.0.0.1:{json.loads(ready.read_text())['http']}") as client:
                for path in images:
                    answer = client.post("/v1/classify/smallcnn", content=path.read_bytes()).raise_for_status().json()
                    right += answer["predictions"][0]["label"] == path.parent.name
        finally:
            server.terminate()
            assert server.wait(60) == 0
    assert f"({right}/{len(images)})" in python(digits, "evaluate.py")


def test_the_package_answers_as_the_original_script(migrated: tuple[Report, Path], digits: Path) -> None:
    """Image bytes in, label out, as a server does it, without torch: top-1 equals predict.py's on every fifth test image."""
    from headrace.runtime.artifact.artifact import load_artifact
    from headrace.runtime.images.preprocessing import image_to_row

    artifact = load_artifact(migrated[1] / "models/smallcnn")
    assert artifact.preprocessing is not None
    assert artifact.labels is not None
    steps = artifact.preprocessing.to_json()["steps"]
    paths = sorted((digits / "data/test").rglob("*.png"))[::5]
    printed = python(digits, "predict.py", "--topk", "1", *map(str, paths)).splitlines()
    expected = [line.rsplit(": ", 1)[1].split(" ")[0] for line in printed]
    session = artifact.open()
    rows = np.stack([image_to_row(path.read_bytes(), steps) for path in paths])
    got = [artifact.labels[int(index)] for index in session.run([rows])[0].argmax(axis=1)]
    session.close()
    assert got == expected


def test_the_report_on_disk_is_the_report(migrated: tuple[Report, Path]) -> None:
    report, out = migrated
    assert json.loads((out / "headrace-report.json").read_text()) == json.loads(json.dumps(report.to_json()))


def test_a_second_run_finds_nothing_to_rewrite(migrated: tuple[Report, Path]) -> None:
    again = headrace.migrate(migrated[1], check=True)
    assert (again.diff, again.would_change) == ("", False)


def test_check_and_no_output_write_nothing(digits: Path) -> None:
    before = {name: (digits / name).stat().st_mtime_ns for name in files(digits)}
    report = headrace.migrate(digits, check=True)
    assert report.exit_status == 1
    assert "+    graph = headrace.compile(model)" in report.diff
    assert {name: (digits / name).stat().st_mtime_ns for name in files(digits)} == before


def test_photos_with_a_hand_written_transform(photos: Path, tmp_path: Path) -> None:
    weights = photos / "weights/resnet18.pth"
    out = tmp_path / "out"
    wishes = {"model": "resnet18", "checkpoint": weights, "precision": "fp32", "tuning_seconds": 2}
    report = headrace.migrate(photos, out=out, verify=False, **wishes)  # the digits' scripts are run, and quicker
    model = report.models[0]
    assert (model.name, model.input, model.classes, model.served) == ("resnet18", [3, 224, 224], 16, True), report.findings
    assert model.parity.status == "passed"
    resize, crop = report.preprocessing[0].steps[1:3]
    assert (resize["size"], resize["long_side"]) == (256, "floor")
    assert (crop["size"], crop["offset"]) == ((224, 224), "floor")
    labels = (out / "models/resnet18/labels.txt").read_text().split()
    assert labels == (photos / "classes.txt").read_text().split()
    assert [(script.rewritten, script.executed) for script in report.scripts] == [(True, "not-run"), (True, "not-run")]
    assert "PS403" in {finding.code for finding in report.findings}  # unproved, and says so
    assert report.exit_status == 0


def test_without_data_and_weights_the_report_says_what_is_missing(digits: Path, tmp_path: Path) -> None:
    bare = copytree(digits, tmp_path / "bare", ignore=ignore_patterns("data", "checkpoints"))
    report = headrace.migrate(bare, out=tmp_path / "out", precision="fp32", tuning_seconds=2)
    model = report.models[0]
    assert (model.built, model.parity.status, model.artifact, model.served) == (True, "not-run", None, False), report.findings
    assert "PS503" in {finding.code for finding in report.findings}
    compared = {script.path: (script.executed, script.executed_on) for script in report.scripts}
    assert compared["evaluate.py"] == ("passed", "stand-in data")
    own = next(checkpoint for checkpoint in report.checkpoints if checkpoint.source.startswith("evaluate.py"))
    assert (own.path, own.loaded, own.why) == ("checkpoints/best.pth", False, "file not in the repository")
    assert report.exit_status == 2
    assert "headrace-" not in json.dumps(report.to_json()["findings"])  # the scratch folder means nothing to anybody
