import pytest

from tests.migrate.worker.routes.colors import write_colors


@pytest.fixture
def package(tmp_path):
    """The folder of a package: package(preprocessing=False, outputs=2)."""
    return lambda **changed: write_colors(tmp_path / "packaged", **changed)
