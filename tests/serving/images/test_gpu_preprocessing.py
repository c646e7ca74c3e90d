"""`--decoding gpu` with its GPU part on the CPU: what goes there, what does not, and that nobody pays for another's image."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from headrace.errors import BackendError, InputError
from headrace.runtime.base.session import visible_gpus
from headrace.runtime.images.gpu_images import GpuImages
from headrace.serving.config import ServeConfig
from headrace.serving.images import gpu_preprocessing
from headrace.serving.images.decode_pool import DecodePool, decode_rows
from headrace.serving.images.fast_preprocessing import make_preprocessor
from headrace.serving.images.gpu_preprocessing import GPU_BATCH, GpuPreprocessor, make_gpu_preprocessor
from headrace.specs import CenterCrop, Preprocessing, Resize

simplejpeg = pytest.importorskip("simplejpeg")

SIDE = 40
STEPS = Preprocessing(geometry=(Resize(size=48), CenterCrop(size=(SIDE, SIDE)))).to_json()["steps"]
UPRIGHT = Preprocessing(geometry=(Resize(size=48), CenterCrop(size=(SIDE, SIDE))), upright=True).to_json()["steps"]
SHAPE = (3, SIDE, SIDE)
BOUND = 3 / 255 * 1.001  # two levels of --decoding fast, one of the operator


def photo(seed, height=75, width=101):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, kind="JPEG", **options):
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def jpeg(seed, height=75, width=101, **options):
    return encoded(photo(seed, height, width), **{"quality": 88, **options})


def exif(orientation):
    made = Image.Exif()
    made[0x0112] = orientation
    return made.tobytes()


PIXELS = np.ascontiguousarray(np.asarray(photo(5)))
USUAL = {
    **{kind: jpeg(5, subsampling=kind) for kind in ("4:4:4", "4:2:2", "4:2:0")},
    "restart markers": jpeg(5, restart_marker_blocks=2),
    "optimized": jpeg(5, optimize=True),
    "a comment": jpeg(5, comment=b"of no interest" * 99),
    "tall": jpeg(6, 300, 60),
    "one pixel": jpeg(7, 1, 1),
    "lies on its side, and shall": jpeg(5, exif=exif(6)),
}
UNUSUAL = {
    "progressive": jpeg(5, progressive=True),
    "gray": encoded(photo(5).convert("L"), quality=88),
    "CMYK": encoded(photo(5).convert("CMYK"), quality=88),
    "stored as RGB": jpeg(5, keep_rgb=True),
    **{kind: simplejpeg.encode_jpeg(PIXELS, 90, "RGB", kind, False) for kind in ("440", "411")},
    "bytes after the end": jpeg(5) + b"trailing",
    "two pictures": encoded(photo(5), "MPO", save_all=True, append_images=[photo(6)]),
    **{kind: encoded(photo(5), kind) for kind in ("PNG", "WEBP", "BMP", "GIF")},
}
BROKEN = {
    "empty": b"",
    "no image": b"no image",
    "cut off": jpeg(5)[:-400],
    "cut off, ended": jpeg(5)[:300] + b"\xff\xd9",
    "an end without a beginning": b"\xff\xd9",
}


class Setup:
    def __init__(self, decoder, steps=STEPS, **options):
        self.decoder = decoder
        images = GpuImages(steps, device="cpu", decoder=decoder, pixels=options.get("pixels", False))
        self.gpu = GpuPreprocessor(steps, images, **options)
        self.fast = make_preprocessor(steps, **options)


@pytest.fixture
def setup(pillow_decoder):
    return Setup(pillow_decoder())


@pytest.mark.parametrize("name", USUAL)
def test_usual_files_go_to_the_gpu(setup, name):
    (row,) = setup.gpu.together([USUAL[name]])
    assert setup.decoder.batches == [1]
    assert np.abs(row - setup.fast(USUAL[name])).max() <= BOUND
    np.testing.assert_array_equal(decode_rows(setup.gpu, [USUAL[name]], SHAPE)[0], row)


@pytest.mark.parametrize("name", UNUSUAL)
def test_others_are_what_fast_decoding_makes_of_them(setup, name):
    np.testing.assert_array_equal(decode_rows(setup.gpu, [UNUSUAL[name]], SHAPE)[0], setup.fast(UNUSUAL[name]))
    assert setup.decoder.batches == []


def test_what_lies_on_its_side_and_shall_not_goes_the_other_way(pillow_decoder):
    setup = Setup(pillow_decoder(), UPRIGHT)
    data = USUAL["lies on its side, and shall"]
    np.testing.assert_array_equal(decode_rows(setup.gpu, [data], SHAPE)[0], setup.fast(data))
    assert setup.decoder.batches == []
    decode_rows(setup.gpu, [jpeg(5, exif=exif(1))], SHAPE)
    assert setup.decoder.batches == [1]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_end_as_they_do_otherwise(setup, name):
    with pytest.raises(InputError) as usual:
        decode_rows(setup.fast, [BROKEN[name]], SHAPE)
    with pytest.raises(InputError) as error:
        decode_rows(setup.gpu, [BROKEN[name]], SHAPE)
    assert str(error.value) == str(usual.value)


def test_a_request_with_a_broken_image_names_it(setup):
    with pytest.raises(InputError, match="image 1: "):
        decode_rows(setup.gpu, [USUAL["4:2:0"], BROKEN["cut off, ended"], USUAL["4:4:4"]], SHAPE)


def test_images_of_one_request_are_decoded_together(setup):
    images = [*USUAL.values(), *UNUSUAL.values()]
    found = decode_rows(setup.gpu, images, SHAPE)
    assert setup.decoder.batches == [len(USUAL)]
    for row, data in zip(found, images, strict=True):
        assert np.abs(row - setup.fast(data)).max() <= BOUND


def test_pixels_and_slots(pillow_decoder):
    setup = Setup(pillow_decoder(), pixels=True)
    slot = np.zeros((2, SIDE, SIDE, 3), np.uint8)
    assert decode_rows(setup.gpu, [USUAL["4:2:0"], UNUSUAL["PNG"]], (SIDE, SIDE, 3), slot) is slot
    assert np.abs(slot[0].astype(np.int16) - setup.fast(USUAL["4:2:0"])).max() <= 3
    np.testing.assert_array_equal(slot[1], setup.fast(UNUSUAL["PNG"]))


def test_a_model_of_another_size_says_so(setup):
    with pytest.raises(InputError, match="40x40 pixels after preprocessing; this model takes 32x32"):
        decode_rows(setup.gpu, [USUAL["4:2:0"]], (3, 32, 32))


def test_limits_are_checked_before_anything_is_decoded(pillow_decoder):
    setup = Setup(pillow_decoder(), max_pixels=5000)
    with pytest.raises(InputError, match="101x75 pixels; the limit here is 5,000"):
        decode_rows(setup.gpu, [USUAL["4:2:0"]], SHAPE)
    assert setup.decoder.batches == []


def test_threads_share_batches_and_a_broken_image_is_its_senders_alone(pillow_decoder):
    come, under_way = threading.Event(), []

    class Gated(pillow_decoder):
        def decode(self, images):
            under_way.append(len(images))
            assert come.wait(60)
            return super().decode(images)

    setup = Setup(Gated())
    images = [jpeg(number, 60 + number, 90) for number in range(100)]
    images[33] = BROKEN["cut off, ended"]
    pool = DecodePool(32, limit=200)
    waiting = [pool.submit(lambda data=data: decode_rows(setup.gpu, [data], SHAPE)) for data in images]
    end = time.monotonic() + 60
    while sum(under_way) + len(setup.gpu._gatherer._waiting) < 32:  # as many as there are threads
        assert time.monotonic() < end
        time.sleep(0.001)
    come.set()
    for number, (future, data) in enumerate(zip(waiting, images, strict=True)):
        if number == 33:
            assert isinstance(future.exception(30), InputError)
        else:
            assert np.abs(future.result(30)[0] - setup.fast(data)).max() <= BOUND
    pool.close()
    assert 2 < max(setup.decoder.batches) <= 32
    assert len([count for count in setup.decoder.batches if count > 1]) < 40


def test_a_batch_is_cut_where_its_pixels_are_too_many(setup, monkeypatch):
    monkeypatch.setattr(gpu_preprocessing, "_MOST_PIXELS", 3 * 75 * 101)
    images = [jpeg(number) for number in range(7)] + [jpeg(8, 400, 400)]
    found = decode_rows(setup.gpu, images, SHAPE)
    assert setup.decoder.batches == [3, 3, 1, 1]
    assert all(np.abs(row - setup.fast(data)).max() <= BOUND for row, data in zip(found, images, strict=True))


def test_more_images_than_a_batch(setup):
    decode_rows(setup.gpu, [USUAL["4:2:0"]] * (GPU_BATCH + 3), SHAPE)
    assert setup.decoder.batches == [GPU_BATCH, 3]


def test_where_the_gpu_fails_the_cpu_takes_over(pillow_decoder, caplog):
    class Lost(pillow_decoder):
        def decode(self, images):
            raise AssertionError("the device is lost")

    setup = Setup(Lost())
    np.testing.assert_array_equal(decode_rows(setup.gpu, [USUAL["4:2:0"]], SHAPE)[0], setup.fast(USUAL["4:2:0"]))
    assert "1 images could not be decoded on the GPU" in caplog.text


def test_called_with_one_image_it_is_the_other_way(setup):
    np.testing.assert_array_equal(setup.gpu(USUAL["4:2:0"]), setup.fast(USUAL["4:2:0"]))
    assert setup.decoder.batches == []


def test_two_callers_do_not_wait_for_each_others_rows(setup):
    """The rows that one has are not written again by the batch of another."""
    first = decode_rows(setup.gpu, [USUAL["4:2:0"]], SHAPE).copy()
    rows = setup.gpu.together([USUAL["4:2:0"]])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: setup.gpu.together([jpeg(n)]), range(20)))
    np.testing.assert_array_equal(rows, first)
    assert threading.active_count() < 50


def test_steps_that_the_gpu_does_not_have_stay_on_the_cpu(caplog):
    steps = Preprocessing(geometry=(Resize(size=48, interpolation="lanczos"), CenterCrop(size=(40, 40)))).to_json()["steps"]
    made = make_gpu_preprocessor(steps)
    assert not isinstance(made, GpuPreprocessor)
    np.testing.assert_array_equal(made(USUAL["4:2:0"]), make_preprocessor(steps)(USUAL["4:2:0"]))
    assert "the GPU does not resize as this model wants it (step 1 of the geometry, resize 48)" in caplog.text


def test_configuration(tmp_path):
    config = ServeConfig.of(models=tmp_path, decoding="gpu")
    assert (config.front_ends, config.images.decoders, config.decoding_gpu) == (0, 2 * GPU_BATCH, None)
    chosen = ServeConfig.of(models=tmp_path, decoding="gpu", decode_threads=5, devices=(2, 0), frontends=0)
    assert (chosen.images.decoders, chosen.decoding_gpu) == (5, 2)
    with pytest.raises(ValueError, match="--decoding gpu needs a single process; leave out --frontends"):
        ServeConfig.of(models=tmp_path, decoding="gpu", frontends=2)


@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has a GPU")
def test_without_a_gpu_the_server_does_not_start(warm_command, models):
    done = warm_command("serve", models, "--decoding", "gpu", "--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
    assert (done.returncode, done.stdout) == (2, "")
    assert "JPEGs cannot be decoded on a GPU here" in done.stderr
    assert "--decoding fast" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(BackendError, match="--decoding fast"):
        make_gpu_preprocessor(STEPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--frontends", 2], "needs a single process; leave out --frontends"),
        (["--ray"], "--decoding gpu does not go with --ray"),
    ],
)
def test_what_does_not_go_with_it_is_refused(warm_command, models, options, message):
    done = warm_command("serve", models, "--decoding", "gpu", *options)
    assert done.returncode == 2
    assert message in done.stderr
