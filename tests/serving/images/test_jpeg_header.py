"""jpeg_header.py against Pillow: what it calls usual, Pillow opens as one picture of that size."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from headrace.runtime.images.preprocessing import FORMATS
from headrace.serving.images.jpeg_header import JpegHeader, usual_header

PIXELS = np.random.default_rng(3).integers(0, 256, (37, 50, 3), dtype=np.uint8)


def jpeg(pixels=PIXELS, **options):
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", **options)
    return data.getvalue()


def segment(kind, body):
    return b"\xff" + bytes([kind]) + struct.pack(">H", len(body) + 2) + body


def with_segment(kind, body, data=None):
    data = data or jpeg()
    return data[:2] + segment(kind, body) + data[2:]


def exif():
    made = Image.Exif()
    made[0x0112] = 6
    return made.tobytes()


USUAL = {
    "4:4:4": jpeg(subsampling=0),
    "4:2:2": jpeg(subsampling=1),
    "4:2:0": jpeg(subsampling=2),
    "gray": jpeg(PIXELS[:, :, 0]),
    "optimized": jpeg(optimize=True),
    "restarts": jpeg(restart_marker_blocks=1),
    "profile": jpeg(icc_profile=b"p" * 70_000),
    "comment": jpeg(comment=b"of no interest"),
    "Adobe": with_segment(0xEE, b"Adobe\0\x64\0\0\0\0\x01"),
    "stored as RGB": jpeg(keep_rgb=True),
    "EXIF, and a density": jpeg(exif=exif(), dpi=(72, 72)),
    "XMP": jpeg(xmp=b"<x:xmpmeta/>"),
}
UNUSUAL = {
    "nothing": b"",
    "two bytes": b"\xff\xd8",
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(60),
    "progressive": jpeg(progressive=True),
    "EXIF, and no density": jpeg(exif=exif()),
    "a header that is cut off": jpeg()[:300],
    "several pictures": with_segment(0xE2, b"MPF\0" + bytes(40)),
    "Photoshop's resources": with_segment(0xED, b"Photoshop 3.0\0" + b"8BIM"),
    "a short JFIF": with_segment(0xE0, b"JFIF\0"),
    "a short Adobe": with_segment(0xEE, b"Adobe"),
    "a profile's number missing": with_segment(0xE2, b"ICC_PROFILE\0"),
    "a table that is cut off": with_segment(0xDB, bytes(60)),
    "tables of 16 bits": with_segment(0xDB, b"\x10" + bytes(64)),
    "two frames": with_segment(0xC0, bytes([8, 0, 9, 0, 9, 1, 1, 0x11, 0])),
    "arithmetic coding": with_segment(0xCC, b"\0\0"),
    "a marker that is filled up": jpeg()[:2] + b"\xff" + jpeg()[2:],
    "a size of nothing": with_segment(0xFE, b"")[:4] + b"\0\0" + jpeg()[2:],
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_files_are_described(name):
    components = 1 if name == "gray" else 3
    assert usual_header(USUAL[name]) == JpegHeader(37, 50, components, name.startswith(("EXIF", "XMP")))


@pytest.mark.parametrize("name", UNUSUAL)
def test_the_others_are_left_to_pillow(name):
    assert usual_header(UNUSUAL[name]) is None


def test_a_scan_of_one_component_is_left_to_pillow():
    """There may be any number of those, and each passes over the whole image."""
    data = jpeg()
    at = data.index(b"\xff\xda")
    one = segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")
    assert usual_header(data[:at] + one + data[at + 14 :]) is None


@pytest.mark.parametrize("name", USUAL)
def test_pillow_opens_what_is_called_usual(name):
    """Of files with damaged headers, many of which are still called usual."""
    rng, usual = np.random.default_rng(5), 0
    reach = USUAL[name].index(b"\xff\xda") + 14
    for _ in range(400):
        broken = bytearray(USUAL[name])
        for at in rng.integers(0, min(reach, 900), rng.integers(1, 4)):
            broken[at] = rng.choice((0, 1, 2, 8, 0x11, 0x21, 0xFF, 0xC0, 0xDA, 0xE2, rng.integers(256)))
        header = usual_header(bytes(broken))
        if header is None:
            continue
        usual += 1
        image = Image.open(io.BytesIO(bytes(broken)), formats=FORMATS)
        assert type(image) is JpegImagePlugin.JpegImageFile
        assert (image.height, image.width) == header[:2]
        assert image.mode == ("L" if header.components == 1 else "RGB")
        assert "progressive" not in image.info
    assert usual > 40


def test_a_header_of_thousands_of_segments_is_not_usual():
    """Pillow's way says what is wrong with such a file."""
    jpeg = next(iter(USUAL.values()))
    assert usual_header(jpeg) is not None
    assert usual_header(jpeg[:2] + b"\xff\xfe\x00\x02" * 5_000 + jpeg[2:]) is None
