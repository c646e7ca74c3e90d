"""Repositories of a few files, surveyed."""

import textwrap

import pytest

from headrace.migrate.survey.survey import survey


@pytest.fixture
def repository(tmp_path):
    def make(packages=(), **files):
        for name in packages:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("from .net import *\n")
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return survey(tmp_path)

    return make
