"""The model of a job, by itself."""

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.serving.offline.classifier import Classifier, identify, load
from headrace.serving.offline.config import ClassifyConfig
from headrace.serving.offline.sources import Image


@pytest.fixture
def configured(models, tmp_path):
    return lambda name="tiny", **more: ClassifyConfig(source="x", model=models / name, out=tmp_path, batch=4, threads=1, **more)


@pytest.fixture
def opened(configured):
    """opened("tiny", top_k=3) is a classifier, closed in the end."""
    made = []

    def open_one(name="tiny", **more):
        config = configured(name, **more)
        made.append(Classifier(load(config), config))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def test_a_row_that_the_model_fails_on_costs_itself_alone(opened):
    classifier = opened("fragile")
    rows = np.zeros((4, 3, 16, 16), np.float32)
    rows[2] = 1e6  # an index out of range
    scores = classifier.scores(rows)
    assert [isinstance(score, str) for score in scores] == [False, False, True, False]
    assert scores[2].startswith("the model failed")
    assert isinstance(classifier.scores(rows[2:3])[0], str)
    assert isinstance(classifier.scores(rows[:1])[0], np.ndarray)  # and the session is as good as before


def test_a_model_that_fails_on_what_it_could_compute_is_not_the_rows_fault(opened):
    broken = opened("fragile")
    broken._known = [np.full((1, 3, 16, 16), 1e6, np.float32)]  # as if all that it was given failed from now on
    rows = np.full((4, 3, 16, 16), 1e6, np.float32)
    for count in (1, 4):
        with pytest.raises(BackendError):
            broken.scores(rows[:count])
    assert isinstance(broken.scores(rows[:1] * 0)[0], np.ndarray), "its session was given back"


def test_images_that_cannot_be_decoded_have_no_row(opened, make_photo, reference):
    classifier = opened()
    images = [
        Image(0, "good", make_photo(1)),
        Image(1, "bad", b"no image"),
        Image(2, "unread", error="gone"),
        Image(3, "good", make_photo(2)),
    ]
    rows = classifier.decode(images)
    assert np.array_equal(rows, [reference(make_photo(1))[0], reference(make_photo(2))[0]])
    assert [bool(image.error) for image in images] == [False, True, True, False]
    assert images[2].error == "gone"
    assert [image.data for image in images] == [None] * 4


def test_a_decoder_that_fails_unforeseen_costs_its_own_image(opened, make_photo, monkeypatch):
    from headrace.serving.offline import classifier as module

    def decode(preprocessor, images, shape, out):
        raise MemoryError("not foreseen")

    classifier = opened()
    monkeypatch.setattr(module, "decode_rows", decode)
    images = [Image(0, "good", make_photo(1))]
    assert len(classifier.decode(images)) == 0
    assert images[0].error == "the image could not be decoded: MemoryError: not foreseen"


def test_the_fastest_batch_is_found(models, tmp_path):
    config = ClassifyConfig(source="x", model=models / "tiny", out=tmp_path, threads=1, instances=2)
    classifier = Classifier(load(config), config)
    assert classifier.batch in (1, 2, 4, 8)
    assert classifier.instances == 2
    classifier.close()


def test_a_model_that_was_packaged_again_is_another(repository):
    repository.package("one")
    config = ClassifyConfig(source="x", model=repository.path, out=repository.tmp)
    before = identify(load(config))
    assert identify(load(config)) == before
    repository.package("one", scale=2.0)
    assert identify(load(config)) != before
