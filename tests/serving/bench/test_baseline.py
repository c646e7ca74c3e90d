"""The naive service, in its own process, against what the model computes by hand."""

import asyncio
import contextlib
import io
import json
import signal
import time
import urllib.error
import urllib.request

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from headrace.runtime.base.task import Head, Task
from headrace.runtime.images.preprocessing import image_to_row
from headrace.serving.bench.baseline import create_app, transform
from headrace.specs import CenterCrop, Preprocessing, Resize

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=7, width=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.body(x).mean((2, 3))
        return self.head(x), x  # a tuple, as models with auxiliary heads return
"""
SOURCE = """
import argparse
import torch
from model import Net
args = argparse.ArgumentParser()
args.add_argument("--classes", type=int, default=3)
args = args.parse_args()
torch.manual_seed(5)
model = torch.nn.DataParallel(Net(args.classes))
model.load_state_dict(torch.load("weights.pt", weights_only=True))
"""
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=40), CenterCrop(size=(32, 36))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), source="evaluate.py:9"
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    (root / "model.py").write_text(MODEL)
    space = {}
    exec(MODEL, space)
    torch.manual_seed(6)
    model = torch.nn.DataParallel(space["Net"](7))
    model.module.body[1].running_mean.uniform_(-1, 1)
    torch.save(model.state_dict(), root / "weights.pt")
    return root, model.module.eval()


@contextlib.contextmanager
def service(warm, folder, root, *, device="auto", **head):
    recipe = {
        "root": str(root),
        "directory": ".",
        "script": "evaluate.py",
        "argv": ["--classes", "7"],
        "source": SOURCE,
        "expression": "model",
    }
    settings = {
        "recipe": recipe,
        "preprocessing": PREPROCESSING.to_json(),
        "name": "net",
        "task": {"heads": [{"output": "scores", "kind": "single-label", **head}]},
        "device": device,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    command = ["-m", "headrace.serving.bench.baseline", "settings.json", "ready.json"]
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    with (folder / "log").open("w") as log:
        process = warm.popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            while not ready.exists():
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield process, json.loads(ready.read_text())
        finally:
            process.kill()
            process.wait()


def post(facts, body, route="/v1/classify/net?k=3"):
    request = urllib.request.Request(f"http://127.0.0.1:{facts['http']}{route}", data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def photo(seed, size=(61, 47), kind="PNG", mode="RGB"):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(data, kind)
    return data.getvalue()


def test_the_service_answers_what_the_model_computes(warm_torch, repository, tmp_path):
    root, model = repository
    with service(warm_torch, tmp_path, root, labels=list("abcdefg")) as (process, facts):
        assert facts["pid"] == process.pid
        assert facts["threads"] >= 1
        for seed in range(3):
            data = photo(seed, kind="JPEG" if seed else "PNG")
            row = image_to_row(data, PREPROCESSING.to_json()["steps"], max_pixels=10**6)
            with torch.no_grad():
                expected = torch.softmax(model(torch.from_numpy(row)[None])[0][0], 0)
            status, answer = post(facts, data)
            assert status == 200
            assert answer["model"] == "net"
            values, indices = torch.topk(expected, 3)
            assert [one["index"] for one in answer["predictions"]] == indices.tolist()
            assert [one["label"] for one in answer["predictions"]] == ["abcdefg"[index] for index in indices.tolist()]
            assert [one["probability"] for one in answer["predictions"]] == pytest.approx(values.tolist(), abs=1e-5)
        assert post(facts, b"not an image")[0] == 400
        assert post(facts, photo(0), "/v1/classify/other")[0] == 404
        assert len(post(facts, photo(0), "/v1/classify/net?k=100")[1]["predictions"]) == 7
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) is not None
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log


def test_probabilities_are_passed_through_and_labels_may_be_missing(warm_torch, repository, tmp_path):
    root, model = repository
    with service(warm_torch, tmp_path, root, probabilities=True, device="cpu") as (_, facts):
        data = photo(9)
        row = image_to_row(data, PREPROCESSING.to_json()["steps"], max_pixels=10**6)
        with torch.no_grad():
            expected = model(torch.from_numpy(row)[None])[0][0]
        _, answer = post(facts, data)
    assert answer["predictions"][0]["probability"] == pytest.approx(expected.max().item(), abs=1e-5)
    assert answer["predictions"][0]["label"] is None
    assert facts["device"] == "cpu"


def test_a_transform_that_turns_photos_upright_is_followed():
    pixels = np.random.default_rng(3).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    data, turned = io.BytesIO(), Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels).save(data, "PNG", exif=turned)
    for upright in (False, True):
        preprocessing = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), upright=upright)
        with Image.open(data) as image:
            row = transform(preprocessing)(image).numpy()
        exact = image_to_row(data.getvalue(), preprocessing.to_json()["steps"], max_pixels=10**6)
        np.testing.assert_allclose(row, exact, atol=2e-6)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK"])
@pytest.mark.parametrize(
    "preprocessing",
    [
        PREPROCESSING,
        Preprocessing(geometry=(Resize(size=(20, 31), interpolation="bicubic"),), scale=1.0, channels="BGR", mean=(10, 20, 30)),
        Preprocessing(
            geometry=(Resize(size=24, interpolation="nearest", long_side="round"), CenterCrop(size=(48, 29), offset="floor"))
        ),
        Preprocessing(mode="L", channels="L", geometry=(CenterCrop(size=(80, 80)),), mean=(0.1,), std=(0.3,)),
    ],
)
def test_its_transform_computes_what_the_exact_one_does(preprocessing, mode):
    kind = "JPEG" if mode == "CMYK" else "PNG"
    for seed, size in enumerate([(61, 47), (33, 90), (50, 50)]):
        data = photo(seed, size, kind, mode)
        with Image.open(io.BytesIO(data)) as image:
            row = transform(preprocessing)(image).numpy()
        exact = image_to_row(data, preprocessing.to_json()["steps"], max_pixels=10**6)
        assert row.shape == exact.shape
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, exact, atol=2e-6 * max(1, np.abs(exact).max()))


def test_it_answers_as_headrace_does_whatever_the_outputs_are():
    class Heads(torch.nn.Module):
        def forward(self, images):
            means = images.mean((2, 3))
            return {"color": means, "bright": means.mean(1, keepdim=True), "vector": means * 2}

    heads = (
        Head(output="color", kind="single-label", labels=("red", "green", "blue")),
        Head(output="bright", kind="multi-label", thresholds=(0.25,)),
        Head(output="vector", kind="embedding"),
    )
    app = create_app(Heads(), PREPROCESSING, name="net", task=Task(heads))
    row = torch.from_numpy(image_to_row(photo(1), PREPROCESSING.to_json()["steps"], max_pixels=10**6))[None]
    means = row.mean((2, 3))[0]

    async def ask(route):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return (await client.post(route, content=photo(1))).raise_for_status().json()

    answer = asyncio.run(ask("/v1/classify/net?k=1"))["heads"]
    assert answer["color"]["predictions"][0]["index"] == int(means.argmax())
    assert bool(answer["bright"]["predictions"]) == bool(torch.sigmoid(means.mean()) > 0.25)
    assert asyncio.run(ask("/v1/embed/net"))["embedding"] == pytest.approx((2 * means).tolist(), abs=1e-4)
