"""A migration in which nothing runs: what is remarked, without a sandbox."""

from dataclasses import replace

import pytest

from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.survey.survey import survey


@pytest.fixture
def migration_of(tmp_path):
    """A migration of a repository of these files, with these options."""

    def make(files=None, **options):
        root, scratch = tmp_path / "repository", tmp_path / "scratch"
        for folder in (root, scratch):
            folder.mkdir()
        for path, text in {"net.py": "import torch\n", **(files or {})}.items():
            (root / path).write_text(text)
        return Migration(scratch=scratch, surveyed=survey(root), options=Options(**options), stages=Stages(None))

    return make


@pytest.fixture
def resolved():
    """A model of which nothing is known but its recipe."""
    recipe = Recipe(root="/nowhere", script="evaluate.py", source="model = Net()\n", expression="model")
    return lambda **known: replace(Resolved(name="Net", recipe=recipe), **known)


@pytest.fixture
def remarks():
    """What a migration remarked: code and message."""
    return lambda migration: [(finding.code, finding.message) for finding in migration.findings]
