import pytest
import torch

from tests.serving.verify.network import package


@pytest.fixture(scope="module")
def fish(tmp_path_factory):
    """The models folder of a small classifier."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("fish")
    return package(folder / "models", folder)
