"""The served preprocessing is recovered from what a transform does, and refused when it cannot be stated exactly."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from penstock.migrate.sandbox import Limits
from penstock.migrate.trace_transform import Traced, row_shape, trace
from penstock.migrate.workshop import Workshop
from penstock.specs import CenterCrop, Resize

COMPOSE = """
import numpy as np, random, math
from PIL import Image
import PIL
def array(image, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
    values = np.array(image, dtype=np.float32) / 255.0
    if values.ndim == 2:
        values = values[:, :, None]
    mean, std = (np.array(numbers[:values.shape[2]], np.float32) for numbers in (mean, std))
    return ((values - mean) / std).transpose(2, 0, 1)
def short(image, size):
    w, h = image.size
    if (w <= h and w == size) or (h <= w and h == size):
        return image
    ow, oh = (size, int(size * h / w)) if w < h else (int(size * w / h), size)
    return image.resize((ow, oh), Image.BILINEAR)
def center(image, size):
    w, h = image.size
    if w < size or h < size:
        pad = Image.new(image.mode, (max(w, size), max(h, size)))
        pad.paste(image, ((max(w, size) - w) // 2, (max(h, size) - h) // 2))
        image = pad; w, h = image.size
    top, left = int(round((h - size) / 2.)), int(round((w - size) / 2.))
    return image.crop((left, top, left + size, top + size))
"""


def traced(
    tmp_path: Path, source: str, callable_: str = "transform", takes: str = "image", convert: str | None = None
) -> Traced:
    root = tmp_path / "repository"
    root.mkdir()
    recipe = {
        "root": str(root), "directory": ".", "script": "evaluate.py", "argv": [],
        "source": COMPOSE + textwrap.dedent(source), "callable": callable_, "takes": takes,
        "convert": convert, "source_at": "evaluate.py:7",
    }  # fmt: skip
    return trace(recipe, Workshop(scratch=tmp_path, limits=Limits(timeout=120)))


def test_short_side_then_centre_crop_as_torchvision_does(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(center(short(image.convert('RGB'), 72), 64))")
    assert found.why is None
    (made,) = found.candidates
    assert made.geometry == (Resize(size=72), CenterCrop(size=(64, 64)))
    assert (made.scale, made.mean, made.std, made.channels) == (1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "RGB")
    assert row_shape(made) == (3, 64, 64)
    assert found.max_abs is not None
    assert found.max_abs < 1e-5
    assert made.source == "evaluate.py:7"


def test_exact_size_on_whatever_mode_the_caller_hands_over_gives_both(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(image.resize((32, 28), Image.BICUBIC))")
    assert [(made.mode, made.geometry) for made in found.candidates] == [
        ("RGB", (Resize(size=(28, 32), interpolation="bicubic"),)),
        ("L", (Resize(size=(28, 32), interpolation="bicubic"),)),
    ]
    assert [row_shape(made) for made in found.candidates] == [(3, 28, 32), (1, 28, 32)]
    assert found.candidates[1].mean == (0.485,)


def test_path_function_with_caffe_numbers_in_bgr_and_a_floor_crop_on_the_array(tmp_path: Path) -> None:
    source = """
    def load(path):
        with Image.open(path) as file:
            image = file.convert("RGB")
        w, h = image.size
        scale = 48 / min(w, h)
        image = image.resize((round(w * scale) if w > h else 48, round(h * scale) if h > w else 48), Image.LANCZOS)
        values = np.asarray(image).astype(np.float32)[:, :, ::-1]
        top, left = (values.shape[0] - 41) // 2, (values.shape[1] - 41) // 2
        values = values[top:top + 41, left:left + 41] - np.array([103.939, 116.779, 123.68], np.float32)
        return values.transpose(2, 0, 1)[None]
    """
    found = traced(tmp_path, source, "load", "path")
    assert found.why is None
    (made,) = found.candidates
    assert made.geometry == (
        Resize(size=48, interpolation="lanczos", long_side="round"),
        CenterCrop(size=(41, 41), offset="floor"),
    )
    assert (made.channels, made.scale, made.mean, made.std) == ("BGR", 1.0, (123.68, 116.779, 103.939), (1.0, 1.0, 1.0))


def test_grey_decode_and_minus_one_to_one(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(image.convert('L').resize((30, 30), 2), (0.5,), (0.5,))")
    (made,) = found.candidates
    assert (made.mode, made.channels, made.mean, made.std) == ("L", "L", (0.5,), (0.5,))


def test_the_mode_that_the_script_converts_to_before_it_calls_the_transform(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(image.resize((32, 32), 2), (0.3,), (0.4,))", convert="L")
    assert [made.mode for made in found.candidates] == ["L"]
    assert found.notes == ()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("array(image.resize((32, 32))) if random.random() < 0.5 else array(image.resize((32, 32)))[:, :, ::-1]", "random"),
        ("array(image.resize((32, 32)).rotate(3))", "Image.rotate"),
        ("array(image.resize((32, 32), reducing_gap=2.0))", "reducing_gap"),
        ("array(image.convert('L').convert('RGB').resize((32, 32)))", "grey"),
        ("np.repeat(array(image.convert('L').resize((32, 32))), 3, axis=0)", "grey channel"),
        ("array(image.convert('RGB').crop((1, 2, 31, 30)))", "centred"),
        ("array(image.convert('RGB').resize((32, 32))) ** 2", "scale and shift"),
        ("(lambda a: (a - a.mean()) / a.std())(array(image.convert('RGB').resize((32, 32))))", "scale and shift"),
        ("array(image.convert('RGB').resize((32, 32)))[:, ::2, ::2]", "scale and shift"),
        ("array(Image.fromarray(np.array(image.convert('RGB'))[::-1].copy()).resize((32, 32)))", "cannot be followed"),
        ("array(image.convert('RGB').resize((32, 32))).transpose(1, 2, 0)", "channels first"),
        ("array(image.convert('RGB').resize((image.width // 2, 32)))", "resizes to"),
        ("1 / 0", "ZeroDivisionError"),
        ("__import__('time').sleep(0.01) or np.zeros((3, 8, 8), np.float32)", "without Pillow"),
    ],
)
def test_what_cannot_be_stated_exactly_is_refused_with_the_reason(tmp_path: Path, body: str, reason: str) -> None:
    found = traced(tmp_path, f"transform = lambda image: {body}")
    assert found.candidates == ()
    assert found.why is not None
    assert reason in found.why


def test_code_that_fails_before_the_transform_exists_says_where(tmp_path: Path) -> None:
    found = traced(tmp_path, "raise SystemExit('no data here')\ntransform = None")
    assert found.why is not None
    assert "no data here" in found.why


OPENCV = """
import cv2
def read(path):
    return cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
def floats(pixels):
    return ((pixels / 255.0 - 0.5) / 0.25).transpose(2, 0, 1)
"""


@pytest.mark.parametrize(
    ("body", "takes", "geometry", "channels"),
    [
        ("transform = lambda path: floats(cv2.resize(read(path), (40, 30)))", "path", [(30, 40)], "RGB"),
        ("transform = lambda path: floats(cv2.resize(cv2.imread(path), (32, 32)))", "path", [(32, 32)], "BGR"),
        (
            "transform = lambda image: floats(cv2.resize(np.array(image.convert('RGB').resize((50, 50), 2)), (24, 24)))",
            "image",
            [(50, 50), (24, 24)],
            "RGB",
        ),
    ],
)
def test_opencv(tmp_path: Path, body: str, takes: str, geometry: list[tuple[int, int]], channels: str) -> None:
    pytest.importorskip("cv2")
    found = traced(tmp_path, OPENCV + body, takes=takes)
    assert found.why is None
    made = found.candidates[0]
    assert [step.size for step in made.geometry] == geometry
    assert made.geometry[-1] == Resize(size=geometry[-1], antialias=False, library="opencv")
    assert made.channels == channels


def test_opencv_filters_that_are_not_served_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    body = "transform = lambda path: floats(cv2.resize(read(path), (40, 30), interpolation=cv2.INTER_AREA))"
    found = traced(tmp_path, OPENCV + body, takes="path")
    assert not found.candidates
    assert "OpenCV interpolation" in (found.why or "")


def test_a_transform_configured_from_a_model_needs_no_download(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = """
        import torch
        from urllib.error import URLError
        def load(url):
            return torch.hub.load_state_dict_from_url(url)
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(2, 2)
        net = Net()
        net.load_state_dict(load("http://localhost:1/absent.pth"))
        net.size = 48
        transform = lambda image: array(image.resize((net.size, net.size), Image.BILINEAR))
    """
    found = traced(tmp_path, source)
    assert found.candidates[0].geometry == (Resize(size=(48, 48)),)
