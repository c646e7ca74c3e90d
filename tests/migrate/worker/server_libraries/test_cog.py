import pathlib

import pytest


def test_an_input_has_its_default_and_a_file_is_a_path(library):
    cog = library("cog")
    assert cog.Input(default=0.5, ge=0).default == 0.5
    assert cog.Input(description="an image", choices=["a", "b"]).default is ...
    assert isinstance(cog.Path("a.png"), pathlib.Path)
    assert cog.BasePredictor().setup() is None
    with pytest.raises(NotImplementedError):
        cog.BasePredictor().predict()
