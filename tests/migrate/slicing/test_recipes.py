"""Where a script is run."""

import json

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import read_source
from headrace.migrate.slicing.recipes import working_folder


def folder_of(root, name, lines):
    (root / "src").mkdir()
    (root / "src" / "data.py").write_text("x = 1\n")
    place = root / name
    place.parent.mkdir(exist_ok=True)
    cell = {"cell_type": "code", "source": lines, "metadata": {}, "outputs": [], "execution_count": None}
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    place.write_text(json.dumps(content) if name.endswith(".ipynb") else lines)
    repository = Repository([read_source(root, path) for path in (name, "src/data.py")])
    return working_folder(repository.modules[name], repository)


IMPORT = "from src.data import x\n"


@pytest.mark.parametrize(
    ("name", "lines", "folder"),
    [
        ("tools/train.py", IMPORT, "."),
        ("tools/train.py", "import sys\nsys.path.append('..')\n" + IMPORT, "."),
        ("tools/train.py", "import json\n", "tools"),
        ("train.py", IMPORT, "."),
        ("notebooks/look.ipynb", "import sys\nsys.path.append(str(Path.cwd().parent))\n" + IMPORT, "notebooks"),
        ("notebooks/look.ipynb", "import os\nos.chdir('..')\n" + IMPORT, "notebooks"),
        ("notebooks/look.ipynb", IMPORT, "."),
    ],
)
def test_where_people_stand(tmp_path, name, lines, folder):
    assert folder_of(tmp_path, name, lines) == folder
