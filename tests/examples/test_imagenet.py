"""The imagenet example is an ordinary repository; what its pretrained weights say is tested where they have been prepared."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "imagenet"
WEIGHTS, PHOTOS = EXAMPLE / "weights" / "efficientnet_lite0.pth", EXAMPLE / "data" / "photos"
prepared = pytest.mark.skipif(not (WEIGHTS.exists() and PHOTOS.exists()), reason="examples/imagenet/prepare.py has not run")


@pytest.fixture(scope="module")
def run(warm_python):
    def run(folder, *arguments):
        done = warm_python([*map(str, arguments)], cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def example(tmp_path_factory, run):
    """A copy with weights by chance, and two labels of crops cut from scikit-learn's photos."""
    if not find_spec("sklearn"):
        pytest.skip("the photos come from scikit-learn")
    from sklearn.datasets import load_sample_images

    ignored = shutil.ignore_patterns("data", "weights", "*.partial-*", "__pycache__")
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("imagenet") / "imagenet", ignore=ignored)
    (folder / "photos").mkdir()
    for path in load_sample_images().filenames:
        shutil.copy(path, folder / "photos")
    code = (
        "import os, torch, prepare, model; torch.manual_seed(0); os.mkdir('weights'); "
        "torch.save(model.EfficientNetLite0().state_dict(), 'weights/efficientnet_lite0.pth'); "
        "prepare.PHOTOS = {k: v for k, v in prepare.PHOTOS.items() if v[0] == 'sklearn'}; "
        "prepare.make_images('photos', 'data/val', 3)"
    )
    run(folder, "-c", code)
    return folder


def test_the_example_does_not_know_headrace():
    for path in EXAMPLE.glob("*.*"):
        text = path.read_text(encoding="utf-8").lower()
        assert "headrace" not in text, path
        assert "torchvision" not in text, path


def test_there_are_a_thousand_labels_and_the_photos_have_some():
    labels = (EXAMPLE / "labels.txt").read_text().splitlines()
    assert len(labels) == len(set(labels)) == 1000
    assert (labels[0], labels[967], labels[999]) == ("tench", "espresso", "toilet tissue")


def test_scripts_run_on_what_was_prepared(example, run):
    images = sorted((example / "data" / "val").rglob("*.jpg"))
    assert [path.parent.name for path in images] == ["daisy"] * 3 + ["palace"] * 3
    with Image.open(images[0]) as image:
        assert (image.format, image.size) == ("JPEG", (320, 320))
    first, second = run(example, "evaluate.py", "--batch-size", "4").splitlines()
    assert first.startswith("Top-1 accuracy: ")
    assert second.endswith("/6)")
    (line,) = run(example, "predict.py", images[0]).splitlines()
    likely = [entry["probability"] for entry in json.loads(line)["top5"]]
    assert likely == sorted(likely, reverse=True)


def test_padding_is_tensorflows(example, run):
    """With stride 2, 224 pixels and 3 wide: one row of zeros at the end and none before."""
    code = (
        "import torch, model; conv = model.SameConv2d(1, 1, 3, stride=2, bias=False); conv.weight.data.fill_(1.0); "
        "out = conv(torch.ones(1, 1, 4, 6)); print(out.detach().int().tolist())"
    )
    assert run(example, "-c", code).strip() == "[[[[9, 9, 6], [6, 6, 4]]]]"


def test_weights_that_are_not_the_published_ones_are_refused(example, run, tmp_path):
    code = (
        "import prepare, sys\n"
        "def unpack(package, wanted, folder):\n"
        "    open(folder + '/' + wanted[0].rpartition('/')[2], 'wb').write(b'other')\n"
        "prepare.unpack = unpack\n"
        "try:\n    prepare.get_weights(sys.argv[1])\nexcept SystemExit as error:\n    print(error)\n"
    )
    target = tmp_path / "weights" / "net.pth"
    assert "SHA-256" in run(example, "-c", code, target)
    assert list(target.parent.iterdir()) == []


@prepared
def test_real_photos_have_real_labels(run):
    wanted = {"coffee.png": "espresso", "camera.png": "tripod", "chelsea.png": "tiger cat", "rocket.jpg": "missile"}
    lines = run(EXAMPLE, "-B", "predict.py", *(PHOTOS / name for name in wanted)).splitlines()
    assert [json.loads(line)["top5"][0]["class"] for line in lines] == list(wanted.values())


@prepared
def test_the_weights_fit_the_model_exactly(run):
    code = "import torch, model; model.EfficientNetLite0().load_state_dict(torch.load('weights/efficientnet_lite0.pth'))"
    run(EXAMPLE, "-B", "-c", code)
    state = torch.load(WEIGHTS, weights_only=True)
    assert sum(value.numel() for name, value in state.items() if name.endswith(("weight", "bias"))) == 4_652_008


def test_the_weights_are_not_committed():
    done = subprocess.run(["git", "check-ignore", "-q", str(WEIGHTS)], cwd=EXAMPLE, check=False)
    assert done.returncode == 0  # 18 MB are not committed
