"""Rows of many JPEGs at once, on the CPU with the operator's reference, against those of a `Preprocessor`."""

import contextlib
import io

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.errors import BackendError
from headrace.runtime.images import gpu_images
from headrace.runtime.images.gpu_images import GpuImages
from headrace.runtime.images.preprocessing import Preprocessor
from headrace.specs import CenterCrop, Pad, Point, Preprocessing, Resize

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# The steps, and how many levels rows may lie from Pillow's, which rounds after each of its two passes.
GEOMETRIES = {
    "torchvision": ((Resize(size=48), CenterCrop(size=(40, 40))), 1),
    "bicubic": ((Resize(size=48, interpolation="bicubic"), CenterCrop(size=(40, 33))), 2),
    "a fixed size": ((Resize(size=(30, 52)),), 1),
    "no resize": ((CenterCrop(size=(25, 44)),), 0),
    "the crop reaches out": ((Resize(size=30), CenterCrop(size=(41, 64))), 1),
}


def steps_of(geometry, **options):
    return Preprocessing(geometry=geometry, **{"mean": MEAN, "std": STD, **options}).to_json()["steps"]


def jpeg(seed, height=75, width=101):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(data, "JPEG", quality=90)
    return data.getvalue()


FILES = [jpeg(1), jpeg(2, 60, 200), jpeg(3, 130, 64), jpeg(4, 48, 48)]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_rows_are_those_of_the_transform(name, decoder):
    geometry, bound = GEOMETRIES[name]
    steps = steps_of(geometry)
    exact = Preprocessor(steps)
    level = 1 / 255 / min(STD)
    for row, data in zip(GpuImages(steps, device="cpu", decoder=decoder).rows(FILES), FILES, strict=True):
        wanted = exact(data)
        assert (row.dtype, row.shape, row.flags.c_contiguous) == (wanted.dtype, wanted.shape, True)
        assert np.abs(row - wanted).max() <= bound * level * 1.001 + 1e-5


@pytest.mark.parametrize("name", GEOMETRIES)
def test_pixels_are_those_of_the_transform(name, decoder):
    geometry, bound = GEOMETRIES[name]
    steps = steps_of(geometry)
    exact = Preprocessor(steps, pixels=True)
    for row, data in zip(GpuImages(steps, device="cpu", pixels=True, decoder=decoder).rows(FILES), FILES, strict=True):
        wanted = exact(data)
        assert (row.dtype, row.shape, row.flags.c_contiguous) == (np.uint8, wanted.shape, True)
        assert np.abs(row.astype(np.int16) - wanted).max() <= bound


@pytest.mark.parametrize(
    "options",
    [{"channels": "BGR"}, {"scale": 1.0, "mean": (123.0, 117.0, 104.0), "std": (58.0, 57.0, 57.5)}, {"scale": 1 / 128}],
)
def test_the_arithmetic_is_that_of_the_steps(options, pillow_decoder):
    steps = steps_of((CenterCrop(size=(40, 44)),), **options)
    (row,) = GpuImages(steps, device="cpu", decoder=pillow_decoder()).rows(FILES[:1])
    np.testing.assert_allclose(row, Preprocessor(steps)(FILES[0]), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_read_has_no_row(pillow_decoder):
    images = GpuImages(steps_of((Resize(size=(8, 8)),)), device="cpu", decoder=pillow_decoder())
    alone = images.rows(FILES[:2])
    found = images.rows([FILES[0], b"no image", FILES[1]])
    assert found[1] is None
    np.testing.assert_array_equal([found[0], found[2]], alone)
    assert images.rows([b"no image"]) == [None]
    assert images.rows([]) == []


def test_every_batch_is_launched_alike(pillow_decoder, monkeypatch):
    """Whatever the number of images and their sizes: another alignment would be compiled while a request waits."""
    seen, launched = set(), gpu_images.preprocess

    def noted(pixels, *rest):
        where = rest[:3]
        seen.add((len(pixels) % 16, *(item.data_ptr() % 16 for item in (pixels, *where)), *(item.stride() for item in where)))
        return launched(pixels, *rest)

    monkeypatch.setattr(gpu_images, "preprocess", noted)
    images = GpuImages(steps_of((Resize(size=(8, 8)),)), device="cpu", decoder=pillow_decoder())
    images.warm_up()
    for count in range(1, 8):
        found = images.rows([jpeg(number, 31 + number, 43) for number in range(count)])
        assert all(np.isfinite(row).all() for row in found)
    assert seen == {(0, 0, 0, 0, 0, (1,), (1,), (1,))}


def test_rows_stay_when_others_follow(pillow_decoder):
    images = GpuImages(steps_of((Resize(size=(8, 8)),)), device="cpu", decoder=pillow_decoder())
    first = images.rows(FILES)
    kept = [row.copy() for row in first]
    for _ in range(5):
        images.rows(FILES[::-1])
    np.testing.assert_array_equal(first, kept)


class LateLine:
    """The CPU as a device whose copies are there when it has finished, and not before."""

    device = torch.device("cpu")

    def __init__(self):
        self.inside, self.finished, self._begun = False, 0, []

    def memory(self, size):
        return torch.full((size,), 0xAB, dtype=torch.uint8)

    @contextlib.contextmanager
    def current(self):
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def copy(self, target, source):
        assert self.inside
        self._begun.append((target, source))

    def follow(self):
        pass

    def finish(self):
        self.finished += 1
        for target, source in self._begun:
            target.copy_(source)
        self._begun.clear()


def test_rows_are_read_when_the_copy_is_done(pillow_decoder):
    steps, line = steps_of((Resize(size=(8, 8)),)), LateLine()
    late = GpuImages(steps, device="cpu", decoder=pillow_decoder(), line=line).rows(FILES)
    np.testing.assert_array_equal(late, GpuImages(steps, device="cpu", decoder=pillow_decoder()).rows(FILES))
    assert line.finished == 1


def test_after_an_error_nothing_is_under_way(pillow_decoder):
    class Breaks(pillow_decoder):
        def decode(self, images):
            raise KeyError("nobody foresaw that")

    line = LateLine()
    with pytest.raises(KeyError):
        GpuImages(steps_of((Resize(size=(8, 8)),)), device="cpu", decoder=Breaks(), line=line).rows(FILES)
    assert (line.finished, line.inside) == (1, False)


@pytest.mark.parametrize(
    ("geometry", "options", "why"),
    [
        ((Resize(size=48, interpolation="lanczos"), CenterCrop(size=(40, 40))), {}, "step 1 of the geometry, resize"),
        ((Resize(size=(8, 8), library="opencv", antialias=False),), {}, "step 1"),
        ((Resize(size=48, long_side="round"), CenterCrop(size=(40, 40))), {}, "step 1"),
        ((Resize(size=48, side="long"), Pad(size=(48, 48))), {}, "step 1"),
        ((Resize(size=48), CenterCrop(size=(40, 40), offset="floor")), {}, "step 2 of the geometry, center_crop"),
        ((CenterCrop(size=(50, 50)), Resize(size=40)), {}, "step 2"),
        ((Resize(size=48), CenterCrop(size=(40, 40)), CenterCrop(size=(20, 20))), {}, "step 3"),
        ((Resize(size=48),), {}, "size follows from the image"),
        ((), {}, "size follows from the image"),
        ((Resize(size=(8, 8)), Point(table=tuple(range(256)))), {}, "step 2 of the geometry, point"),
        ((Resize(size=(8, 8)),), {"mode": "L", "channels": "L", "mean": (0.5,), "std": (0.5,)}, "gray"),
    ],
)
def test_other_steps_are_refused(geometry, options, why, pillow_decoder):
    with pytest.raises(ValueError, match=why):
        GpuImages(steps_of(geometry, **options), device="cpu", decoder=pillow_decoder())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize("pixels", [False, True])
def test_on_a_gpu(pixels):
    steps = steps_of(GEOMETRIES["torchvision"][0])
    try:
        images = GpuImages(steps, pixels=pixels)
    except BackendError as error:
        pytest.skip(str(error))
    exact = Preprocessor(steps, pixels=pixels)
    level = 1 if pixels else 1 / 255 / min(STD)
    for _ in range(20):
        for row, data in zip(images.rows([*FILES, b"no image"])[:-1], FILES, strict=True):
            assert np.abs(row.astype(np.float32) - exact(data)).mean() < 3 * level
