"""The pictures are what their names say, always the same, small enough to be sent, and read by the package's preprocessing."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from headrace.runtime.images.preprocessing import FORMATS, image_to_row
from headrace.serving.verify.images import ALPHA, CMYK, DEEP, EXIF, FLAT, GRAY, PALETTE, PHOTO, samples
from headrace.specs import Preprocessing, Resize


def opened(sample):
    return Image.open(io.BytesIO(sample.data))


@pytest.mark.parametrize("size", [(16, 16), (28, 28), (96, 64), (224, 224)])
def test_every_image_is_read_and_small(size):
    steps = Preprocessing(geometry=(Resize(size=size),)).to_json()["steps"]
    made = samples(*size)
    assert len({sample.name for sample in made}) == len(made) < 50
    for sample in made:
        assert opened(sample).format in FORMATS
        assert image_to_row(sample.data, steps).shape == (3, *size)
        assert len(sample.data) < 900_000, sample.name
        assert opened(sample).get_format_mimetype() == sample.content_type


def test_groups_are_what_they_are_called():
    by_group = {}
    for sample in samples(32, 32):
        by_group.setdefault(sample.group, []).append(opened(sample))
    assert sorted(image.getexif()[0x0112] for image in by_group[EXIF]) == list(range(1, 9))
    assert {image.mode for image in by_group[GRAY]} == {"L", "1"}
    assert {image.mode for image in by_group[ALPHA]} == {"RGBA", "LA"}
    assert {image.mode for image in by_group[PALETTE]} == {"P"}
    assert by_group[DEEP][0].mode == "I;16"
    assert {image.mode for image in by_group[CMYK]} == {"CMYK"}
    assert all(np.ptp(np.asarray(image), axis=(0, 1)).max() == 0 for image in by_group[FLAT])
    ratios = [image.width / image.height for image in by_group[PHOTO]]
    assert max(ratios) > 8
    assert min(ratios) < 1 / 8
    assert (1, 1) in {image.size for image in by_group[PHOTO]}


def test_they_are_the_same_in_every_call():
    first = [sample.data for sample in samples(24, 24)]
    samples.cache_clear()
    assert [sample.data for sample in samples(24, 24)] == first
