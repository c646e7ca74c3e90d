"""fast_preprocessing.py against the exact path: JPEG files of every kind that this machine can write, and damaged ones."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from headrace.runtime.images.preprocessing import ImageError, Preprocessor
from headrace.serving.config import ServeConfig
from headrace.serving.images import fast_preprocessing
from headrace.serving.images.fast_preprocessing import FastPreprocessor, make_preprocessor
from headrace.specs import CenterCrop, Convert, Pad, Point, Preprocessing, Resize

simplejpeg = pytest.importorskip("simplejpeg")
resample = pytest.importorskip("headrace.serving.images.resample", exc_type=ImportError)
BOUND = resample.BOUND

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GEOMETRIES = {
    "torchvision": (Resize(size=48), CenterCrop(size=(40, 40))),
    "bicubic": (Resize(size=(40, 52), interpolation="bicubic"),),
    "lanczos": (Resize(size=36, interpolation="lanczos"), CenterCrop(size=(36, 30), offset="floor")),
    "nearest": (Resize(size=48, interpolation="nearest", antialias=False), CenterCrop(size=(40, 40))),
    "opencv": (Resize(size=(40, 40), library="opencv", antialias=False),),
    "long side, padded": (Resize(size=48, side="long"), Pad(size=(48, 48), fill=(9, 8, 7))),
    "crop reaches out": (Resize(size=30), CenterCrop(size=(40, 40))),
    "crop first": (CenterCrop(size=(50, 50)), Resize(size=40)),
    "twice": (Resize(size=60), CenterCrop(size=(56, 56)), Resize(size=32, interpolation="bicubic")),
    "nothing": (),
    "gray after": (Resize(size=48), CenterCrop(size=(40, 40)), Convert(mode="L")),
    "gray in three": (Resize(size=(40, 40)), Convert(mode="L", library="opencv"), Convert(mode="RGB")),
    "gray before": (Convert(mode="L"), Resize(size=(40, 40))),
    "inverted": (Point(table=tuple(range(255, -1, -1))), Resize(size=(40, 40)), Point(table=tuple(range(255, -1, -1)))),
    "threshold": (Resize(size=(40, 40)), Point(table=(0,) * 128 + (255,) * 128)),
    "threshold before": (Point(table=(0,) * 128 + (255,) * 128), Resize(size=(40, 40))),
}


def photo(height, width, mode="RGB", seed=0):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def jpeg(image, **options):
    data = io.BytesIO()
    image.save(data, "JPEG", **{"quality": 88, **options})
    return data.getvalue()


def exif(orientation):
    made = Image.Exif()
    made[0x0112] = orientation
    return made.tobytes()


def multi_picture():
    data = io.BytesIO()
    photo(60, 80).save(data, "MPO", save_all=True, append_images=[photo(60, 80, seed=2)])
    return data.getvalue()


def marker(data, kind, body):
    """The file with one more segment before all others."""
    return data[:2] + b"\xff" + bytes([kind]) + struct.pack(">H", len(body) + 2) + body + data[2:]


def corpus():
    """name -> bytes. What is usual comes first; the rest are oddities that must end up the same way as by Pillow."""
    image = photo(75, 101)
    pixels = np.ascontiguousarray(np.asarray(image))
    files = {f"{kind}": jpeg(image, subsampling=kind) for kind in ("4:4:4", "4:2:2", "4:2:0")}
    files |= {kind: simplejpeg.encode_jpeg(pixels, 90, "RGB", kind, False) for kind in ("440", "411")}
    files |= {f"quality {quality}": jpeg(image, quality=quality) for quality in (1, 30, 100)}
    files |= {
        "progressive": jpeg(image, progressive=True),
        "optimized": jpeg(image, optimize=True),
        "restart markers": jpeg(image, restart_marker_blocks=2),
        "restart rows": jpeg(image, restart_marker_rows=1),
        "gray": jpeg(image.convert("L")),
        "CMYK": jpeg(image.convert("CMYK")),
        "stored as RGB": jpeg(image, keep_rgb=True),
        "comment": jpeg(image, comment=b"of no interest" * 99),
        "profile": jpeg(image, icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()),
        "two pictures": multi_picture(),
        "bytes after the end": jpeg(image) + b"\xff\xd8 trailing",
        "an unknown application's segment": marker(jpeg(image), 0xED, b"Photoshop 3.0\0" + b"\0" * 300),
        "Adobe says YCbCr": marker(jpeg(image), 0xEE, b"Adobe\0\x64\0\0\0\0\x01"),
        "Adobe says RGB": marker(jpeg(image), 0xEE, b"Adobe\0\x64\0\0\0\0\x00"),
        "without JFIF": jpeg(image)[:2] + jpeg(image)[20:],
    }
    files |= {f"orientation {value}": jpeg(image, exif=exif(value)) for value in range(1, 9)}
    # Photoshop and others say it in XMP; Pillow reads that where EXIF says nothing.
    files |= {f"XMP orientation {value}": jpeg(image, xmp=b'<x tiff:Orientation="%d"/>' % value) for value in range(1, 9)}
    for height, width in ((1, 1), (1, 50), (50, 1), (2, 3), (7, 8), (9, 17), (640, 20), (20, 640), (33, 900)):
        files[f"{height}x{width}"] = jpeg(photo(height, width))
    return files


CORPUS = corpus()


def steps_of(geometry=GEOMETRIES["torchvision"], mode="RGB"):
    row = [mode, *(step.mode for step in geometry if isinstance(step, Convert))][-1]
    numbers = {"mean": MEAN[: len(row)], "std": STD[: len(row)]}
    return Preprocessing(mode=mode, channels=row, geometry=geometry, **numbers).to_json()["steps"]


def pair(steps, **options):
    return Preprocessor(steps, **options), make_preprocessor(steps, **options)


def outcome(processor, data):
    try:
        return processor.decode(data)
    except ImageError as error:
        return str(error)


def same(exact, fast, bound):
    """Equal messages, or pixels within the bound."""
    if isinstance(exact, str) or isinstance(fast, str):
        assert exact == fast
        return
    assert exact.shape == fast.shape
    assert np.abs(exact.astype(np.int16) - fast.astype(np.int16)).max(initial=0) <= bound


def test_the_fast_path_is_in_use_here():
    assert isinstance(make_preprocessor(steps_of()), FastPreprocessor)
    assert not isinstance(make_preprocessor(steps_of(), decoding="exact"), FastPreprocessor)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_corpus_is_as_the_exact_path_has_it(geometry):
    exactly = ("nearest", "opencv", "nothing", "crop first", "gray before", "inverted", "threshold", "threshold before")
    bound = 0 if geometry in exactly else BOUND
    exact, fast = pair(steps_of(GEOMETRIES[geometry]))
    for name, data in CORPUS.items():
        try:
            same(outcome(exact, data), outcome(fast, data), bound)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("gray", [{}, {"gray": "opencv"}])
def test_the_corpus_as_gray(gray):
    first, *steps = steps_of(mode="L")
    exact, fast = pair([first | gray, *steps])
    for data in CORPUS.values():
        same(outcome(exact, data), outcome(fast, data), BOUND)


def test_a_luma_is_decoded_by_libjpeg_turbo(monkeypatch):
    first, *steps = steps_of(geometry=(), mode="L")
    exact, fast = pair([first | {"gray": "opencv"}, *steps])
    wanted = exact.decode(CORPUS["4:2:0"])
    monkeypatch.setattr(FastPreprocessor, "load", None)
    assert np.array_equal(fast.decode(CORPUS["4:2:0"]), wanted)


@pytest.mark.parametrize("name", ["4:4:4", "4:2:2", "4:2:0", "gray", "orientation 6", "restart markers", "stored as RGB"])
def test_usual_files_are_decoded_by_libjpeg_turbo(name, monkeypatch):
    """Otherwise the tests above would compare the exact path with itself."""
    _, fast = pair(steps_of())
    monkeypatch.setattr(FastPreprocessor, "load", lambda *_: pytest.fail("went the exact way"))
    assert fast.decode(CORPUS[name]).shape == (40, 40, 3)


@pytest.mark.parametrize("name", ["progressive", "CMYK", "440", "411"])
def test_unusual_files_are_decoded_by_pillow(name):
    exact, fast = pair(steps_of())
    np.testing.assert_array_equal(fast.decode(CORPUS[name]), exact.decode(CORPUS[name]))


@pytest.mark.parametrize(("width", "exactly"), [(2, True), (4, False)])
def test_very_tall_images_are_resized_by_pillow(width, exactly, monkeypatch):
    """Its order of rows and columns is another for these, in some versions: up to 56 of 255, where Lanczos overshoots."""
    noise = np.random.default_rng(0).integers(0, 2, (301, width, 3), dtype=np.uint8) * 255
    steps = steps_of((Resize(size=(90, 26), interpolation="lanczos"),))
    data = jpeg(Image.fromarray(noise), subsampling=0, quality=100)
    exact, fast = pair(steps)
    same(exact.decode(data), fast.decode(data), 0 if exactly else BOUND)
    monkeypatch.setattr(FastPreprocessor, "_turbo", lambda *_: pytest.fail("went the fast way"))
    if exactly:
        fast.decode(data)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "GIF"])
def test_other_formats_are_exact(kind):
    data = io.BytesIO()
    photo(75, 101).save(data, kind)
    exact, fast = pair(steps_of())
    np.testing.assert_array_equal(fast(data.getvalue()), exact(data.getvalue()))


def test_orientation_is_not_applied():
    _, fast = pair(steps_of(()))
    turned = jpeg(photo(20, 30), exif=exif(6))
    assert fast(turned).shape == (3, 20, 30)
    np.testing.assert_array_equal(fast(turned), fast(jpeg(photo(20, 30))))


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("where", ["orientation", "XMP orientation"])
def test_orientation_is_applied_where_the_transform_did(where, value):
    exact, fast = pair(Preprocessing(geometry=GEOMETRIES["torchvision"], upright=True).to_json()["steps"])
    data = CORPUS[f"{where} {value}"]
    same(exact.decode(data), fast.decode(data), BOUND)
    turned = fast.decode(data).astype(np.int16) - fast.decode(CORPUS["orientation 1"])
    assert (np.abs(turned).max() > 20) == (value != 1)


@pytest.mark.parametrize("name", ["4:2:0", "gray", "restart markers", "orientation 6"])
def test_truncated_at_any_length(name):
    exact, fast = pair(steps_of())
    data = CORPUS[name]
    for length in range(0, len(data), max(1, len(data) // 150)):
        same(outcome(exact, data[:length]), outcome(fast, data[:length]), BOUND)
    for cut in range(1, 30):
        same(outcome(exact, data[:-cut]), outcome(fast, data[:-cut]), BOUND)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", ["4:4:4", "4:2:0", "gray", "restart markers", "CMYK", "two pictures"])
def test_damaged_bytes_end_the_same_way(name):
    exact, fast = pair(steps_of((Resize(size=(16, 16)),)), max_pixels=1_000_000)
    data, rng = CORPUS[name], np.random.default_rng(11)
    for number in range(250):
        broken = bytearray(data)
        reach = len(data) if number % 2 else min(len(data), 700)  # every other time in the headers
        for at in rng.integers(0, reach, rng.integers(1, 4)):
            broken[at] = rng.integers(256)
        same(outcome(exact, bytes(broken)), outcome(fast, bytes(broken)), BOUND)


def test_limits_are_checked_before_decoding(monkeypatch):
    make_preprocessor(steps_of())  # what finds out whether the libraries are usable decodes
    monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda *_, **__: pytest.fail("decoded"))
    wide = jpeg(photo(100, 100))
    at = wide.index(b"\xff\xc0") + 5
    bomb = wide[:at] + struct.pack(">HH", 9_000, 9_000) + wide[at + 4 :]
    with pytest.raises(ImageError, match="9000x9000 pixels; the limit here is 50,000,000"):
        make_preprocessor(steps_of())(bomb)
    with pytest.raises(ImageError, match="pixels after resizing"):
        make_preprocessor(steps_of((Resize(size=256),)))(jpeg(Image.new("RGB", (60_000, 1))))


@pytest.mark.parametrize(("name", "opened"), [("4:2:0", False), ("gray", False), ("profile", False), ("orientation 3", True)])
def test_a_usual_header_is_not_read_by_pillow(name, opened, monkeypatch):
    """Pillow takes a tenth of the time of decoding for it, with the interpreter held."""
    steps = Preprocessing(geometry=GEOMETRIES["torchvision"], upright=True, mean=MEAN, std=STD).to_json()["steps"]
    exact, fast = pair(steps)
    wanted, calls = exact.decode(CORPUS[name]), []
    monkeypatch.setattr(FastPreprocessor, "open", lambda self, data: calls.append(name) or Preprocessor.open(self, data))
    same(wanted, fast.decode(CORPUS[name]), BOUND)
    assert bool(calls) == opened


def test_rows_and_pixels_into_a_slot():
    data = CORPUS["4:2:0"]
    exact, fast = pair(steps_of())
    slot = np.empty((3, 40, 40), np.float32)
    assert fast(data, slot) is slot
    step = 1 / 255 / min(STD)  # one level of a pixel
    np.testing.assert_allclose(slot, exact(data), atol=BOUND * step * 1.001, rtol=0)
    exact, fast = pair(steps_of(), pixels=True)
    same(exact(data), fast(data), BOUND)
    with pytest.raises(ImageError, match="this model takes 32x32"):
        fast(data, np.empty((32, 32, 3), np.uint8))


@pytest.mark.parametrize(
    ("size", "decoded"),
    [
        ((191, 300), (191, 300)),  # 191 < 2 * 2 * 48: not at all
        ((192, 300), (96, 150)),
        ((383, 500), (192, 250)),
        ((400, 500), (100, 125)),
        ((401, 499), (101, 125)),
        ((801, 803), (101, 101)),
        ((3001, 2003), (376, 251)),
    ],
)
def test_scaled_decoding_keeps_twice_what_is_needed(size, decoded, monkeypatch):
    original, shapes = simplejpeg.decode_jpeg, []

    def watched(*arguments, **options):
        pixels = original(*arguments, **options)
        shapes.append(pixels.shape[:2])
        return pixels

    exact, scaled = Preprocessor(steps_of()), make_preprocessor(steps_of(), decoding="scaled")
    monkeypatch.setattr(simplejpeg, "decode_jpeg", watched)
    data = jpeg(photo(*size), subsampling="4:2:0")
    off = np.abs(exact.decode(data).astype(np.int16) - scaled.decode(data).astype(np.int16))
    assert shapes == [decoded]
    if size == decoded:
        assert off.max() <= BOUND
    else:
        assert off.mean() < 1.5
        assert off.max() <= 16


@pytest.mark.parametrize("geometry", ["crop first", "nearest", "opencv", "nothing"])
def test_nothing_is_scaled_that_is_not_resized_first(geometry):
    data = jpeg(photo(800, 900))
    steps = steps_of(GEOMETRIES[geometry])
    scaled, fast = make_preprocessor(steps, decoding="scaled"), make_preprocessor(steps)
    np.testing.assert_array_equal(scaled.decode(data), fast.decode(data))


def test_exact_where_a_library_is_missing_or_disagrees(monkeypatch, caplog):
    def usable_with(change):
        with monkeypatch.context() as changed:
            change(changed)
            return fast_preprocessing._usable.__wrapped__()

    assert usable_with(lambda _: None)
    assert not usable_with(lambda changed: changed.setitem(__import__("sys").modules, "simplejpeg", None))
    original = simplejpeg.decode_jpeg
    assert not usable_with(lambda changed: changed.setattr(simplejpeg, "decode_jpeg", lambda data: original(data) ^ 1))
    assert "different pixels" in caplog.text


def test_a_decoding_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match="decoding must be one of exact, fast, scaled, got 'quick'"):
        make_preprocessor(steps_of(), decoding="quick")
    with pytest.raises(ValueError, match="decoding must be one of exact, fast, scaled, gpu, got 'quick'"):
        ServeConfig.of(models=tmp_path, decoding="quick")


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "scale"), [(53, 4), (80, 2), (106, 2)])
def test_scaled_decoding_of_sharp_photos(interpolation, size, scale):
    from sklearn.datasets import load_sample_images

    steps = steps_of((Resize(size=size, interpolation=interpolation), CenterCrop(size=(size * 7 // 8, size * 7 // 8))))
    exact, scaled = Preprocessor(steps), make_preprocessor(steps, decoding="scaled")
    for pixels in load_sample_images().images:
        for subsampling in ("4:4:4", "4:2:0"):
            data = jpeg(Image.fromarray(pixels), quality=90, subsampling=subsampling)
            with Image.open(io.BytesIO(data)) as image:
                assert scaled._scale((image.height, image.width)) == scale
            off = np.abs(exact.decode(data).astype(np.int16) - scaled.decode(data).astype(np.int16))
            assert off.mean() < 1.1
            assert off.max() <= 12
            assert np.count_nonzero(off > 5) < 0.015 * off.size
