"""What a package computes of images, and which have no routes to keep."""

import io

import numpy as np
import pytest
from PIL import Image

from headrace.errors import ArtifactError
from headrace.migrate.worker.routes.package import PackagedModel


def color(*values):
    file = io.BytesIO()
    Image.new("RGB", (40, 30), values).save(file, "PNG")
    return file.getvalue()


def test_scores_are_those_of_the_images_however_many(package):
    model = PackagedModel(package())
    assert (model.classes, model.labels) == (3, ("red", "green", "blue"))
    scores = model.scores([color(255, 0, 0), color(0, 51, 0)] * 20)
    assert scores.shape == (40, 3)
    np.testing.assert_allclose(scores[:2], [[12, 0, 0], [0, 2.4, 0]], atol=1e-5)


def test_a_model_that_takes_tensors_or_has_several_outputs_has_none(package, tmp_path):
    with pytest.raises(ArtifactError, match="takes tensors, not images"):
        PackagedModel(package(preprocessing=False))


def test_nor_one_of_several_outputs(package):
    with pytest.raises(ArtifactError, match="one output"):
        PackagedModel(package(outputs=2))
