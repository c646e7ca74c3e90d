"""Which images a benchmark sends."""

import io

import pytest
from PIL import Image

from headrace.errors import BenchError
from headrace.serving.bench.images import ImageSet, choose_images, data_folder


def picture(path, color=(200, 10, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), color).save(path)
    return path


def image_folder(root, classes=("cat", "dog"), each=10):
    return [picture(root / name / f"{number:03d}.png") for name in classes for number in range(each)]


def choose(tmp_path, *, images=(), repository=None, limit=1000):
    model = tmp_path / "models" / "m"
    model.mkdir(parents=True, exist_ok=True)
    return choose_images(images, repository=repository, model=model, synthetic_into=tmp_path / "synthetic", limit=limit)


def test_held_out_images_of_the_repository_come_before_more_training_images(tmp_path):
    repository = tmp_path / "repository"
    image_folder(repository / "data" / "train", each=30)
    held_out = image_folder(repository / "data" / "val")
    chosen = choose(tmp_path, repository=repository)
    assert list(chosen.files) == held_out
    assert chosen.classes == ("cat",) * 10 + ("dog",) * 10
    assert "data/val" in chosen.source
    assert not chosen.synthetic


def test_without_a_held_out_split_the_largest_folder_counts(tmp_path):
    repository = tmp_path / "repository"
    flat = [picture(repository / "pictures" / f"{number}.jpg") for number in range(20)]
    image_folder(repository / "dataset", each=12)
    folder, files = data_folder(repository)
    assert folder == (repository / "dataset").resolve()
    assert len(files) == 24
    assert choose(tmp_path, repository=repository).classes == ("cat",) * 12 + ("dog",) * 12
    assert choose(tmp_path, images=[repository / "pictures"]).classes == (None,) * len(flat)


def test_illustrations_hidden_folders_environments_and_links_are_not_data(tmp_path):
    repository = tmp_path / "repository"
    image_folder(repository / "docs" / "test")
    image_folder(repository / ".git" / "val")
    image_folder(repository / "env" / "lib" / "test")
    (repository / "env" / "pyvenv.cfg").write_text("home = /usr\n")
    outside = image_folder(tmp_path / "elsewhere" / "test")
    (repository / "test").mkdir(parents=True)
    for number, path in enumerate(outside):
        (repository / "test" / f"{number}.png").symlink_to(path)
    picture(repository / "teaser.png")
    assert data_folder(repository) == (None, [])
    chosen = choose(tmp_path, repository=repository, limit=3)
    assert chosen.synthetic
    assert len(chosen.files) == 3
    assert "synthetic" in chosen.source
    with Image.open(io.BytesIO(chosen.files[0].read_bytes())) as photo:
        assert (photo.format, photo.size) == ("JPEG", (500, 375))


def test_a_sample_stored_with_the_model_comes_before_synthetic_photos(tmp_path):
    sample = picture(tmp_path / "models" / "m" / "1" / "sample.png")
    chosen = choose(tmp_path)
    assert chosen.files == (sample.resolve(),)
    assert not chosen.synthetic


def test_images_are_taken_evenly_over_all_classes(tmp_path):
    root = tmp_path / "many"
    image_folder(root, classes=tuple("abcde"), each=20)
    chosen = choose(tmp_path, images=[root], limit=10)
    assert chosen.classes == tuple("aabbccddee")
    assert chosen.source.startswith("10 of 100")


def test_images_given_by_name_are_taken_as_they_are(tmp_path):
    one, two = picture(tmp_path / "x" / "one.png"), picture(tmp_path / "y" / "two.weird.jpg")
    assert choose(tmp_path, images=[two, one]).files == (two.resolve(), one.resolve())


def test_wrong_names_and_empty_folders_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchError, match="no images in"):
        choose(tmp_path, images=[tmp_path / "empty"])
    with pytest.raises(BenchError, match="neither an image nor a folder"):
        choose(tmp_path, images=[tmp_path / "missing"])


def image_set(*classes):
    return ImageSet(files=(), classes=classes, source="")


def test_truth_follows_the_labels_or_the_order_of_an_image_folder():
    assert image_set("dog", "cat").truth(["cat", "cow", "dog"], 3) == (2, 0)
    assert image_set("dog", "cat").truth(None, 2) == (1, 0)
    assert image_set("dog", "cat").truth(None, 3) is None  # which two of the three?
    assert image_set("dog", "wolf").truth(["cat", "cow", "dog"], 3) is None
    assert image_set(None, None).truth(["cat"], 1) is None
