"""`headrace bench` as a user meets it: one path, whatever it is."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.prepared import migrated_from

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1, bias=False)

    def forward(self, x):
        return self.conv(x).mean((2, 3))
"""
EVALUATE = """
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from model import Net

CLASSES = ["red", "green", "blue"]


def transform(image):
    image = image.convert("RGB").resize((24, 24), Image.BILINEAR)
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    return (values - 0.5) / 0.25


class Photos(torch.utils.data.Dataset):
    def __init__(self, root):
        self.files = sorted(Path(root).glob("*/*.png"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        return transform(Image.open(path)), CLASSES.index(path.parent.name)


def main():
    net = Net()
    net.load_state_dict(torch.load("net.pth"))
    net.eval()
    loader = torch.utils.data.DataLoader(Photos("data/test"), batch_size=4)
    correct = 0
    with torch.no_grad():
        for images, targets in loader:
            outputs = net(images)
            correct += (outputs.argmax(1) == targets).sum().item()
    print("correct", correct)


if __name__ == "__main__":
    main()
"""


def headrace(*arguments, cwd, cache):
    command = [sys.executable, "-m", "headrace", *map(str, arguments)]
    environment = {**os.environ, "HEADRACE_CACHE": str(cache)}
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, timeout=240, env=environment)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    import torch

    root = tmp_path_factory.mktemp("bench") / "photos"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    (root / "evaluate.py").write_text(EVALUATE)
    torch.save({"conv.weight": 4 * torch.eye(3)[:, :, None, None]}, root / "net.pth")
    for channel, color in enumerate(("red", "green", "blue")):
        for shade in range(6):
            pixels = np.full((30, 40, 3), 20 + shade, np.uint8)
            pixels[..., channel] = 200 + 5 * shade
            path = root / "data" / "test" / color / f"{shade}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return root


@pytest.mark.slow
def test_a_repository_never_seen_is_migrated_and_measured_beside_itself(repository, tmp_path):
    short = ["--trust-repository", "--concurrency", "2", "--rounds", "1", "--seconds", "0.3"]
    done = headrace("bench", repository, *short, cwd=tmp_path, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    first = tmp_path / "headrace-bench" / "bench.json"
    result = json.loads(first.read_text())
    assert result["contenders"] == ["baseline", "headrace"]
    assert result["accuracy"] == {"baseline": 1.0, "headrace": 1.0}
    assert result["agreement"]["share"] == 1.0
    # Nothing is made again while nothing changes, and everything when a file does.
    (models,) = (tmp_path / "cache" / "prepared").glob("*/*/migrated/models")
    made = models.stat().st_mtime_ns
    done = headrace("bench", repository, *short, "--out", "unchanged", cwd=tmp_path, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [*models.parents[2].glob("*/migrated/models")] == [models]
    assert models.stat().st_mtime_ns == made
    assert migrated_from(models.parent) == (models, repository)
    assert migrated_from(repository) is None
    source = (repository / "evaluate.py").read_text()
    try:
        (repository / "evaluate.py").write_text(source.replace("(24, 24)", "(32, 32)"))
        again = ["--compare", first, "--out", "again"]
        done = headrace("bench", repository, *short, *again, cwd=tmp_path, cache=tmp_path / "cache")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "figures changed beyond the spread" in done.stdout
        (other,) = {*models.parents[2].glob("*/migrated/models")} - {models}
        (manifest,) = (json.loads(path.read_text()) for path in other.glob("*/1/headrace.json"))
        assert manifest["signature"]["inputs"][0]["shape"][1:] == [3, 32, 32]
    finally:
        (repository / "evaluate.py").write_text(source)


@pytest.fixture
def forked(forked_headrace, tmp_path, monkeypatch):
    """The command with a cache of its own, as a fork."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return forked_headrace


def test_a_choice_that_is_the_users_names_its_option(forked, tmp_path):
    root = tmp_path / "alone"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    done = forked("bench", root, "--trust-repository", cwd=tmp_path)
    assert done.returncode == 2
    assert "several sizes" in done.stderr
    assert "--input-size" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], "holds no packaged model and is no PyTorch repository"),
        ([".", "--compare", "none.json"], "cannot read none.json"),
    ],
)
def test_mistakes_are_said(forked, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    done = forked("bench", *arguments, cwd=tmp_path / "empty")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
