"""Files as the rules see them."""

import pytest

from headrace.migrate.reading.edits import Positions, apply_edits
from headrace.migrate.rewriting.rule import Context
from headrace.migrate.survey.survey import project_index, survey


@pytest.fixture
def context_of(tmp_path):
    """`context_of(text, **files)`: a script under the rules, beside other files."""

    def context(text, **files):
        for name, content in {"script": text, **files}.items():
            (tmp_path / f"{name}.py").write_text(content)
        surveyed = survey(tmp_path)
        index = project_index(surveyed)
        module = index.repository.modules["script.py"]
        sites = tuple(site for site in index.sites if site.module is module)
        return Context(module, surveyed, index, Positions(module.file.text), sites)

    return context


@pytest.fixture
def edited():
    """The text of a file after edits."""
    return lambda context, edits: apply_edits(context.module.file.text, edits)
