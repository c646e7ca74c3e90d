"""preprocessing.py against Pillow and numpy used the way people write transforms."""

import io
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from headrace.runtime.images import preprocessing
from headrace.runtime.images.preprocessing import ImageError, Preprocessor, image_to_row
from headrace.specs import INTERPOLATIONS, CenterCrop, Convert, Pad, Point, Preprocessing, Resize

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PILLOW = {name: getattr(Image.Resampling, name.upper()) for name in INTERPOLATIONS}


def photo(height, width, mode="RGB", seed=0):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encode(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def torchvision_v1(data, size, crop, interpolation, mode="RGB", mean=MEAN, std=STD):
    """Resize(size) -> CenterCrop(crop) -> ToTensor -> Normalize as torchvision's PIL functional code computes them."""
    image = Image.open(io.BytesIO(data)).convert(mode)
    width, height = image.size
    short, long = min(width, height), max(width, height)
    new_long = int(size * long / short)
    image = image.resize((size, new_long) if width <= height else (new_long, size), PILLOW[interpolation])
    width, height = image.size
    if crop > width or crop > height:
        left, top = max(0, (crop - width) // 2), max(0, (crop - height) // 2)
        padded = Image.new(mode, (max(width, crop), max(height, crop)))
        padded.paste(image, (left, top))
        image, (width, height) = padded, padded.size
    top, left = round((height - crop) / 2.0), round((width - crop) / 2.0)
    image = image.crop((left, top, left + crop, top + crop))
    pixels = np.array(image, np.float32).reshape(crop, crop, -1).transpose(2, 0, 1) / np.float32(255)
    return (pixels - np.array(mean, np.float32)[:, None, None]) / np.array(std, np.float32)[:, None, None]


@settings(max_examples=60)
@given(
    height=st.integers(3, 90),
    width=st.integers(3, 90),
    size=st.integers(2, 70),
    crop=st.integers(1, 80),
    interpolation=st.sampled_from(sorted(INTERPOLATIONS)),
    kind=st.sampled_from(["PNG", "JPEG", "BMP"]),
)
def test_short_side_resize_and_center_crop_are_torchvisions(height, width, size, crop, interpolation, kind):
    data = encode(photo(height, width, seed=height * 91 + width), kind)
    steps = Preprocessing(
        geometry=(Resize(size=size, interpolation=interpolation), CenterCrop(size=(crop, crop))), mean=MEAN, std=STD
    ).to_json()["steps"]
    row = image_to_row(data, steps)
    expected = torchvision_v1(data, size, crop, interpolation)
    assert row.dtype == np.float32
    assert row.flags.c_contiguous
    assert row.shape == (3, crop, crop)
    np.testing.assert_allclose(row, expected, atol=1e-6, rtol=0)
    # The same pixels exactly: undo the affine part, and compare as integers.
    as_pixels = [np.rint((x * np.array(STD)[:, None, None] + np.array(MEAN)[:, None, None]) * 255) for x in (row, expected)]
    np.testing.assert_array_equal(*as_pixels)


@settings(max_examples=200)
@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    size=st.one_of(st.integers(1, 600), st.tuples(st.integers(1, 600), st.integers(1, 600))),
    crop=st.tuples(st.integers(1, 600), st.integers(1, 600)),
    long_side=st.sampled_from(["floor", "round"]),
    offset=st.sampled_from(["floor", "round"]),
)
def test_sizes_agree_with_specs(height, width, size, crop, long_side, offset):
    resize, cut = Resize(size=size, long_side=long_side), CenterCrop(size=crop, offset=offset)
    _, resize_step, crop_step, *_ = Preprocessing(geometry=(resize, cut)).to_json()["steps"]
    assert preprocessing.resized(resize_step, (height, width)) == resize.output_size(height, width)
    left, top, right, bottom = preprocessing.crop_box(crop_step, height, width)
    assert (top, left) == cut.corner(height, width)
    assert (bottom - top, right - left) == crop


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "YCbCr"])
@pytest.mark.parametrize("target", ["RGB", "L"])
def test_every_mode_converts_as_pillow_does(mode, target):
    if mode == "I;16":
        pixels = np.random.default_rng(1).integers(0, 65536, (9, 7)).astype(np.uint16)
        data = encode(Image.fromarray(pixels))
    else:
        kind = "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"
        data = encode(photo(9, 7).convert("RGB").convert(mode), kind)
    count = 3 if target == "RGB" else 1
    spec = Preprocessing(mode=target, scale=1.0, mean=(0.0,) * count, std=(1.0,) * count, channels=target)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert(target), np.float32).reshape(9, 7, count).transpose(2, 0, 1)
    np.testing.assert_array_equal(image_to_row(data, spec.to_json()["steps"]), expected)


def test_palette_transparency_is_dropped_as_pillow_drops_it():
    image = photo(8, 8).quantize(16)
    data = encode(image, transparency=3)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(image_to_row(data, Preprocessing(scale=1.0).to_json()["steps"]), expected)


def test_bgr_takes_mean_and_std_in_channel_order_of_the_spec():
    """`mean` and `std` stand in RGB order in the spec's own words: applied per channel, then laid out as BGR."""
    data = encode(photo(6, 5))
    rgb = image_to_row(data, Preprocessing(mean=MEAN, std=STD).to_json()["steps"])
    bgr = image_to_row(data, Preprocessing(mean=MEAN, std=STD, channels="BGR").to_json()["steps"])
    np.testing.assert_array_equal(bgr, rgb[::-1])
    assert bgr.flags.c_contiguous


def test_means_in_pixel_units():
    data = encode(photo(11, 6))
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    row = image_to_row(data, Preprocessing(scale=1.0, mean=mean, std=std).to_json()["steps"])
    pixels = np.asarray(Image.open(io.BytesIO(data)), np.float64).transpose(2, 0, 1)
    np.testing.assert_allclose(row, (pixels - np.array(mean)[:, None, None]) / np.array(std)[:, None, None], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_animations_give_their_first_frame(kind):
    frames = [photo(12, 10, seed=seed) for seed in (1, 2, 3)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(image_to_row(data, Preprocessing(scale=1.0).to_json()["steps"]), expected)


def test_exif_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(photo(20, 30), "JPEG", exif=exif.tobytes())
    assert image_to_row(data, Preprocessing().to_json()["steps"]).shape == (3, 20, 30)


@pytest.mark.parametrize("orientation", [*range(1, 9), 0, 9])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_upright_is_exif_transpose(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(photo(20, 30), kind, exif=exif.tobytes())
    spec = Preprocessing(scale=1.0, upright=True)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"), np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(image_to_row(data, spec.to_json()["steps"]), expected)
    assert expected.shape == ((3, 30, 20) if 5 <= orientation <= 8 else (3, 20, 30))
    assert Preprocessing.from_json(spec.to_json()) == spec != Preprocessing(scale=1.0)


def test_limits_hold_for_the_image_as_it_will_stand():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(Image.new("RGB", (20, 5000)), "JPEG", exif=exif.tobytes())
    steps = Preprocessing(geometry=(Resize(size=(4000, 20)), CenterCrop(size=(10, 10))), upright=True).to_json()["steps"]
    assert image_to_row(data, steps).shape == (3, 10, 10)
    steps = Preprocessing(geometry=(Pad(size=(4000, 20)),), upright=True).to_json()["steps"]  # 4000x5000, not 4000x20
    with pytest.raises(ImageError, match="would have 5000x4000 pixels"):
        image_to_row(data, steps, max_pixels=1_000_000)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_end_as_in_pillow():
    for body in (b"II*\0\x08\0\0\0\x05", b"II*\0\xff\xff\xff\xff", b"XX*\0", b"", b"MM\0*\0\0\0\x08\0\1\x01\x12\0\2\0\0\0\1"):
        data = encode(photo(8, 9), "JPEG", exif=b"Exif\0\0" + body)
        try:
            expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))), np.float32).transpose(2, 0, 1)
        except Exception:  # noqa: BLE001 - whatever Pillow raises
            with pytest.raises(ImageError, match="EXIF"):
                image_to_row(data, Preprocessing(scale=1.0, upright=True).to_json()["steps"])
        else:
            np.testing.assert_array_equal(
                image_to_row(data, Preprocessing(scale=1.0, upright=True).to_json()["steps"]), expected
            )


def test_writes_into_a_slot_and_refuses_another_size():
    batch = np.full((3, 3, 8, 8), np.nan, np.float32)
    preprocessor = Preprocessor(Preprocessing().to_json()["steps"])
    data = encode(photo(8, 8))
    assert preprocessor(data, batch[1]) is not None
    assert np.isnan(batch[0]).all()
    assert np.isnan(batch[2]).all()
    np.testing.assert_array_equal(batch[1], preprocessor(data))
    with pytest.raises(ImageError, match="10x9 pixels after preprocessing; this model takes 8x8"):
        preprocessor(encode(photo(9, 10)), batch[0])


def test_size_is_known_when_the_steps_fix_it():
    def size(*geometry):
        return Preprocessor(Preprocessing(geometry=geometry).to_json()["steps"]).size

    assert size() is None
    assert size(Resize(size=5)) is None
    assert size(Resize(size=(4, 6))) == (4, 6)
    assert size(Resize(size=256), CenterCrop(size=(224, 192))) == (224, 192)
    assert size(CenterCrop(size=(10, 20)), Resize(size=5)) == (5, 10)


def png_header(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


def bomb(name):
    if name == "png":
        return png_header(20_000, 20_000)
    if name == "png-9000":
        return png_header(9_000, 9_000)
    if name == "bmp":
        return encode(Image.new("1", (1, 1)), "BMP")[:18] + struct.pack("<ii", 20_000, 20_000) + b"\1\0\1\0" + b"\0" * 100
    if name == "gif":
        return b"GIF89a" + struct.pack("<HH", 60_000, 60_000) + encode(photo(4, 4), "GIF")[10:]
    if name == "webp-lossless":
        bits = 16_382 | 16_382 << 14
        return (
            b"RIFF"
            + struct.pack("<I", 40)
            + b"WEBPVP8L"
            + struct.pack("<I", 20)
            + b"\x2f"
            + struct.pack("<I", bits)
            + b"\0" * 20
        )
    if name == "webp":
        frame = b"\x30\x01\0\x9d\x01\x2a" + struct.pack("<HH", 16_383, 16_383) + b"\0" * 20
        return b"RIFF" + struct.pack("<I", 4 + 8 + len(frame)) + b"WEBPVP8 " + struct.pack("<I", len(frame)) + frame
    side = (20_000 - 1).to_bytes(3, "little")
    body = b"\x02\0\0\0" + side + side
    return b"RIFF" + struct.pack("<I", 4 + 8 + len(body)) + b"WEBPVP8X" + struct.pack("<I", len(body)) + body + b"\0" * 8


@pytest.mark.parametrize("name", ["png", "png-9000", "bmp", "gif", "webp", "webp-lossless", "webp-extended"])
def test_too_many_pixels_are_refused_from_the_header(name):
    data = bomb(name)
    tracemalloc.start()
    began = time.thread_time()  # the processor's time, which other work on the machine does not lengthen
    with pytest.raises(ImageError, match=r"pixels"):
        image_to_row(data, Preprocessing().to_json()["steps"])
    seconds = time.thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.5
    assert peak < 5e6


def test_a_thin_image_may_not_grow_beyond_the_limit():
    data = encode(Image.new("RGB", (30_000, 1)))
    steps = Preprocessing(geometry=(Resize(size=256), CenterCrop(size=(224, 224)))).to_json()["steps"]
    with pytest.raises(ImageError, match="would have 7680000x256 pixels after resizing; the limit here is 50,000,000"):
        image_to_row(data, steps)


def test_the_limit_is_the_callers():
    steps = Preprocessing().to_json()["steps"]
    with pytest.raises(ImageError, match="has 100x100 pixels; the limit here is 9,999"):
        image_to_row(encode(photo(100, 100)), steps, max_pixels=9_999)
    assert image_to_row(encode(photo(100, 100)), steps, max_pixels=10_000).shape == (3, 100, 100)


def test_a_jpeg_of_endless_scans_is_refused():
    data = encode(photo(64, 64), "JPEG", progressive=True)
    with pytest.raises(ImageError, match="scans"):
        image_to_row(data[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" * 5000, Preprocessing().to_json()["steps"])


CHANNELS = {"RGB": {}, "L": {"channels": "L", "mean": (0.0,), "std": (1.0,)}}
JPEG, PNG, GIF = (encode(photo(64, 64), kind) for kind in ("JPEG", "PNG", "GIF"))
RLE = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 0, 0, 0, 1078, 40, 10, 10, 1, 8, 1, 0, 0, 0, 256, 0) + bytes(1024)


def _behind_the_palette(blocks: bytes) -> bytes:
    at = 13 + 3 * 2 ** ((GIF[10] & 7) + 1)
    return GIF[:at] + blocks + GIF[at:]


@pytest.mark.parametrize(
    "data",
    [
        JPEG[:2] + b"\xff\xfe\x00\x02" * 1_000_000 + JPEG[2:],
        JPEG[:2] + b"\xff\xe2\x00\x06MPF\0" * 100_000 + JPEG[2:],
        JPEG[:2] + b"\xff\xd0\xff\xf0" * 100_000 + JPEG[2:],
        JPEG[:2] + b"\xff" * 1_000_000 + JPEG[2:],
        JPEG[:2] + b"\xff" * 1_000_000,
        JPEG[:2] + bytes(1_000_000) + JPEG[2:],
        PNG[:33] + (b"\0\0\0\0abCd" + struct.pack(">I", zlib.crc32(b"abCd"))) * 200_000 + PNG[33:],
        _behind_the_palette(b"!\xfe\x01a\0" * 200_000),
        _behind_the_palette(b"!\xfe" + b"\x01a" * 200_000 + b"\0"),
        _behind_the_palette(b"x" * 200_000),
        RLE + b"\x01\x07" * 3_000_000,
        RLE + b"\x00\x02\x00\x00" * 1_500_000,
    ],
    ids=["comments", "mpf", "bare", "fill", "unended", "zeros", "chunks", "gif", "gif-comment", "gif-junk", "runs", "moves"],
)  # fmt: skip
def test_an_image_of_endless_parts_is_refused(data):
    """Each of these took Pillow tens of seconds where it filled 60 MiB, and a GIF minutes."""
    for mode in ("RGB", "L"):
        with pytest.raises(ImageError, match="too many parts"):
            image_to_row(data, Preprocessing(mode=mode, **CHANNELS[mode]).to_json()["steps"])


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    "data",
    [
        JPEG + np.random.default_rng(0).bytes(16 << 20) + b"\xff\xda" * 300,
        JPEG[:2] + b"\xff\xe5\xea\x62" + b"\xff\xda" * 30_000 + JPEG[2:],
        JPEG[:2] + b"\xff\xfe\xff\xff" + bytes(65_533) + JPEG[2:],
        PNG + b"\0\0\0\0" * 300_000,
        _behind_the_palette(b"!\xff\x0bXMP DataXMP" + (b"\xff" + b" " * 255) * 1_000 + b"\0"),
    ],
    ids=["a film behind it", "a segment of anything", "a long comment", "zeros behind it", "XMP"],
)
def test_what_is_beside_the_parts_of_an_image_costs_nothing(data, mode):
    """A phone appends films of many megabytes to its photos, in which any bytes may be."""
    steps = Preprocessing(mode=mode, **CHANNELS[mode]).to_json()["steps"]
    plain = next(image for image in (JPEG, PNG, GIF) if image[:3] == data[:3])
    np.testing.assert_array_equal(image_to_row(data, steps), image_to_row(plain, steps))


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "empty"), (b"hello, I am a text file", "not an image"), (b"\xff\xd8\xff", "image")]
)
def test_what_is_no_image_is_refused(data, message):
    with pytest.raises(ImageError, match=message):
        image_to_row(data, Preprocessing().to_json()["steps"])


def test_formats_outside_the_list_are_refused():
    for kind in ("TIFF", "PPM", "ICO"):
        with pytest.raises(ImageError, match="not an image of a format that is read here; JPEG, PNG, WebP, BMP and GIF"):
            image_to_row(encode(photo(16, 16), kind), Preprocessing().to_json()["steps"])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF"])
def test_truncated_files_are_refused_at_any_length(kind):
    data = encode(photo(40, 52), kind)
    steps = Preprocessing().to_json()["steps"]
    for length in range(0, len(data) * 3 // 4, max(1, len(data) // 60)):
        with pytest.raises(ImageError):
            image_to_row(data[:length], steps)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF"])
def test_damaged_bytes_never_raise_anything_else(kind):
    data = encode(photo(33, 21), kind)
    rng = np.random.default_rng(7)
    steps = Preprocessing(geometry=(Resize(size=(16, 16)),)).to_json()["steps"]
    for _ in range(300):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 6)):
            broken[at] = rng.integers(256)
        try:
            row = image_to_row(bytes(broken), steps, max_pixels=1_000_000)
        except ImageError:
            continue
        assert row.shape == (3, 16, 16)


def test_threads_share_one_preprocessor():
    preprocessor = Preprocessor(Preprocessing(geometry=(Resize(size=32),), mean=MEAN, std=STD).to_json()["steps"])
    images = [encode(photo(50, 50, seed=seed), "JPEG") for seed in range(8)]
    expected = [preprocessor(data) for data in images]
    wrong = []

    def work(index):
        wrong.extend(index for _ in range(20) if not np.array_equal(preprocessor(images[index]), expected[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [{"op": "decode", "mode": "RGB"}],
        [{"op": "decode", "mode": "RGB"}, {"op": "rotate", "size": 3}, *Preprocessing().to_json()["steps"][-3:]],
        [
            {"op": "decode", "mode": "RGB"},
            {"op": "resize", "size": 3, "interpolation": "x"},
            *Preprocessing().to_json()["steps"][-3:],
        ],
        [{"op": "decode", "mode": "L", "gray": "magick"}, *Preprocessing().to_json()["steps"][-3:]],
        [{"op": "decode", "mode": "RGB"}, {"op": "convert", "mode": "P"}, *Preprocessing().to_json()["steps"][-3:]],
        [{"op": "decode", "mode": "RGB"}, {"op": "point", "table": [0] * 255}, *Preprocessing().to_json()["steps"][-3:]],
    ],
)
def test_steps_it_does_not_know_are_refused(steps):
    with pytest.raises(ValueError, match="preprocessing"):
        Preprocessor(steps)


def test_the_source_stands_alone(tmp_path):
    """The decode model carries a copy: it must run without this package."""
    (tmp_path / "steps.py").write_text(Path(preprocessing.__file__).read_text())
    (tmp_path / "image.png").write_bytes(encode(photo(8, 8)))
    (tmp_path / "run.py").write_text(
        """
import sys
sys.modules["headrace"] = None
import steps
program = [{"op": "decode", "mode": "L"}, {"op": "scale", "factor": 1.0}, {"op": "normalize", "mean": [0.0], "std": [1.0]},
           {"op": "layout", "channels": "L", "order": "CHW"}]
print(steps.image_to_row(open("image.png", "rb").read(), program).shape)
"""
    )
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "(1, 8, 8)", done.stderr


PLACES = ["floor", "ceil", "round", "start", "symmetric"]


@settings(max_examples=300)
@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    size=st.integers(1, 600),
    side=st.sampled_from(["short", "long"]),
    rounding=st.sampled_from(["floor", "round", "ratio"]),
    canvas=st.one_of(st.none(), st.tuples(st.integers(1, 700), st.integers(1, 700))),
    place=st.sampled_from(PLACES),
)
def test_padded_sizes_agree_with_specs(height, width, size, side, rounding, canvas, place):
    resize = Resize(size=size, side=side, long_side=rounding)
    pad = Pad(size=canvas, place=place)
    made = Preprocessing(geometry=(resize, pad))
    assert Preprocessing.from_json(made.to_json()) == made
    processor = Preprocessor(made.to_json()["steps"])
    assert processor.size == made.row_size
    resize_step, pad_step = processor.geometry
    inner = resize.output_size(height, width)
    assert preprocessing.resized(resize_step, (height, width)) == inner
    outer = pad.output_size(*inner)
    assert preprocessing.resized(pad_step, inner) == outer
    assert preprocessing._corner(pad_step, *inner) == pad.corner(*inner)
    assert made.row_size in (None, outer)


def by_hand(pixels, pad):
    """The canvas as numpy fills it."""
    canvas = np.empty((*pad.output_size(*pixels.shape[:2]), *pixels.shape[2:]), np.uint8)
    canvas[...] = pad.fill if pixels.ndim == 3 else pad.fill[0]
    top, left = pad.corner(*pixels.shape[:2])
    canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return canvas


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("canvas", [None, (40, 61)])
@pytest.mark.parametrize(("height", "width"), [(37, 60), (60, 37), (1, 1), (40, 40), (3, 200), (201, 2)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_padding_lays_the_pixels_on_one_color(place, canvas, height, width, mode):
    image = photo(height, width, mode=mode)
    count = len(mode)
    pad = Pad(size=canvas, fill=(200, 3, 90)[:count], place=place)
    made = Preprocessing(mode=mode, channels=mode, geometry=(pad,), scale=1.0, mean=(0.0,) * count, std=(1.0,) * count)
    row = image_to_row(encode(image), made.to_json()["steps"])
    wanted = by_hand(np.array(image), pad)
    np.testing.assert_array_equal(row, wanted.reshape(*wanted.shape[:2], count).transpose(2, 0, 1))


@settings(max_examples=60)
@given(height=st.integers(2, 120), width=st.integers(2, 120), size=st.integers(8, 90))
def test_square_paddings_are_those_of_pillow(height, width, size):
    assume(round(size * min(height, width) / max(height, width)) >= 1)  # below, Pillow's canvas stays empty
    image = photo(height, width, seed=height * 131 + width)
    color = (12, 200, 77)
    raw = {"scale": 1.0, "mean": (0.0,) * 3, "std": (1.0,) * 3}
    padded = ImageOps.pad(image, (size, size), Image.Resampling.BICUBIC, color)
    resize = Resize(size=size, side="long", long_side="round", interpolation="bicubic")
    made = Preprocessing(geometry=(resize, Pad(size=(size, size), fill=color, place="round")), **raw)
    assert made.row_size == (size, size)
    np.testing.assert_array_equal(image_to_row(encode(image), made.to_json()["steps"]), np.array(padded).transpose(2, 0, 1))
    margins = [(max(height, width) - length) // 2 for length in (width, height)]
    expanded = ImageOps.expand(image, (*margins, *margins), color).resize((size, size), Image.Resampling.BILINEAR)
    made = Preprocessing(geometry=(Pad(fill=color, place="symmetric"), Resize(size=(size, size))), **raw)
    np.testing.assert_array_equal(image_to_row(encode(image), made.to_json()["steps"]), np.array(expanded).transpose(2, 0, 1))


def test_square_padding_fixes_the_size_of_a_short_side():
    def size(*geometry):
        return Preprocessing(geometry=geometry).row_size

    assert size(Pad(), Resize(size=64)) == (64, 64)
    assert size(Pad(place="symmetric"), Resize(size=64)) is None
    assert size(Resize(size=64, side="long"), Pad(size=(64, 70))) == (64, 70)
    assert size(Resize(size=64, side="long"), Pad(size=(60, 70))) is None
    assert size(Resize(size=64), Pad(size=(64, 64))) is None
    assert size(Pad()) is None
    assert size(Resize(size=(20, 31)), Pad()) == (31, 31)


def row_of(data, mode, *geometry):
    """The 8-bit values of a row, [H, W, C]."""
    row = [mode, *(step.mode for step in geometry if isinstance(step, Convert))][-1]
    numbers = {"scale": 1.0, "mean": (0.0,) * len(row), "std": (1.0,) * len(row)}
    made = Preprocessing(mode=mode, channels=row, geometry=geometry, **numbers)
    assert Preprocessing.from_json(made.to_json()) == made
    assert made.row_mode == row
    preprocessor = Preprocessor(made.to_json()["steps"])
    assert preprocessor.size == made.row_size
    return preprocessor(data).transpose(1, 2, 0).astype(np.uint8)


def test_colors_change_as_pillow_and_opencv_change_them():
    image = photo(45, 61)
    data = encode(image)
    small = image.resize((20, 30), PILLOW["bilinear"])
    inverted, resize = Point(table=tuple(range(255, -1, -1))), Resize(size=(30, 20))
    gray = np.asarray(small.convert("L"))
    assert np.array_equal(row_of(data, "RGB", resize, Convert(mode="L"))[:, :, 0], gray)
    three = row_of(data, "RGB", resize, Convert(mode="L"), Convert(mode="RGB"))
    assert np.array_equal(three, np.stack([gray] * 3, axis=-1))
    before = np.asarray(ImageOps.invert(image).resize((20, 30), PILLOW["bilinear"]))
    assert np.array_equal(row_of(data, "RGB", inverted, resize), before)
    assert np.array_equal(
        row_of(data, "L", resize, inverted)[:, :, 0], 255 - np.asarray(image.convert("L").resize((20, 30), 2))
    )
    pad = Pad(size=(50, 70), fill=(9,))
    assert row_of(data, "L", pad, Convert(mode="RGB")).shape == (50, 70, 3)
    assert (row_of(data, "L", pad, Convert(mode="RGB"))[0] == 9).all()
    tables = (*range(256), *range(255, -1, -1), *(value // 2 for value in range(256)))
    assert np.array_equal(row_of(data, "RGB", Point(table=tables)), np.asarray(image.point(list(tables))))


def test_gray_of_opencv_is_bit_exact():
    cv2 = pytest.importorskip("cv2")
    for height, width in ((1, 1), (7, 33), (64, 257)):
        pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
        made = row_of(encode(Image.fromarray(pixels)), "RGB", Convert(mode="L", library="opencv"))
        assert np.array_equal(made[:, :, 0], cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))
        made = row_of(encode(Image.fromarray(pixels)), "RGB", Convert(mode="L", library="opencv", order="BGR"))
        assert np.array_equal(made[:, :, 0], cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY))


@pytest.mark.parametrize("wrong", [{"mode": "L"}, {"mode": "RGB", "library": "opencv"}, {"library": "opencv", "order": "GBR"}])
def test_orders_that_there_are_not_are_refused(wrong):
    with pytest.raises(ValueError, match="convert"):
        Convert(**{"mode": "L", "order": "BGR", **wrong})


def saved(kind, mode, **options):
    rng = np.random.default_rng(3)
    noise = Image.fromarray(rng.integers(0, 256, (31, 45, 4), dtype=np.uint8), "RGBA")
    return encode(noise.convert(mode if mode in ("RGBA", "LA") else "RGB").convert(mode), kind, **options)


@pytest.mark.parametrize(
    "data",
    [
        *(saved("PNG", mode) for mode in ("RGB", "RGBA", "P", "L", "LA", "1")),
        *(saved("BMP", mode) for mode in ("RGB", "P", "L")),
        *(saved("WEBP", mode, lossless=True) for mode in ("RGB", "RGBA")),
        *(saved("JPEG", "RGB", **options) for options in ({}, {"subsampling": 0}, {"progressive": True}, {"quality": 30})),
        saved("JPEG", "L"),
    ],
)
def test_gray_as_opencv_reads_it(data):
    cv2 = pytest.importorskip("cv2")
    made = Preprocessing(mode="L", channels="L", gray="opencv", scale=1.0, mean=(0.0,), std=(1.0,))
    assert Preprocessing.from_json(made.to_json()) == made
    row = Preprocessor(made.to_json()["steps"])(data)
    assert np.array_equal(row[0], cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE))


@pytest.mark.parametrize(("mode", "gray"), [("RGB", "pillow"), ("L", "pillow"), ("L", "opencv")])
def test_sixteen_bits_as_opencv_reads_them(mode, gray):
    cv2 = pytest.importorskip("cv2")
    deep = np.random.default_rng(4).integers(0, 65536, (31, 45), dtype=np.uint16)
    count = len(mode)
    made = Preprocessing(
        mode=mode, channels=mode, gray=gray, deep="high-byte", scale=1.0, mean=(0.0,) * count, std=(1.0,) * count
    )
    assert Preprocessing.from_json(made.to_json()) == made
    data = encode(Image.fromarray(deep), "PNG")
    wanted = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    row = Preprocessor(made.to_json()["steps"])(data)
    assert all(np.array_equal(channel, wanted) for channel in row)
    as_pillow = Preprocessor(replace(made, deep="clip").to_json()["steps"])(data)
    assert np.array_equal(as_pillow[0], Image.fromarray(deep).convert("L"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deep": "low"}, "deep must be"),
        ({"gray": "opencv"}, "cannot be gray"),
        ({"gray": "magick", "mode": "L", "channels": "L", "mean": (0.0,), "std": (1.0,)}, "cannot be gray"),
        ({"geometry": (Convert(mode="L"),)}, "does not fit mode 'L'"),
        ({"geometry": (Convert(mode="L"), Pad(fill=(0, 0, 0)), Convert(mode="RGB"))}, "1 values of pad's fill"),
        ({"geometry": (Convert(mode="L"), Point(table=(0,) * 768), Convert(mode="RGB"))}, "table of 256"),
        ({"mode": "L", "channels": "L"}, "1 means"),
    ],
)
def test_steps_for_other_channels_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)


@pytest.mark.parametrize("table", [(0,) * 255, (0,) * 512, (*[0] * 255, 256), (*[0] * 255, -1), (*[0] * 255, 0.5)])
def test_tables_that_are_none_are_refused(table):
    with pytest.raises(ValueError, match="point"):
        Point(table=table)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fill": (0,)}, "3 values"),
        ({"fill": (0, 0, 256)}, "8-bit"),
        ({"size": (0, 4)}, "positive"),
        ({"place": "end"}, "place"),
    ],
)
def test_wrong_paddings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(geometry=(Pad(**wrong),))


def test_a_padding_beyond_the_limit_is_refused_before_it_is_made():
    steps = Preprocessing(geometry=(Pad(),)).to_json()["steps"]
    with pytest.raises(ImageError, match="limit"):
        image_to_row(encode(photo(2, 3000)), steps, max_pixels=100_000)
