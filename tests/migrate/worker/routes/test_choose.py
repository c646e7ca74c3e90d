"""Images that tell answers apart: of all classes that can be had, surely and unsurely."""

import json

import numpy as np

from headrace.migrate.worker.routes import choose
from headrace.migrate.worker.routes.package import PackagedModel


def test_images_of_every_class_are_chosen_sure_ones_and_unsure_ones(package):
    model = PackagedModel(package())
    scores = model.scores(choose.chosen(model, 24))
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert sorted(set(scores.argmax(1).tolist())) == [0, 1, 2]
    assert shares.max(1).min() < 0.5
    assert shares.max(1).max() > 0.9


def test_they_are_written_with_their_names(package, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "request.json").write_text(json.dumps({"package": str(package()), "count": 10, "out": str(out)}))
    assert choose.main([str(tmp_path / "request.json")]) == 0
    told = json.loads((out / "chosen.json").read_text())
    assert told == {"images": [f"photo-{number}.jpg" for number in range(10)], "classes": 3}
    assert all((out / name).read_bytes().startswith(b"\xff\xd8") for name in told["images"])


def test_a_package_without_routes_says_why(package, tmp_path):
    (tmp_path / "request.json").write_text(json.dumps({"package": str(package(outputs=2)), "count": 10, "out": str(tmp_path)}))
    assert choose.main([str(tmp_path / "request.json")]) == 0
    assert "one output" in json.loads((tmp_path / "chosen.json").read_text())["why"]


def test_rows_are_taken_from_each_class_in_turn():
    scores = np.array([[5, 0], [1, 0], [3, 0], [0, 2.0]])
    assert choose.spread(scores, 3) == [3, 1, 0]
    assert sorted(choose.spread(scores, 9)) == [0, 1, 2, 3]


def test_the_same_pictures_are_made_again():
    one, other = (list(choose.made(8, seed=0)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert len({picture.shape for picture in one}) == 8


def test_nothing_is_mixed_of_one_class():
    pictures = list(choose.made(3, seed=0))
    assert list(choose.mixed(pictures, np.array([[1.0, 0]] * 3), 5)) == []
