"""Colors made gray, gray in three channels, inversions and thresholds are followed where a fixed step does them, and refused
where the image decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.specs import Convert, Geometry, Point, Resize
from tests.migrate import probes
from tests.migrate.proving.test_trace_transform import traced

pytestmark = pytest.mark.usefixtures("light_sandbox")

INVERTED = Point(table=tuple(range(255, -1, -1)))
SMALL = Resize(size=(28, 28))
GRAY, COLOR = Convert(mode="L"), Convert(mode="RGB")
OPENCV = Convert(mode="L", library="opencv")


def above(least: int) -> Point:
    return Point(table=tuple(255 * (value > least) for value in range(256)))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    probes.take(probes.SMALL, monkeypatch.setattr)


def small(image: str) -> str:
    return f"array({image}.resize((28, 28), Image.BILINEAR))"


@pytest.mark.parametrize(
    ("body", "mode", "geometry"),
    [
        (small("image.convert('L').convert('RGB')"), "L", (COLOR, SMALL)),
        (small("Image.fromarray(np.dstack([np.array(image.convert('L'))] * 3))"), "L", (COLOR, SMALL)),
        (f"np.repeat({small('image.convert(chr(76))')}, 3, axis=0)", "L", (SMALL, COLOR)),
        ("array(image.resize((28, 28), Image.BILINEAR).convert('L'))", "RGB", (SMALL, GRAY)),
        ("array(image.convert('RGBA').resize((28, 28), Image.BILINEAR).convert('L'))", "RGB", (SMALL, GRAY)),
        ("array(image.resize((28, 28), Image.BILINEAR).convert('L').convert('RGB'))", "RGB", (SMALL, GRAY, COLOR)),
        (small("PIL.ImageOps.invert(image.convert('L'))"), "L", (INVERTED, SMALL)),
        (small("PIL.ImageOps.invert(image.convert('RGB'))"), "RGB", (INVERTED, SMALL)),
        (small("Image.fromarray(255 - np.array(image.convert('L')))"), "L", (INVERTED, SMALL)),
        (small("image.convert('L').point(lambda value: 255 if value > 90 else 0)"), "L", (above(90), SMALL)),
        (
            small("Image.fromarray(np.where(np.array(image.convert('L')) > 90, 255, 0).astype(np.uint8))"),
            "L",
            (above(90), SMALL),
        ),
        (
            "(np.array(image.convert('L').resize((28, 28), Image.BILINEAR)) > 120)[None].astype(np.float32)",
            "L",
            (SMALL, above(120)),
        ),
        (
            small("image.convert('RGB').point([*range(256), *range(255, -1, -1), *[value // 2 for value in range(256)]])"),
            "RGB",
            (Point(table=(*range(256), *range(255, -1, -1), *(value // 2 for value in range(256)))), SMALL),
        ),
    ],
)
def test_what_a_fixed_step_does_to_colors_is_followed(
    tmp_path: Path, body: str, mode: str, geometry: tuple[Geometry, ...]
) -> None:
    found = traced(tmp_path, f"import PIL.ImageOps\ntransform = lambda image: {body}")
    assert found.why is None
    made = found.candidates[0]
    assert (made.mode, made.geometry) == (mode, geometry)
    assert [other.row_mode for other in found.candidates].count(made.row_mode) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (small("PIL.ImageOps.autocontrast(image.convert('L'))"), "another for each image"),
        (small("(lambda gray: PIL.ImageOps.invert(gray) if np.array(gray).mean() > 127 else gray)(image.convert('L'))"), ""),
        (small("image.convert('RGB').split()[0]"), "gray in a way of its own"),
        (small("image.convert('YCbCr').getchannel(0)"), "gray in a way of its own"),
        ("array(image.convert('RGB').resize((28, 28))).mean(axis=0, keepdims=True)", "1 channel(s) out of 3"),
        (
            "(lambda a: (a > a.mean()).astype(np.float32)[None])(np.array(image.convert('L').resize((28, 28))))",
            "scale and shift",
        ),
        (small("image.convert('L').point(lambda value: value > 90 and 255, '1').convert('L')"), "Image.point"),
    ],
)
def test_what_the_image_decides_is_refused(tmp_path: Path, body: str, reason: str) -> None:
    found = traced(tmp_path, f"import PIL.ImageOps\ntransform = lambda image: {body}")
    assert found.candidates == ()
    assert reason in (found.why or "")


@pytest.mark.parametrize(
    ("then", "row_mode", "geometry"),
    [
        ("cv2.resize(image, (28, 28))[None]", "L", ("LINEAR",)),
        ("cv2.cvtColor(cv2.resize(image, (28, 28)), cv2.COLOR_GRAY2RGB).transpose(2, 0, 1)", "RGB", ("LINEAR", "COLOR")),
    ],
)
def test_what_opencv_reads_as_gray(tmp_path: Path, then: str, row_mode: str, geometry: tuple[str, ...]) -> None:
    pytest.importorskip("cv2")
    body = f"""
    import cv2
    def transform(path):
        image = cv2.imread(path, cv2.IMREAD_GRAYSCALE)
        return {then}.astype(np.float32) / 255
    """
    found = traced(tmp_path, body, takes="path")
    assert found.why is None
    (made,) = found.candidates
    assert (made.mode, made.gray, made.row_mode) == ("L", "opencv", row_mode)
    assert made.geometry == tuple({"LINEAR": LINEAR, "COLOR": COLOR}[name] for name in geometry)


READ = """
import cv2
def transform(path):
    image = cv2.imread(path)
    {body}
    return (image[None] if image.ndim == 2 else image.transpose(2, 0, 1)).astype(np.float32) / 255
"""
LINEAR = Resize(size=(28, 28), library="opencv", antialias=False)


@pytest.mark.parametrize(
    ("body", "geometry"),
    [
        ("image = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), (28, 28))", (OPENCV, LINEAR)),
        # The colors are weighed in the wrong order, which gray images do not show.
        ("image = cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (28, 28))", (replace(OPENCV, order="BGR"), LINEAR)),
        ("image = cv2.bitwise_not(cv2.cvtColor(cv2.resize(image, (28, 28)), cv2.COLOR_BGR2GRAY))", (LINEAR, OPENCV)),
        (
            "image = cv2.threshold(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), 90, 255, cv2.THRESH_BINARY)[1]\n"
            "    image = cv2.resize(image, (28, 28))",
            (OPENCV, above(90), LINEAR),
        ),
        (
            "image = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), (28, 28))\n"
            "    image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB)",
            (OPENCV, LINEAR, COLOR),
        ),
    ],
)
def test_gray_of_opencv(tmp_path: Path, body: str, geometry: tuple[Geometry, ...]) -> None:
    pytest.importorskip("cv2")
    found = traced(tmp_path, READ.format(body=body), takes="path")
    assert found.why is None
    (made,) = found.candidates
    assert (made.mode, made.geometry, made.deep) == ("RGB", geometry, "high-byte")
    assert not any("16-bit" in note for note in found.notes)


def test_sixteen_bits_that_are_read_in_a_way_of_their_own_are_told(tmp_path: Path) -> None:
    body = """
    def transform(image):
        values = np.asarray(image).astype(np.int64)
        if image.mode == "I;16":
            image = Image.fromarray((values * 255 // values.max()).astype(np.uint8))
        pixels = np.asarray(image.convert("RGB").resize((28, 28)), np.float32)
        return pixels.transpose(2, 0, 1) / 255
    """
    found = traced(tmp_path, body)
    assert found.candidates[0].deep == "clip"
    assert any("16-bit gray images" in note for note in found.notes)


@pytest.mark.parametrize(
    "body",
    [
        "image = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2YUV)[:, :, 1], (28, 28))",
        "image = cv2.threshold(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), 0, 255, cv2.THRESH_OTSU)[1]\n"
        "    image = cv2.resize(image, (28, 28))",
    ],
)
def test_gray_of_opencv_that_no_step_is_is_refused(tmp_path: Path, body: str) -> None:
    pytest.importorskip("cv2")
    found = traced(tmp_path, READ.format(body=body), takes="path")
    assert found.candidates == ()


TENSORS = """
import torch
def luma(tensor, whole):
    made = (0.2989 * tensor[0] + 0.587 * tensor[1] + 0.114 * tensor[2])[None]
    return made.floor() if whole else made
def small(tensor):
    return torch.nn.functional.interpolate(tensor[None], size=(28, 28), mode="bilinear", antialias=True)[0]
def tensor(image):
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float()
"""


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize(
    ("body", "followed"),
    [
        ("small(luma(tensor(image), True)).round() / 255", True),
        ("small(luma(tensor(image) / 255, False))", True),
        ("small(tensor(image)[:1]) / 255", False),
        ("small(luma(tensor(image).flip(0), True)) / 255", False),
    ],
)
def test_gray_that_torchvision_makes_of_tensors_is_served_with_the_difference_told(
    tmp_path: Path, body: str, followed: bool
) -> None:
    found = traced(tmp_path, TENSORS + f"transform = lambda image: ({body}).numpy()")
    assert [(made.mode, made.geometry) for made in found.candidates] == [("L", (SMALL,))] * followed, found.why
    assert any("it resizes in floats" in note for note in found.notes) is followed
