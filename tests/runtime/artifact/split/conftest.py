import pytest

from headrace.runtime.artifact.split.splitting import split_model
from tests.runtime.artifact.split.models import linear, package

CLASSES = 1001


@pytest.fixture(scope="session")
def thirds(once):
    """A model of 1001 classes as it is, and split over 3 ranks: two folders."""
    return once("split-thirds", made)


def made(tmp):
    whole = package(tmp, linear(CLASSES), classes=CLASSES)
    return whole, split_model(whole, tmp / "split", 3)[0]
