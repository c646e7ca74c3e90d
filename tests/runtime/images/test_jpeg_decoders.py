"""What all decoders have in common, with Pillow as the library, and with the libraries' own CPU decoders where they are."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.errors import BackendError
from headrace.runtime.images import jpeg_decoders
from headrace.runtime.images.jpeg_decoders import LIBRARIES, open_decoder, open_library


def jpeg(seed, height=40, width=56):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(data, "JPEG", quality=90)
    return data.getvalue()


def by_pillow(data):
    return np.asarray(Image.open(io.BytesIO(data))).astype(np.int16)


def far_apart(found, data):
    return np.abs(found.cpu().numpy().astype(np.int16) - by_pillow(data))


def test_images_of_any_size_are_decoded_in_their_order(decoder):
    files = [jpeg(1), jpeg(2, 17, 90), jpeg(3, 1, 1)]
    for data, image in zip(files, decoder(files), strict=True):
        assert (image.dtype, image.device.type) == (torch.uint8, "cpu")
        assert far_apart(image, data).max() <= 1


@pytest.mark.parametrize("broken", [b"", b"no image", jpeg(4)[:300]])
def test_a_broken_file_harms_no_other(decoder, broken):
    files = [jpeg(1), broken, jpeg(2), broken]
    found = decoder(files)
    assert [image is None for image in found] == [False, True, False, True]
    assert far_apart(found[0], files[0]).max() <= 1
    assert far_apart(found[2], files[2]).max() <= 1
    assert decoder([broken]) == [None]
    assert decoder([]) == []


def test_a_library_that_leaves_out_what_it_cannot_read(pillow_decoder):
    class LeavesOut(pillow_decoder):
        def decode(self, images):
            return super().decode([data for data in images if data])

    files = [jpeg(1), b"", jpeg(2)]
    first, second, third = LeavesOut()(files)
    assert second is None
    assert far_apart(first, files[0]).max() == far_apart(third, files[2]).max() == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_the_remedy_is_named():
    with pytest.raises(BackendError, match=r"no usable CUDA device.*--decoding fast"):
        open_decoder()


def test_what_is_missing_comes_with_the_line_that_brings_it(monkeypatch):
    for name in ("nvidia", "torchvision", "torchvision.io"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendError, match=r"nvImageCodec: .*; torchvision: .*pip install 'nvidia-nvimgcodec-cu\d+\[nvjpeg\]'"):
        open_decoder.__wrapped__("cpu")


def test_the_first_library_that_works_is_taken(monkeypatch, pillow_decoder):
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.setattr(jpeg_decoders, "LIBRARIES", {"nvImageCodec": LIBRARIES["nvImageCodec"], "another": pillow_decoder})
    assert isinstance(open_decoder.__wrapped__("cpu"), pillow_decoder)


def test_a_library_whose_pixels_are_wrong_is_refused(monkeypatch, pillow_decoder):
    class Swaps(pillow_decoder):
        def decode(self, images):
            return [image.flip(2) for image in super().decode(images)]

    class Fails(pillow_decoder):
        def decode(self, images):
            return [None for _ in images]

    monkeypatch.setitem(LIBRARIES, "swaps", Swaps)
    monkeypatch.setitem(LIBRARIES, "fails", Fails)
    with pytest.raises(BackendError, match="swaps decodes a trial image to other pixels than Pillow"):
        open_library("swaps", "cpu")
    with pytest.raises(BackendError, match="fails does not decode a trial image"):
        open_library("fails", "cpu")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize("name", list(LIBRARIES))
def test_on_a_gpu(name):
    try:
        decoder = open_library(name)
    except BackendError as error:
        pytest.skip(str(error))
    files = [jpeg(number, 200 + number, 300) for number in range(20)]
    files[7] = b"no image"
    for turn in range(3):
        found = decoder(files)
        assert [number for number, image in enumerate(found) if image is None] == [7]
        assert all(far_apart(image, files[n]).mean() < 3 for n, image in enumerate(found) if image is not None), turn
    (alone,) = decoder(files[:1])
    assert alone.device.type == "cuda"
