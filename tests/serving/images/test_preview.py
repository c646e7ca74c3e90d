"""The pictures of the preprocessing are those of the exact path."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from headrace.errors import InputError
from headrace.runtime.images.preprocessing import Preprocessor
from headrace.serving.images.preview import preview
from headrace.specs import CenterCrop, Convert, Point, Preprocessing, Resize

PREPROCESSING = Preprocessing(
    geometry=(Resize(size=40), CenterCrop(size=(32, 32))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), channels="BGR"
)


def _photo(width=90, height=60, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG", **options)
    return file.getvalue()


def _drawn(step) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(step["png"]))))


def _steps(data, preprocessing=PREPROCESSING, **options):
    return preview(preprocessing, data, **{"max_pixels": 10**6, "takes_pixels": False, **options})["steps"]


def test_each_step_is_what_the_model_gets():
    data = _photo()
    steps, exact = _steps(data), Preprocessor(PREPROCESSING.to_json()["steps"])
    assert [(step["width"], step["height"]) for step in steps] == [(90, 60), (60, 40), (32, 32), (32, 32)]
    assert np.array_equal(_drawn(steps[0]), np.asarray(Image.open(io.BytesIO(data))))
    assert np.array_equal(_drawn(steps[2]), exact.decode(data))
    row = exact(data).transpose(1, 2, 0)
    stretched = (row - row.min()) / (row.max() - row.min()) * 255
    assert np.abs(_drawn(steps[3]) - stretched).max() <= 0.51
    assert "red and blue change places" in steps[3]["how"]
    assert f"from {row.min():.3g} to {row.max():.3g}" in steps[3]["how"]


def test_what_is_done_to_colors_is_drawn():
    inverted = Point(table=tuple(range(255, -1, -1)))
    made = Preprocessing(geometry=(Resize(size=(20, 30)), Convert(mode="L"), inverted, Convert(mode="RGB")))
    data = _photo()
    steps = _steps(data, made)
    gray = Image.open(io.BytesIO(data)).resize((30, 20), Image.Resampling.BILINEAR).convert("L")
    assert np.array_equal(_drawn(steps[2]), np.asarray(gray))
    assert np.array_equal(_drawn(steps[3]), 255 - np.asarray(gray))
    assert [step["how"] for step in steps[2:5]] == ["to gray", "by a table of 256 values", "to three channels"]


def test_large_images_are_drawn_small():
    steps = _steps(_photo(900, 30))
    assert _drawn(steps[0]).shape == (9, 256, 3)
    assert (steps[0]["width"], steps[0]["height"]) == (900, 30)


@pytest.mark.parametrize(("upright", "told"), [(False, "ignores"), (True, "turned here")])
def test_an_orientation_is_told(upright, told):
    exif = Image.Exif()
    exif[0x0112] = 6
    steps = _steps(_photo(exif=exif), Preprocessing(geometry=PREPROCESSING.geometry, upright=upright))
    assert told in steps[0]["how"]
    assert (steps[0]["width"], steps[0]["height"]) == ((60, 90) if upright else (90, 60))


def test_one_color_everywhere_and_gray():
    flat = io.BytesIO()
    Image.new("L", (50, 50), 7).save(flat, "PNG")
    gray = Preprocessing(mode="L", geometry=(), mean=(0.5,), std=(0.5,), channels="L")
    steps = _steps(flat.getvalue(), gray)
    assert _drawn(steps[-1]).max() == 0
    assert _steps(flat.getvalue())[0]["how"].endswith("L as RGB")


@pytest.mark.parametrize(
    ("data", "preprocessing", "why"),
    [
        (b"no image", PREPROCESSING, "not an image"),
        (_photo(2000, 600), PREPROCESSING, "the limit here is"),
        (_photo(10, 10), Preprocessing(geometry=(Resize(size=(3000, 3000)),)), "limit here"),
    ],
)
def test_what_cannot_be_drawn(data, preprocessing, why):
    with pytest.raises(InputError, match=why):
        _steps(data, preprocessing)


def test_a_row_that_would_take_too_much_memory_is_not_made():
    with pytest.raises(InputError, match="too many to be drawn"):
        _steps(_photo(10, 10), Preprocessing(geometry=(Resize(size=(3000, 3000)),)), max_pixels=50_000_000)
