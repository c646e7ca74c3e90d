import numpy as np
import pytest

from headrace.errors import ArtifactError, InputError
from headrace.runtime.artifact.split.splitting import split_model
from headrace.runtime.export.opened import changed, opened
from tests.runtime.artifact.split.models import linear, package


def test_the_packages_own_answers(packaged_net):
    with opened(packaged_net, images=None, trusted=False, int8=False) as model:
        (given,) = model.session.run(model.reference.inputs)
        np.testing.assert_array_equal(given, model.reference.outputs[0])
        assert model.reference.noise[0] > 0
        assert changed(model.package.artifact, model.session) is None
        assert model.package.directory.is_dir()
    assert not model.package.directory.exists()


def test_images_that_are_not_there_are_said(packaged_net, tmp_path):
    with (
        pytest.raises(InputError, match="holds no images"),
        opened(packaged_net, images=tmp_path, trusted=False, int8=True),
    ):
        pass


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ArtifactError), opened(tmp_path, images=None, trusted=False, int8=False):
        pass


def test_a_split_model_has_no_other_form(tmp_path):
    split_model(package(tmp_path, linear(10)), tmp_path / "split", 2)
    with (
        pytest.raises(ArtifactError, match="split by class over 2 ranks, whose parts have no other form; name the whole model"),
        opened(tmp_path / "split" / "faces", images=None, trusted=False, int8=False),
    ):
        pass
