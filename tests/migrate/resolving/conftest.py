"""Repositories of a few files, surveyed."""

import pytest

from tests.migrate.repositories import surveyed


@pytest.fixture
def repository(tmp_path):
    def make(packages=(), **files):
        for name in packages:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("from .net import *\n")
        return surveyed(tmp_path, **files)

    return make
