"""The photos example is an ordinary repository: its scripts are run as a user would, at a small setting."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "photos"
pytestmark = pytest.mark.skipif(not find_spec("sklearn"), reason="the example's images come from scikit-learn")
SMALL = ("--arch", "resnet18", "--weights", "weights/resnet18.pth")


Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(warm_python: Callable[..., subprocess.CompletedProcess[str]]) -> Run:
    """run(folder, "script.py", ...) is its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run(folder: Path, *arguments: str) -> str:
        done = warm_python(arguments, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def photos(once: Callable[..., Any], run: Run) -> Path:
    """A copy of the example with 6 photos to fit and 2 to test in each of its 16 classes."""

    def prepared(folder: Path) -> Path:
        ignored = shutil.ignore_patterns("data", "data.partial-*", "weights", "runs", "__pycache__")
        example = shutil.copytree(EXAMPLE, folder / "photos", ignore=ignored)
        output = run(example, "prepare.py", "--arch", "resnet18", "--per-class", "6", "--test-per-class", "2")
        assert "photos: 128/128" in output
        return example

    return once("photos", prepared)


def test_the_example_does_not_know_headrace() -> None:
    for path in EXAMPLE.glob("*.*"):
        text = path.read_text(encoding="utf-8").lower()
        assert "headrace" not in text, path
        assert "import torchvision" not in text, path


def test_photos_are_jpegs_of_a_cameras_size(photos: Path) -> None:
    files = sorted((photos / "data").rglob("*.jpg"))
    assert len(files) == 128
    for path in files:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (500, 375))
    assert 55_000 <= statistics.mean(path.stat().st_size for path in files) <= 75_000
    classes = (photos / "classes.txt").read_text(encoding="utf-8").split()
    assert classes == sorted(path.name for path in (photos / "data" / "test").iterdir())


def test_preparing_again_changes_nothing(photos: Path, run: Run) -> None:
    files = {path: path.stat().st_mtime_ns for folder in ("data", "weights") for path in (photos / folder).rglob("*.*")}
    assert len(files) == 129
    assert run(photos, "prepare.py", "--arch", "resnet18").count("is already there") == 2
    assert {path: path.stat().st_mtime_ns for folder in ("data", "weights") for path in (photos / folder).rglob("*.*")} == files


def test_evaluation_reaches_95_percent_held_out(photos: Path, run: Run) -> None:
    lines = run(photos, "evaluate.py", *SMALL, "--batch-size", "8").splitlines()
    assert lines[0].startswith("Test: [4/4]")
    match = re.fullmatch(r"Top-1 accuracy: (\d+\.\d\d)% \((\d+)/32\)", lines[-1])
    assert match
    assert float(match[1]) >= 95


def test_predict_prints_five_classes_with_sane_probabilities(photos: Path, run: Run) -> None:
    images = [f"data/test/{name}/000.jpg" for name in ("lake_day", "dahlia_dusk", "roof_day")]
    lines = [json.loads(line) for line in run(photos, "predict.py", *SMALL, *images).splitlines()]
    assert [line["image"] for line in lines] == images
    for line in lines:
        likely = [entry["probability"] for entry in line["top5"]]
        assert line["top5"][0]["class"] == Path(line["image"]).parent.name
        assert likely == sorted(likely, reverse=True)
        assert 0.3 < likely[0] < 0.9999


def test_weights_are_finite_and_statistics_settled(photos: Path) -> None:
    state = torch.load(photos / "weights" / "resnet18.pth", weights_only=True)["state_dict"]
    assert all(torch.isfinite(value).all() for value in state.values())
    variances = [value for name, value in state.items() if name.endswith("running_var")]
    assert len(variances) == 20
    assert all(value.std() > 0 and value.min() > 0 for value in variances)
    assert state["fc.weight"].shape == (16, 512)


def test_every_architecture_builds_with_the_usual_size(run: Run) -> None:
    code = (
        "import torch, resnet; torch.set_default_device('meta')\n"  # 84 million numbers need not be drawn to be counted
        "print([sum(p.numel() for p in resnet.__dict__[n]().parameters()) for n in resnet.__all__[1:]])"
    )
    assert run(EXAMPLE, "-B", "-c", code) == "[11689512, 25557032, 44549160]\n"
