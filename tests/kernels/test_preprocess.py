"""Preprocessing of ragged batches, against torch's antialiased resize in float64 and against Pillow."""

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.errors import KernelError
from headrace.kernels.preprocess import preprocess, preprocess_reference
from headrace.runtime.images.preprocessing import crop_box, resized

SIZES = [(7, 5), (1, 4), (9, 12)]
PLAIN = ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
# The weights are float32, and a coordinate of some tens has an error of some millionths, times a step of 1 between pixels.
TOLERANCE = 1e-4


def ragged(sizes, device, *, gap=0, seed=0):
    """Random images in one buffer, `gap` bytes apart."""
    random = np.random.default_rng(seed)
    images = [random.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes]
    parts, offsets, place = [], [], 0
    for image in images:
        parts += [np.zeros(gap, np.uint8), image.reshape(-1)]
        offsets.append(place + gap)
        place += gap + image.size
    flat = torch.from_numpy(np.concatenate([*parts, np.zeros(0, np.uint8)]))
    numbers = (offsets, [size[0] for size in sizes], [size[1] for size in sizes])
    return images, (flat.to(device), *(torch.tensor(item, dtype=torch.int64, device=device) for item in numbers))


@pytest.mark.parametrize(
    ("resize", "crop", "interpolation"),
    [
        ([6], [5, 4], "bilinear"),
        pytest.param([6], [5, 4], "bicubic", marks=pytest.mark.slow),  # above and below
        ([11, 7], [8, 9], "bicubic"),  # up, and wider than the image
        ([4, 5], [4, 5], "bilinear"),
        ([], [8, 8], "bilinear"),
    ],
)
def test_agrees_with_float64(resize, crop, interpolation, device):
    _, batch = ragged(SIZES, device, gap=3)
    got = preprocess(*batch, resize, crop, interpolation, False, *PLAIN, torch.float32)
    wanted = preprocess_reference(*batch, resize, crop, interpolation, False, *PLAIN, torch.float64)
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=TOLERANCE)
    assert got.shape == (len(SIZES), 3, *crop)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("interpolation", "most"), [("bilinear", 1), ("bicubic", 12)])
@pytest.mark.parametrize(("resize", "crop"), [(5, (4, 5)), (14, (9, 11))])
def test_whole_levels_are_those_of_pillow(resize, crop, interpolation, most, device):
    """Pillow rounds after each of its two passes and this once, at the end: noise differs by one level here and there.

    Bicubic goes below 0 and above 255 in noise, which Pillow cuts off between its passes too.
    """
    images, batch = ragged([(8, 11)], device, seed=3)
    got = preprocess(*batch, [resize], list(crop), interpolation, True, *PLAIN, torch.float32).mul(255)
    torch.testing.assert_close(got, got.round(), rtol=0, atol=1e-4)
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    for row, image in zip(got.round().permute(0, 2, 3, 1).cpu().numpy(), images, strict=True):
        height, width = resized({"op": "resize", "size": resize}, image.shape[:2])
        smaller = Image.fromarray(image).resize((width, height), filters[interpolation])
        wanted = np.asarray(smaller.crop(crop_box({"size": crop}, height, width)), np.float32)
        assert np.abs(row - wanted).max() <= most
        assert np.abs(row - wanted).mean() <= 0.6


def test_normalizes_each_channel_and_casts(device):
    _, batch = ragged([(6, 6), (9, 5)], device)
    pixels = preprocess(*batch, [], [4, 4], "bilinear", True, *PLAIN, torch.float32)
    mean, std = (torch.tensor(item, device=device).reshape(3, 1, 1) for item in IMAGENET)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)):
        got = preprocess(*batch, [], [4, 4], "bilinear", True, *IMAGENET, dtype)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), (pixels - mean) / std, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("side", [4, 6, 8, 10])
def test_crops_where_torchvision_does(side, device):
    """Half to even where it cuts, the smaller half of zeros in front where it pads."""
    (image,), batch = ragged([(side, side + 1)], device)
    got = preprocess(*batch, [], [7, 6], "bilinear", True, *PLAIN, torch.float32).mul(255).round()
    box = crop_box({"size": (7, 6)}, side, side + 1)
    wanted = np.asarray(Image.fromarray(image).crop(box))
    np.testing.assert_array_equal(got[0].permute(1, 2, 0).cpu().numpy(), wanted)


def test_what_is_no_image_is_nan_and_harms_no_other(device):
    _, (pixels, offsets, heights, widths) = ragged([(4, 4)] * 9, device)
    heights[1], widths[2], heights[3], offsets[4] = 0, 0, -4, -1
    heights[5] = 4 * 9  # beyond the buffer
    heights[6], widths[6] = 2**31, 2**33  # whose product of bytes has no 64 bits
    offsets[7] = len(pixels)
    got = preprocess(pixels, offsets, heights, widths, [3], [3, 3], "bilinear", False, *PLAIN, torch.float32)
    spoilt = got.isnan().flatten(1)
    assert spoilt.all(1).tolist() == [False, True, True, True, True, True, True, True, False]
    assert not spoilt[[0, 8]].any()


def test_batches_of_none(device):
    nothing = torch.zeros(0, dtype=torch.int64, device=device)
    pixels = torch.zeros(0, dtype=torch.uint8, device=device)
    got = preprocess(pixels, nothing, nothing, nothing, [3], [3, 3], "bilinear", False, *PLAIN, torch.float32)
    assert got.shape == (0, 3, 3, 3)


def test_more_than_one_tile(device):
    _, batch = ragged([(6, 10)], device)
    got = preprocess(*batch, [11, 37], [9, 33], "bilinear", False, *IMAGENET, torch.float32)
    wanted = preprocess_reference(*batch, [11, 37], [9, 33], "bilinear", False, *IMAGENET, torch.float64)
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=5 * TOLERANCE)


def test_what_does_not_fit_is_refused():
    _, batch = ragged([(4, 4)], "cpu")
    with pytest.raises(KernelError, match="bilinear or bicubic, not 'nearest'"):
        preprocess(*batch, [3], [3, 3], "nearest", False, *PLAIN, torch.float32)
    with pytest.raises(KernelError, match=r"a crop is \[height, width\]"):
        preprocess(*batch, [3], [3], "bilinear", False, *PLAIN, torch.float32)
    with pytest.raises(KernelError, match="heights as int64"):
        preprocess(batch[0], batch[1], batch[2].int(), batch[3], [3], [3, 3], "bilinear", False, *PLAIN, torch.float32)
    with pytest.raises(KernelError, match="uint8"):
        preprocess(batch[0].float(), *batch[1:], [3], [3, 3], "bilinear", False, *PLAIN, torch.float32)
    with pytest.raises(KernelError, match="gives floats"):
        preprocess(*batch, [3], [3, 3], "bilinear", False, *PLAIN, torch.uint8)
