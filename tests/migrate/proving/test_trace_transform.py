"""The served preprocessing is recovered from what a transform does, and refused when it cannot be stated exactly."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Literal

import pytest

from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.trace_transform import FIT_SIZES, PROOF_SIZES, Traced, row_shape, trace
from headrace.migrate.reading.recipe import TransformRecipe
from headrace.specs import CenterCrop, Geometry, Pad, Resize
from tests.migrate import probes

pytestmark = pytest.mark.usefixtures("light_sandbox")


@pytest.fixture(params=["small", pytest.param("all", marks=pytest.mark.slow)], autouse=True)
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    probes.take(probes.ALL if request.param == "all" else probes.SMALL, monkeypatch.setattr)


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
    tmp_path: Path,
    source: str,
    callable_: str = "transform",
    takes: Literal["image", "path"] = "image",
    convert: str | None = None,
) -> Traced:
    root = tmp_path / "repository"
    root.mkdir()
    recipe = TransformRecipe(
        root=str(root), script="evaluate.py", source=COMPOSE + textwrap.dedent(source), expression=callable_,
        takes=takes, convert=convert, source_at="evaluate.py:7",
    )  # fmt: skip
    return trace(recipe, Sandbox(scratch=tmp_path, limits=Limits(timeout=120)))


@pytest.mark.parametrize(
    "laid",
    [
        "Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image.convert('RGBA')).convert('RGB')",
        "on_white(image.convert('RGBA'))",
        "Image.composite(image.convert('RGB'), Image.new('RGB', image.size), image.convert('RGBA').getchannel('A'))",
        "laid_on(image.convert('RGBA')).convert('RGB')",
    ],
)
def test_what_is_laid_on_a_ground_is_followed_where_all_of_it_is_seen(tmp_path: Path, laid: str) -> None:
    source = f"""
        import numpy as np
        from PIL import Image

        def on_white(image):
            ground = Image.new("RGB", image.size, (255, 255, 255))
            ground.paste(image, mask=image.split()[3])
            return ground

        def laid_on(image):
            ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
            ground.alpha_composite(image)
            return ground

        def transform(image):
            return np.asarray({laid}.resize((16, 20), Image.BILINEAR)).transpose(2, 0, 1) / 255
    """
    found = traced(tmp_path, source)
    assert found.why is None
    (made,) = found.candidates
    assert made.row_size == (20, 16)


def test_short_side_then_center_crop_as_torchvision_does(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(center(short(image.convert('RGB'), 72), 64))")
    assert found.why is None
    (made,) = found.candidates
    assert made.geometry == (Resize(size=72), CenterCrop(size=(64, 64)))
    assert (made.scale, made.mean, made.std, made.channels) == (1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "RGB")
    assert not made.upright
    assert row_shape(made) == (3, 64, 64)
    assert found.max_abs is not None
    assert found.max_abs < 1e-5
    assert made.source == "evaluate.py:7"


def test_standing_images_upright_is_recovered(tmp_path: Path) -> None:
    body = "from PIL import ImageOps\ntransform = lambda image: array(short(ImageOps.exif_transpose(image).convert('RGB'), 72))"
    found = traced(tmp_path, body)
    assert found.why is None
    (made,) = found.candidates
    assert (made.geometry, made.upright) == ((Resize(size=72),), True)


def test_turning_every_image_is_refused(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(image.convert('RGB').transpose(Image.Transpose.ROTATE_90))")
    assert found.why is not None
    assert "Image.transpose" in found.why


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


TENSORS = """
import torch
from torch.nn.functional import interpolate
def tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
def small(pixels, side, **options):
    h, w = pixels.shape[-2:]
    size = (side, int(side * w / h)) if h < w else (int(side * h / w), side)
    return interpolate(pixels[None], size, mode="bilinear", **options)[0]
def middle(pixels, side):
    top, left = (int(round((length - side) / 2.0)) for length in pixels.shape[-2:])
    return pixels[:, top:top + side, left:left + side]
"""


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize(
    ("body", "std"),
    [
        ("(middle(small(tensor(image), 40, antialias=True), 33) / 255 - 0.5) / 0.25", 0.25),
        ("(middle(small(tensor(image) / 255, 40, antialias=True), 33) - 0.5) / 0.2", 0.2),
        ("(middle(small(tensor(image).float(), 40, antialias=True).round() / 255, 33) - 0.5) / 0.2", 0.2),
    ],
    ids=["bytes", "between 0 and 1", "bytes as floats"],
)
def test_a_resize_of_tensors_is_served_as_one_of_images_with_the_difference_told(tmp_path: Path, body: str, std: float) -> None:
    found = traced(tmp_path, f"{TENSORS}def transform(image):\n    return {body}\n")
    (made,) = found.candidates
    assert made.geometry == (Resize(size=40), CenterCrop(size=(33, 33), offset="round")), found
    assert (made.scale, made.mean, made.std) == (1 / 255, (0.5,) * 3, (std,) * 3)
    assert 0 < (found.max_abs or 0) < 2.1 / 255 / std
    assert any("resizes in floats" in note for note in found.notes)


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize("body", ["small(tensor(image) / 255, 40)", "small(tensor(image).float().sqrt(), 40, antialias=True)"])
def test_a_resize_of_tensors_by_another_rule_or_of_other_numbers_is_refused(tmp_path: Path, body: str) -> None:
    found = traced(tmp_path, f"{TENSORS}def transform(image):\n    return {body}\n")
    assert found.candidates == (), found


def test_gray_decode_and_minus_one_to_one(tmp_path: Path) -> None:
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
        ("array(image.convert('RGB').crop((1, 2, 31, 30)))", "centered"),
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


@pytest.mark.usefixtures("torch_sandbox")
def test_a_network_before_the_model_is_refused_at_its_first_call(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        """
        import torch
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1))
        def transform(image):
            image = image.convert("RGB").resize((16, 16))
            with open("asked", "a") as file:
                file.write(".")
            try:
                return network(torch.from_numpy(array(image)).float()[None])[0].detach().numpy()
            except Exception:
                return array(image)
        """,
    )
    assert found.candidates == ()
    assert found.why == "the transform asks a network, Sequential, which no preprocessing can state (evaluate.py:7)"
    assert (tmp_path / "repository" / "asked").read_text() == "."


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


@pytest.mark.parametrize(
    ("image", "filtered", "channels"),
    [
        ("cv2.resize(read(path), (40, 30), interpolation=cv2.INTER_CUBIC) / 255.0", "bicubic", "RGB"),
        ("cv2.resize(read(path) / 255.0, (40, 30))", "bilinear", "RGB"),
        ("cv2.resize(cv2.imread(path).astype(np.float32), (40, 30), interpolation=cv2.INTER_AREA) / 255", "area", "BGR"),
        ("cv2.resize(read(path).astype('float32') / 255, None, fx=0.5, fy=0.5)[:24, :24]", None, "RGB"),
        ("cv2.resize((read(path) / 255.0 - 0.5) / 0.25, (40, 30)) * 0.25 + 0.5", None, "RGB"),
    ],
)
def test_opencv_in_floats(tmp_path: Path, image: str, filtered: str | None, channels: str) -> None:
    """The service resizes images of 8 bits, and says by how much that differs."""
    pytest.importorskip("cv2")
    body = f"transform = lambda path: ((({image}) - 0.5) / 0.25).transpose(2, 0, 1)"
    found = traced(tmp_path, OPENCV + "import numpy as np\n" + body, takes="path")
    if filtered is None:
        assert not found.candidates
        return
    assert found.why is None
    (made, *_) = found.candidates
    assert made.geometry == (Resize(size=(30, 40), interpolation=filtered, antialias=False, library="opencv"),)
    assert made.channels == channels
    assert any("it resizes in floats" in note for note in found.notes)


@pytest.mark.parametrize(
    "made", ["Image.fromarray(pixels)", "Image.frombuffer('RGB', pixels.shape[1::-1], pixels, 'raw', 'RGB', 0, 1)"]
)
def test_what_opencv_reads_and_pillow_resizes(tmp_path: Path, made: str) -> None:
    """As torchvision's ToPILImage makes an image of an array: by a buffer, since Pillow 11.3."""
    pytest.importorskip("cv2")
    body = f"""
    def transform(path):
        pixels = np.ascontiguousarray(read(path))
        return floats(np.array({made}.resize((40, 30), Image.BILINEAR)))
    """
    found = traced(tmp_path, OPENCV + textwrap.dedent(body), takes="path")
    assert found.why is None
    assert found.candidates[0].geometry == (Resize(size=(30, 40)),)


def test_images_that_opencv_decodes_in_its_own_way_are_told(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    found = traced(tmp_path, OPENCV + "transform = lambda path: floats(cv2.resize(read(path), (40, 30)))", takes="path")
    assert found.why is None
    assert "CMYK images are converted to the model's channels before any other step, unlike in the transform" in found.notes


def test_images_of_several_kinds_that_are_converted_otherwise_are_told_in_one_note(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: np.array(image, dtype=np.float32)[None] / 255")
    kinds = "RGBA, P, gray transparent (LA), 16-bit gray and CMYK images"
    said = f"{kinds} are converted to the model's channels before any other step, unlike in the transform"
    assert found.notes == (said,)  # once, though it takes gray images and colored ones


def test_images_that_pillow_decodes_are_served_as_they_are(tmp_path: Path) -> None:
    found = traced(tmp_path, "transform = lambda image: array(image.convert('RGB').resize((32, 32), Image.BILINEAR))")
    assert found.why is None
    assert found.notes == ()


@pytest.mark.parametrize(
    "rare",
    [
        "values * 3 if values.mean() < 0.15 else values",
        "1 - values if values.mean() > 0.85 else values",
        "(values - values.mean()) * 4 if values.std() < 0.03 else values",
        "np.ones_like(values) if values.max() == 0 else values",
    ],
    ids=["brightens the dark", "inverts the bright", "stretches the faint", "replaces the black"],
)
def test_what_is_done_to_rare_images_alone_is_refused(tmp_path: Path, rare: str) -> None:
    body = f"""
    def transform(image):
        values = np.array(image.convert("RGB").resize((32, 32), Image.BILINEAR), dtype=np.float32) / 255
        values = {rare}
        return values.transpose(2, 0, 1)
    """
    found = traced(tmp_path, body)
    assert found.candidates == ()
    assert found.why is not None


@pytest.mark.parametrize(("ground", "margin"), [("np.array(gray) > 10", "black"), ("np.array(gray) < 245", "white")])
def test_a_crop_to_what_is_not_ground_is_refused(tmp_path: Path, ground: str, margin: str) -> None:
    body = f"""
    def transform(image):
        gray = image.convert("L").resize((28, 28), Image.BILINEAR)
        ys, xs = np.where({ground})
        if len(xs):
            gray = gray.crop((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1))
        return np.array(gray.resize((20, 20), Image.BILINEAR), dtype=np.float32)[None] / 255
    """
    found = traced(tmp_path, body)
    assert found.candidates == ()
    assert found.why is not None
    assert f"an image with a {margin} margin" in found.why


def test_opencv_filters_that_are_not_served_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    body = "transform = lambda path: floats(cv2.resize(read(path), (40, 30), interpolation=cv2.INTER_LANCZOS4))"
    found = traced(tmp_path, OPENCV + body, takes="path")
    assert not found.candidates
    assert "OpenCV interpolation" in (found.why or "")


@pytest.mark.usefixtures("torch_sandbox")
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
    assert found.candidates, found.why
    assert found.candidates[0].geometry == (Resize(size=(48, 48)),)


PADDING = """
from PIL import ImageOps
def rgb(image):
    return image.convert("RGB")
def square(image, fill=0, extra=0):
    w, h = image.size
    side = max(w, h)
    canvas = Image.new(image.mode, (side, side), fill)
    canvas.paste(image, ((side - w + extra) // 2, (side - h + extra) // 2))
    return canvas
def cut(image, side):
    w, h = image.size
    ratio = side / min(w, h)
    return image.resize((int(w * ratio), int(h * ratio)), Image.BILINEAR)
def symmetric(image, fill=0):
    w, h = image.size
    hp, vp = int((max(w, h) - w) / 2), int((max(w, h) - h) / 2)
    return ImageOps.expand(image, (hp, vp, hp, vp), fill)
def fitted(image, side, how=int):
    w, h = image.size
    ratio = side / max(w, h)
    return image.resize((how(w * ratio), how(h * ratio)), Image.BICUBIC)
def letterbox(image, side, fill):
    image = fitted(image, side, round)
    canvas = Image.new("RGB", (side, side), fill)
    canvas.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return canvas
def on_array(image, side, value=0):
    pixels = np.array(image)
    canvas = np.full((side, side, 3), value, np.uint8)
    top, left = (side - pixels.shape[0]) // 2, (side - pixels.shape[1]) // 2
    canvas[top:top + pixels.shape[0], left:left + pixels.shape[1]] = pixels
    return canvas
def floats(values, side, value):
    c, h, w = values.shape
    canvas = np.full((c, side, side), value, np.float32)
    canvas[:, :h, :w] = values
    return canvas
"""


@pytest.mark.parametrize(
    ("body", "geometry"),
    [
        ("array(square(rgb(image)).resize((48, 48)))", (Pad(), Resize(size=(48, 48), interpolation="bicubic"))),
        (
            "array(center(cut(rgb(image), 52), 48))",
            (Resize(size=52, long_side="ratio"), CenterCrop(size=(48, 48))),
        ),
        (
            "array(short(square(rgb(image), (9, 8, 7), 1), 40))",
            (Pad(fill=(9, 8, 7), place="ceil"), Resize(size=(40, 40))),
        ),
        (
            "array(symmetric(rgb(image), (255, 0, 0)).resize((37, 41), 2))",
            (Pad(fill=(255, 0, 0), place="symmetric"), Resize(size=(41, 37))),
        ),
        (
            "array(ImageOps.pad(rgb(image), (48, 48), Image.LANCZOS, (1, 2, 3)))",
            (Resize(size=48, interpolation="lanczos", long_side="round", side="long"),
             Pad(size=(48, 48), fill=(1, 2, 3), place="round")),
        ),
        (
            "array(letterbox(image, 50, (114, 114, 114)))",
            (Resize(size=50, interpolation="bicubic", long_side="round", side="long"), Pad(size=(50, 50), fill=(114,) * 3)),
        ),
        (
            "array(Image.fromarray(on_array(rgb(image), max(image.size), 128)).resize((33, 33), 2))",
            (Pad(fill=(128,) * 3), Resize(size=(33, 33))),
        ),
        (
            "array(on_array(rgb(image).resize((31, 20), 2), 33, 7))",
            (Resize(size=(20, 31)), Pad(size=(33, 33), fill=(7,) * 3)),
        ),
        (
            "array(rgb(image).resize((31, 20), 2).crop((-1, -6, 32, 27)))",
            (Resize(size=(20, 31)), CenterCrop(size=(33, 33))),
        ),
        (
            "floats(np.array(rgb(image).resize((31, 20), 2)).transpose(2, 0, 1) / np.float32(255), 32, 1)[::-1]",
            (Resize(size=(20, 31)), Pad(size=(32, 32), fill=(255,) * 3, place="start")),
        ),
    ],
)  # fmt: skip
def test_padding(tmp_path: Path, body: str, geometry: tuple[Geometry, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if "ImageOps.pad" in body:  # by the small ones several ways to round are one
        probes.take(probes.ALL, monkeypatch.setattr)
    found = traced(tmp_path, PADDING + f"transform = lambda image: {body}")
    assert found.why is None
    made = found.candidates[0]
    assert made.row_size is not None
    assert made.geometry == geometry


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("floats(array(rgb(image).resize((31, 20))), 32, 0)", "8 bits"),
        ("np.pad(array(rgb(image).resize((31, 20))), ((0, 0), (6, 6), (0, 1)), 'edge')", ""),
        ("array(square(rgb(image), image.size[0] % 200).resize((32, 32)))", "color"),
        ("array(square(fitted(rgb(image), 50)).rotate(90))", "Image.rotate"),
        ("array(ImageOps.expand(rgb(image), (3, 1, 4, 1)).resize((32, 32)))", "neither a square"),
    ],
)
def test_paddings_that_cannot_be_stated_are_refused(tmp_path: Path, body: str, reason: str) -> None:
    found = traced(tmp_path, PADDING + f"transform = lambda image: {body}")
    assert found.candidates == ()
    assert reason in (found.why or "")


@pytest.mark.parametrize("turned", [False, True])
def test_opencv_border_then_resize(tmp_path: Path, turned: bool) -> None:
    pytest.importorskip("cv2")
    source = f"""
    def load(path):
        pixels = {"cv2.imread(path)" if turned else "read(path)"}
        h, w = pixels.shape[:2]
        side = max(h, w)
        top, left = (side - h) // 2, (side - w) // 2
        pixels = cv2.copyMakeBorder(
            pixels, top, side - h - top, left, side - w - left, cv2.BORDER_CONSTANT, value=(10, 20, 30))
        return floats(cv2.resize(pixels, (40, 40)))
    """
    found = traced(tmp_path, OPENCV + textwrap.dedent(source), "load", "path")
    assert found.why is None
    made = found.candidates[0]
    assert made.channels == ("BGR" if turned else "RGB")
    assert made.geometry[0] == Pad(fill=(30, 20, 10) if turned else (10, 20, 30))


def test_probes_tell_apart_how_the_usual_sizes_are_rounded() -> None:
    sizes = [(height, width) for width, height in (*FIT_SIZES, *PROOF_SIZES)]
    for size in (32, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 380, 384, 448, 480, 512, 640):
        forms = [Resize(size=size, side="long", long_side=rounding) for rounding in ("floor", "round", "ratio")]
        assert len({tuple(form.output_size(*probe) for probe in sizes) for form in forms}) == 3, size
        for place in ("floor", "ceil", "round", "start", "symmetric"):
            pad = Pad(size=(size, size), place=place)
            others = [Pad(size=(size, size), place=other) for other in ("floor", "ceil", "round", "start") if other != place]
            inner = [forms[1].output_size(*probe) for probe in sizes]
            assert all(
                [pad.corner(*item) for item in inner] != [other.corner(*item) for item in inner] or place == "symmetric"
                for other in others
            ), (size, place)


def test_opencv_area(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    body = "transform = lambda path: floats(cv2.resize(read(path), (64, 48), interpolation=cv2.INTER_AREA))"
    found = traced(tmp_path, OPENCV + body, takes="path")
    assert found.why is None
    assert found.candidates[0].geometry == (Resize(size=(48, 64), interpolation="area", antialias=False, library="opencv"),)
