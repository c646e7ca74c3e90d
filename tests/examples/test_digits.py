"""The digits example is an ordinary repository: its scripts are run as a user would, in a copy of the folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("sklearn"), reason="the example's images come from scikit-learn"),
]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def run(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained copy of the example."""
    folder = tmp_path_factory.mktemp("examples") / "digits"
    ignored = shutil.ignore_patterns("data", "data.partial-*", "checkpoints", "runs", "__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    run(folder, "prepare.py")
    output = run(folder, "train.py")
    assert output.count("Epoch [") == 15
    return folder


def test_the_example_does_not_know_headrace() -> None:
    for path in EXAMPLE.glob("*.*"):
        text = path.read_text(encoding="utf-8").lower()
        assert "headrace" not in text, path
        assert "torchvision" not in text, path


def test_prepare_writes_a_stratified_split_once(digits: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (digits / "data").rglob("*.png")}
    counts = {split: len([path for path in files if path.parts[-3] == split]) for split in ("train", "val", "test")}
    assert counts == {"train": 1257, "val": 180, "test": 360}
    assert all(35 <= len(list((digits / "data" / "test" / str(label)).iterdir())) <= 37 for label in range(10))
    assert "already there" in run(digits, "prepare.py")
    assert {path: path.stat().st_mtime_ns for path in (digits / "data").rglob("*.png")} == files
    assert not list(digits.glob("data.partial-*"))


def test_training_reaches_97_percent_held_out(digits: Path) -> None:
    match = re.fullmatch(r"Top-1 accuracy: (\d+\.\d\d)% \((\d+)/360\)\n", run(digits, "evaluate.py"))
    assert match
    assert float(match[1]) >= 97
    assert f"{100 * int(match[2]) / 360:.2f}" == match[1]


def test_a_checkpoint_from_data_parallel_gives_the_same_accuracy(digits: Path, tmp_path: Path) -> None:
    checkpoint = torch.load(digits / "checkpoints" / "best.pth", weights_only=True)
    assert checkpoint["arch"] == "smallcnn"
    assert 0 <= checkpoint["epoch"] < 15
    checkpoint["state_dict"] = {f"module.{name}": value for name, value in checkpoint["state_dict"].items()}
    torch.save(checkpoint, tmp_path / "parallel.pth")
    prefixed = run(digits, "evaluate.py", "--checkpoint", str(tmp_path / "parallel.pth"), "--batch-size", "7")
    assert prefixed == run(digits, "evaluate.py")


def test_predict_prints_the_three_likeliest_digits(digits: Path) -> None:
    images = [str(next((digits / "data" / "test" / label).iterdir())) for label in ("0", "7")]
    lines = run(digits, "predict.py", *images).splitlines()
    for image, digit, line in zip(images, "07", lines, strict=True):
        match = re.fullmatch(r"(.+): (\d) \((\d+\.\d)%\), \d \(\d+\.\d%\), \d \(\d+\.\d%\)", line)
        assert match
        assert match.group(1, 2) == (image, digit)


def test_training_is_reproducible_and_resumes(digits: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(digits, "train.py", "--arch", "mobilecnn", "--epochs", "1", "--checkpoint-dir", str(tmp_path / name))
    first, second = (torch.load(tmp_path / name / "last.pth", weights_only=True)["state_dict"] for name in ("a", "b"))
    assert all(torch.equal(first[name], second[name]) for name in first)

    options = ("--arch", "mobilecnn", "--epochs", "2", "--checkpoint-dir", str(tmp_path / "a"))
    resumed = run(digits, "train.py", *options, "--resume", str(tmp_path / "a" / "last.pth"))
    assert "Epoch [2/2]" in resumed
    assert "Epoch [1/2]" not in resumed
    assert torch.load(tmp_path / "a" / "last.pth", weights_only=True)["epoch"] == 1


def test_every_architecture_builds() -> None:
    code = (
        "import torch, model; print(*(m(10).eval()(torch.randn(3, 1, 32, 32)).shape == (3, 10) for m in model.MODELS.values()))"
    )
    assert run(EXAMPLE, "-B", "-c", code) == "True True True\n"


INT8 = """
import sys
import numpy as np
import torch
import headrace
from data import DigitsDataset, eval_transform
from model import build_model

def split(name):
    items = list(DigitsDataset("data", name, eval_transform))
    return torch.stack([image for image, _ in items]), torch.tensor([label for _, label in items])

model = build_model("smallcnn", num_classes=10)
state = torch.load("checkpoints/best.pth", map_location="cpu")["state_dict"]
model.load_state_dict({key.replace("module.", "", 1): value for key, value in state.items()})
model.eval()
train, _ = split("train")
(images, labels), (test, wanted) = split("val"), split("test")
config = headrace.GraphConfig(precision="int8", backend=sys.argv[1], buckets=(16,), max_tuning_seconds=10)
graph = headrace.compile(model, images[:2], images=images, labels=labels, calibration=train[::10], config=config)
with torch.no_grad():
    before = (model(test).argmax(1) == wanted).double().mean()
after = (graph(test).argmax(1) == wanted).double().mean()
print(graph.plan.choice(16).precision, 100 * float(before), 100 * float(after))
"""


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_int8_keeps_the_accuracy(digits: Path, backend: str) -> None:
    pytest.importorskip(backend)
    precision, before, after = run(digits, "-c", INT8, backend).split()
    assert precision.startswith("int8")
    assert float(before) >= 97
    assert abs(float(before) - float(after)) <= 0.3
