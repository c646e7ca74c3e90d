"""OpenCV's resize without OpenCV: bit for bit what cv2 5.0.0 and 4.10.0 gave, and what cv2 gives where it is installed."""

import numpy as np
import pytest

from headrace.runtime.images.preprocessing import Preprocessor, opencv_resize
from headrace.specs import Preprocessing, Resize

IMAGE = (np.arange(5 * 7 * 3).reshape(5, 7, 3) * 73 % 251).astype(np.uint8)
SMALLER = [
    [[91, 70, 143], [192, 35, 87], [136, 198, 31], [80, 153, 194]],
    [[42, 115, 188], [237, 59, 132], [181, 223, 76], [125, 198, 20]],
    [[87, 160, 128], [41, 104, 177], [205, 48, 121], [170, 180, 65]],
]
LARGER = [
    [0, 146, 205, 180, 155, 130, 105, 80, 59],
    [12, 158, 216, 192, 167, 142, 117, 92, 71],
    [29, 164, 225, 208, 184, 159, 134, 109, 88],
    [45, 76, 154, 225, 200, 176, 151, 126, 104],
    [62, 41, 93, 181, 217, 192, 167, 143, 121],
    [79, 58, 40, 76, 234, 209, 184, 159, 138],
    [96, 75, 50, 49, 110, 195, 201, 176, 155],
    [108, 87, 62, 37, 12, 182, 213, 188, 167],
]
NEAREST = [[0, 219, 155, 91], [27, 246, 182, 118], [81, 49, 236, 172]]
AREA = [
    [[105, 70, 143], [193, 58, 88], [138, 183, 55], [84, 157, 186]],
    [[62, 113, 186], [179, 58, 131], [182, 154, 77], [127, 200, 50]],
    [[83, 156, 143], [57, 102, 175], [182, 61, 120], [170, 178, 65]],
]
WIDER_AREA = [
    [5, 162, 211, 188, 160, 133, 110, 87, 64],
    [38, 122, 186, 220, 193, 165, 142, 120, 97],
    [70, 47, 67, 124, 225, 198, 175, 152, 129],
    [102, 80, 57, 41, 57, 201, 207, 184, 162],
]


def test_recorded_values():
    assert opencv_resize(IMAGE, 3, 4, "area").tolist() == AREA
    assert opencv_resize(IMAGE[:, :, 0], 4, 9, "area").tolist() == WIDER_AREA
    assert opencv_resize(IMAGE[:3, :6, 0], 1, 2, "area").tolist() == [[134, 150]]
    assert opencv_resize(IMAGE, 3, 4, "bilinear").tolist() == SMALLER
    assert opencv_resize(IMAGE[:, :, 0], 8, 9, "bilinear").tolist() == LARGER
    assert opencv_resize(IMAGE[:, :, 0], 3, 4, "nearest").tolist() == NEAREST


def test_halving_is_a_mean_of_four():
    pixels = np.array([[0, 1], [2, 3]], np.uint8)
    assert opencv_resize(pixels, 1, 1, "bilinear").tolist() == [[2]]  # 1.5 rounds up


def test_the_same_size_changes_nothing():
    assert opencv_resize(IMAGE, 5, 7, "bilinear") is IMAGE


@pytest.mark.parametrize("times", [49, 98, 103, 107])
def test_areas_of_a_whole_ratio_whose_inverse_has_another_inverse(times):
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(times).integers(0, 256, (times, 64, 3), dtype=np.uint8)
    wanted = cv2.resize(image, (64, 1), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(opencv_resize(image, 1, 64, "area"), wanted)


def test_any_size_as_opencv_does():
    cv2 = pytest.importorskip("cv2")
    generator = np.random.default_rng()
    for turn in range(200):
        height, width, after, across = (int(side) for side in generator.integers(1, 150, 4))
        if turn % 5 == 0:
            height, width = 2 * after, 2 * across
        elif turn % 5 == 1:
            height, width = 3 * after, across
        elif turn % 5 == 2:  # smaller nowhere, larger somewhere
            after, across = min(after, height), max(across, width)
        elif turn % 5 == 3:
            after, across = min(after, height), min(across, width)
        image = generator.integers(0, 256, (height, width, 3) if turn % 2 else (height, width), dtype=np.uint8)
        for name, flag in (("bilinear", cv2.INTER_LINEAR), ("nearest", cv2.INTER_NEAREST), ("area", cv2.INTER_AREA)):
            wanted = cv2.resize(image, (across, after), interpolation=flag)
            made = opencv_resize(image, after, across, name)
            np.testing.assert_array_equal(made, wanted, f"{image.shape} to {(after, across)}, {name}")


CUBIC = [
    [[94, 71, 144], [188, 28, 84], [135, 202, 18], [75, 148, 213]],
    [[28, 118, 191], [254, 55, 131], [182, 229, 77], [122, 195, 17]],
    [[92, 165, 128], [25, 105, 178], [212, 32, 124], [169, 187, 64]],
]


def test_cubic_as_opencv_does():
    """Where a side keeps its size, or is tiny, OpenCV takes weights of 11 bits: one level at most."""
    cv2 = pytest.importorskip("cv2")
    assert opencv_resize(IMAGE, 3, 4, "bicubic").tolist() == CUBIC
    generator, apart = np.random.default_rng(), []
    for turn in range(60):
        height, width, after, across = (int(side) for side in generator.integers(1, 150, 4))
        image = generator.integers(0, 256, (height, width, 3) if turn % 2 else (height, width), dtype=np.uint8)
        wanted = cv2.resize(image, (across, after), interpolation=cv2.INTER_CUBIC).astype(int)
        levels = np.abs(opencv_resize(image, after, across, "bicubic") - wanted)
        assert levels.max() <= 1, (image.shape, after, across)
        if min(height, width) > 8 and after != height and across != width:
            apart.append((levels > 0).mean())
    assert np.mean(apart) < 1e-3


def test_a_preprocessing_states_it_and_reads_it_back():
    resize = Resize(size=(4, 6), interpolation="bilinear", antialias=False, library="opencv")
    made = Preprocessing(geometry=(resize,))
    assert Preprocessing.from_json(made.to_json()) == made
    assert "library" not in Preprocessing(geometry=(Resize(size=4),)).to_json()["steps"][1]
    assert Preprocessor(made.to_json()["steps"]).size == (4, 6)


@pytest.mark.parametrize("interpolation", ["hamming", "lanczos"])
def test_filters_that_opencv_computes_otherwise_are_refused(interpolation):
    with pytest.raises(ValueError, match="OpenCV"):
        Resize(size=4, interpolation=interpolation, antialias=False, library="opencv")
    step = {"op": "resize", "size": 4, "interpolation": interpolation, "library": "opencv"}
    steps = Preprocessing().to_json()["steps"]
    with pytest.raises(ValueError, match="opencv"):
        Preprocessor([steps[0], step, *steps[1:]])
