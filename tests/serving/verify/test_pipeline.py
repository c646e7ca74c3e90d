"""Other ways from an image to a row, against the libraries that go them."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from headrace.runtime.images.preprocessing import image_to_row
from headrace.serving.verify.hypotheses import Setup, of_preprocessing
from headrace.serving.verify.images import PHOTO, samples
from headrace.serving.verify.pipeline import Pipeline, without_antialias
from headrace.serving.verify.scores import Way
from headrace.specs import CenterCrop, Convert, Pad, Point, Preprocessing, Resize

MADE = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def photos():
    return [sample.data for sample in samples(16, 16) if sample.group == PHOTO]


def test_without_changes_it_is_the_packages_own():
    for data in photos():
        assert np.array_equal(Pipeline(MADE)(data), image_to_row(data, MADE.to_json()["steps"]))
        same = Pipeline(MADE, row=lambda row: row)
        assert np.array_equal(same(data), Pipeline(MADE)(data))


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(16, 16), (7, 90), (40, 5)])
def test_resizing_without_antialias_is_torchs(kernel, size):
    pixels = np.random.default_rng(0).integers(0, 256, (31, 44, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].double()
    wanted = F.interpolate(tensor, size=size, mode=kernel, align_corners=False, antialias=False)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(without_antialias(kernel)(pixels, *size), wanted, atol=1e-6)


def test_a_shifted_crop_stays_inside_of_the_image():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    data = io.BytesIO()
    image.save(data, "PNG")
    plain = Preprocessing(geometry=(CenterCrop(size=(16, 16)),), scale=1.0)
    for by, corner in (((1, 1), (3, 8)), ((-(1 << 20),) * 2, (0, 0)), ((1 << 20,) * 2, (4, 14))):
        row = Pipeline(plain, shift=by)(data.getvalue())
        top, left = corner
        assert np.array_equal(row, np.asarray(image, np.float32)[top : top + 16, left : left + 16].transpose(2, 0, 1))


@pytest.mark.parametrize(
    "made",
    [
        MADE,
        Preprocessing(geometry=(Resize(size=(16, 16), interpolation="nearest", antialias=False),)),
        Preprocessing(
            geometry=(Resize(size=18, interpolation="bilinear", library="opencv", antialias=False), CenterCrop(size=(16, 12)))
        ),
        Preprocessing(
            geometry=(Resize(size=16, side="long"), Pad(size=(16, 16))), channels="BGR", scale=1.0, mean=(123.0, 117.0, 104.0)
        ),
        Preprocessing(mode="L", channels="L", geometry=(Resize(size=(16, 16)),), mean=(0.13,), std=(0.3,)),
        Preprocessing(mode="L", channels="L", gray="opencv", geometry=(Resize(size=(16, 16)),), mean=(0.13,), std=(0.3,)),
        Preprocessing(
            mode="L",
            geometry=(Convert(mode="RGB"), Point(table=tuple(range(255, -1, -1))), Resize(size=20), CenterCrop(size=(16, 16))),
        ),
        Preprocessing(
            channels="L",
            geometry=(
                Resize(size=16, side="long"),
                Pad(size=(16, 16)),
                Convert(mode="L"),
                Point(table=(0,) * 99 + (255,) * 157),
            ),
            mean=(0.13,),
            std=(0.3,),
        ),
        Preprocessing(geometry=(CenterCrop(size=(16, 16)),)),
        Preprocessing(),
    ],
)
def test_every_hypothesis_makes_rows_and_most_make_others(made):
    setup = Setup(None, Pipeline(made), Way("", "", lambda outputs: outputs))
    data = photos()[0]
    own, others = Pipeline(made)(data), 0
    for hypothesis in of_preprocessing(made, pixels=False):
        row = hypothesis.change(setup).pipeline(data)
        assert row.dtype == np.float32
        assert row.ndim == 3, hypothesis.text
        assert np.isfinite(row).all(), hypothesis.text
        others += row.shape != own.shape or not np.array_equal(row, own)
    assert others > 8


def test_for_a_graph_that_takes_pixels_only_pixels_change():
    setup = Setup(None, Pipeline(MADE), Way("", "", lambda outputs: outputs))
    faults = set()
    for hypothesis in of_preprocessing(MADE, pixels=True):
        row = hypothesis.change(setup).pipeline(photos()[0], as_pixels=True)
        assert (row.dtype, row.shape[2]) == (np.uint8, 3)
        faults.add(hypothesis.fault)
    assert faults == {"channel-order", "grayscale", "resize-filter", "antialias", "resize-shape", "crop-offset"}
