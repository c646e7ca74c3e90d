"""Answers equal the server's, whatever the model's outputs are."""

import json
import urllib.request

import pytest

from headrace.errors import UnsupportedError
from headrace.serving.predict.config import PredictConfig
from headrace.serving.predict.images import Named, named_images
from headrace.serving.predict.predict import predict


@pytest.fixture
def photos(tmp_path, make_photo):
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(9):
        (root / f"{number}.jpg").write_bytes(make_photo(number, size=(40 + number, 30), kind="JPEG"))
    (root / "broken.png").write_bytes(b"\x89PNG\r\n no more")
    (root / "empty.png").write_bytes(b"")
    return root


def answered(folder, images, **options):
    rows = []
    errors = predict(folder, images, PredictConfig(threads=1, **options), rows.append)
    assert errors == sum(row.error is not None for row in rows)
    return [row.to_json() for row in rows]


@pytest.mark.parametrize(
    ("name", "route"), [("single", "classify"), ("several", "classify"), ("heads", "classify"), ("vector", "embed")]
)
def test_answers_are_the_servers(tasks, photos, launch, name, route):
    rows = answered(tasks / name, named_images([str(photos)]))
    assert [row["image"] for row in rows] == sorted(str(path) for path in photos.iterdir())
    good = [row for row in rows if "error" not in row]
    assert len(good) == 9
    with launch(tasks, model_control_mode="explicit", load_models=(name,)) as server:
        for row in good:
            with open(row.pop("image"), "rb") as file:
                request = urllib.request.Request(f"{server.url}/v1/{route}/{name}", data=file.read())
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert row == json.load(answer)
    assert len({json.dumps(row) for row in good}) == 9  # the images are told apart


def test_what_cannot_be_read_is_a_row_that_says_why(tasks, photos):
    names = [Named(name=str(photos / name)) for name in ("broken.png", "0.jpg", "missing.jpg", "empty.png")]
    broken, good, missing, empty = answered(tasks / "single", [*names])
    assert "cannot be decoded" in broken["error"] or "not an image" in broken["error"], broken
    assert good["predictions"][0]["label"] in ("red", "green", "blue")
    assert missing["error"] == "the file cannot be read: No such file or directory"
    assert empty["error"] == "it is empty"


def test_limits_hold(tasks, photos):
    (row,) = answered(tasks / "single", [Named(name=str(photos / "0.jpg"))], max_image_bytes=10)
    assert "more than 10 bytes" in row["error"]
    (row,) = answered(tasks / "single", [Named(name=str(photos / "0.jpg"))], max_pixels=10)
    assert "pixels" in row["error"]


def test_many_images_come_in_their_order(tasks, photos):
    names = [str(photos / f"{number % 9}.jpg") for number in range(300)]
    rows = answered(tasks / "single", [Named(name=name) for name in names], top_k=1)
    assert [row["image"] for row in rows] == names
    first = [row["predictions"] for row in rows[:9]]
    assert all(len(best) == 1 for best in first)
    for number, row in enumerate(rows):
        (best,), (again,) = first[number % 9], row["predictions"]
        assert best["index"] == again["index"]
        assert abs(best["probability"] - again["probability"]) < 1e-6


@pytest.mark.parametrize(("name", "says"), [("tensors", "how an image becomes its input"), ("raw", "gives no class scores")])
def test_a_model_that_answers_no_images_is_refused(tasks, photos, name, says):
    with pytest.raises(UnsupportedError, match=says):
        answered(tasks / name, named_images([str(photos)]))
