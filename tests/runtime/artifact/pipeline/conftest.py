import pytest

from headrace.runtime.artifact.pipeline.splitting import cut_model
from tests.runtime.artifact.pipeline.models import deep, deep_package


@pytest.fixture(scope="session")
def thirds(once):
    """A deep model of two outputs as it is, and as a pipeline of 3 stages: two folders."""
    return once("pipeline-thirds", made)


def made(tmp):
    whole = deep_package(tmp, deep(embedding=True))
    return whole, cut_model(whole, tmp / "out", 3).path
