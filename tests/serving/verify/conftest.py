import pytest
import torch

from headrace.runtime.base import session
from tests.serving.verify.network import package


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """There are as many workers as cores, and more threads would wait for each other, spinning."""
    monkeypatch.setattr(session, "default_threads", lambda: 1)


@pytest.fixture(scope="module")
def fish(tmp_path_factory):
    """The models folder of a small classifier."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("fish")
    return package(folder / "models", folder)
