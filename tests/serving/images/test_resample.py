"""resample.py against Pillow, value by value."""

import threading

import numpy as np
import pytest
from PIL import Image

resample = pytest.importorskip("headrace.serving.images.resample", exc_type=ImportError)
BOUND, FILTERS, Resampler, rows_first = resample.BOUND, resample.FILTERS, resample.Resampler, resample.rows_first

PILLOW = {name: getattr(Image.Resampling, name.upper()) for name in FILTERS}

# (height, width) before and after: shrinking, growing, one direction only, odd, equal, thin, by large factors.
SIZES = [
    ((375, 500), (256, 341)), ((500, 333), (384, 256)), ((480, 640), (232, 310)), ((224, 224), (256, 256)),
    ((100, 150), (256, 384)), ((31, 47), (224, 339)), ((256, 300), (256, 100)), ((300, 256), (100, 256)),
    ((64, 64), (64, 64)), ((1, 1), (5, 7)), ((1, 9), (3, 27)), ((9, 1), (27, 3)), ((3, 400), (3, 40)), ((2, 3), (200, 300)),
    ((1000, 17), (33, 1)), ((17, 1000), (1, 33)), ((1500, 1100), (8, 6)), ((701, 503), (700, 502)), ((260, 260), (259, 261)),
    ((1080, 1920), (256, 455)),
]  # fmt: skip


def picture(kind, height, width, channels=3):
    """Noise is the worst for rounding; a chessboard of 0 and 255 drives bicubic and Lanczos out of range; a photo is smooth."""
    rng = np.random.default_rng(height * 10_007 + width)
    if kind == "noise":
        return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    if kind == "chessboard":
        board = (np.add.outer(np.arange(height), np.arange(width)) // 3 % 2 * 255).astype(np.uint8)
        return np.repeat(board[:, :, np.newaxis], channels, axis=2)
    small = Image.fromarray(rng.integers(0, 256, (max(2, height // 12), max(2, width // 12), 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))[:, :, :channels]


def by_pillow(pixels, size, interpolation, box=None):
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    resized = np.asarray(image.resize((size[1], size[0]), PILLOW[interpolation], box=box))
    return resized.reshape(*size, pixels.shape[2])


def difference(one, other):
    assert one.shape == other.shape
    return np.abs(one.astype(np.int16) - other.astype(np.int16))


@pytest.mark.parametrize("interpolation", sorted(FILTERS))
@pytest.mark.parametrize("kind", ["noise", "chessboard", "photo"])
def test_every_value_is_within_the_bound_of_pillows(interpolation, kind):
    resample = Resampler(interpolation)
    counts = np.zeros(BOUND + 1)
    for before, after in SIZES:
        pixels = picture(kind, *before)
        off = difference(resample(pixels, after), by_pillow(pixels, after, interpolation))
        assert off.max() <= BOUND, (before, after)
        counts += np.bincount(off.ravel(), minlength=BOUND + 1)
    assert counts[1] < 0.01 * counts.sum()
    assert counts[2] < 0.0001 * counts.sum()


@pytest.mark.parametrize("interpolation", sorted(FILTERS))
def test_random_sizes_are_within_the_bound(interpolation):
    rng = np.random.default_rng(5)
    resample = Resampler(interpolation)
    for _ in range(60):
        before, after = (tuple(int(side) for side in np.exp(rng.uniform(0, np.log(500), 2))) for _ in range(2))
        pixels = picture("noise", *before, channels=int(rng.choice([1, 3])))
        assert difference(resample(pixels, after), by_pillow(pixels, after, interpolation)).max() <= BOUND, (before, after)


@pytest.mark.parametrize("interpolation", sorted(FILTERS))
@pytest.mark.parametrize("ratio", [(5, 4), (7, 4), (15, 8), (2, 3), (1, 2), (8, 1)])
def test_ratios_whose_values_end_on_a_half(interpolation, ratio):
    before, after = (30 * ratio[0], 40 * ratio[0]), (30 * ratio[1], 40 * ratio[1])
    for kind in ("noise", "photo"):
        pixels = picture(kind, *before)
        off = difference(Resampler(interpolation)(pixels, after), by_pillow(pixels, after, interpolation))
        assert off.max() <= BOUND
        assert np.count_nonzero(off) < 0.1 * off.size
        assert np.count_nonzero(off == 2) < 0.001 * off.size


@pytest.mark.parametrize("interpolation", sorted(FILTERS))
def test_a_window_is_what_cutting_afterwards_gives(interpolation):
    rng = np.random.default_rng(6)
    resample = Resampler(interpolation)
    for before, after in SIZES:
        pixels = picture("noise", *before)
        whole = by_pillow(pixels, after, interpolation)
        height, width = (int(rng.integers(1, side + 1)) for side in after)
        top, left = int(rng.integers(0, after[0] - height + 1)), int(rng.integers(0, after[1] - width + 1))
        part = resample(pixels, after, window=(top, left, height, width))
        assert difference(part, whole[top : top + height, left : left + width]).max() <= BOUND, (before, after)


@pytest.mark.parametrize("before", [(375, 501), (1081, 1919), (777, 1003)])
def test_an_extent_is_pillows_box(before):
    """A decoder that scales to 1/2 rounds half a pixel up; the resize must not stretch it."""
    height, width = before
    pixels = picture("photo", -(-height // 2), -(-width // 2))
    box = (0, 0, width / 2, height / 2)
    expected = by_pillow(pixels, (64, 85), "bilinear", box)
    off = difference(Resampler("bilinear")(pixels, (64, 85), extent=(height / 2, width / 2)), expected)
    assert off.max() <= BOUND


def test_the_order_of_the_passes_is_pillows():
    """It shows in the rounding between them, most with negative weights, so noise tells the two orders apart."""
    rng = np.random.default_rng(8)
    told = {True: 0, False: 0}
    for _ in range(300):
        before, after = (tuple(int(side) for side in np.exp(rng.uniform(np.log(8), np.log(150), 2))) for _ in range(2))
        image = Image.fromarray(picture("noise", *before))
        at_once = image.resize(after[::-1], Image.Resampling.BICUBIC)
        halves = {True: (before[1], after[0]), False: (after[1], before[0])}
        equal = {
            down: image.resize(half, Image.Resampling.BICUBIC).resize(after[::-1], Image.Resampling.BICUBIC) == at_once
            for down, half in halves.items()
        }
        if equal[True] != equal[False]:
            assert equal[rows_first(before, after)], (before, after)
            told[rows_first(before, after)] += 1
    assert min(told.values()) > 50


def test_the_same_size_is_left_alone():
    pixels = picture("noise", 20, 30)
    np.testing.assert_array_equal(Resampler("bicubic")(pixels, (20, 30)), pixels)
    np.testing.assert_array_equal(Resampler("bicubic")(pixels, (20, 30), window=(3, 4, 5, 6)), pixels[3:8, 4:10])


def test_threads_share_one():
    resample = Resampler("bilinear")
    pictures = [picture("noise", 90 + seed, 110) for seed in range(6)]
    expected = [resample(pixels, (40, 50)) for pixels in pictures]
    wrong = []

    def work(number):
        wrong.extend(number for _ in range(30) if not np.array_equal(resample(pictures[number], (40, 50)), expected[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
