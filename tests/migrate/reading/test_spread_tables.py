"""Tables of arguments that lie in one file and are spread into calls of another."""

import pytest

from headrace.migrate.reading.edits import Positions, apply_edits
from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.reading.spread_tables import tables_with, without_entry

CALLEE = "torch.optim.lr_scheduler."
TABLE = "S = {'factor': 0.5, 'verbose': True}\n"
USE = "import torch\nfrom torch.optim.lr_scheduler import ReduceLROnPlateau as R\n"


def taken_out(files: dict[str, str]) -> str:
    """What becomes of config.py."""
    module = Repository([parse_source(path, text.encode()) for path, text in files.items()]).modules["config.py"]
    positions = Positions(files["config.py"])
    edits = [edit for table, key in tables_with(module, "verbose", CALLEE) for edit in without_entry(positions, table, key)]
    return apply_edits(files["config.py"], edits)


@pytest.mark.parametrize(
    "use",
    [
        "import config as conf\nR(o, **conf.S)\n",
        "import config\nR(o, 'min', **config.S)\nprint(config.S['factor'])\n",
        "from config import S\nR(o, **S)\n",
        "from config import S as HOW\nR(o, **HOW)\n",
    ],
)
def test_an_entry_is_taken_out_of_a_table_that_another_file_spreads(use):
    assert taken_out({"config.py": TABLE, "main.py": USE + use}) == "S = {'factor': 0.5}\n"


@pytest.mark.parametrize(
    "use",
    [
        "import config\nprint(config.S)\nR(o, **config.S)\n",
        "import config\nprint(config.S['verbose'])\nR(o, **config.S)\n",
        "import config\nlogger(**config.S)\nR(o, **config.S)\n",
        "import config\n",
        "S = {}\nR(o, **S)\n",
    ],
)
def test_a_table_that_something_else_reads_stays(use):
    assert taken_out({"config.py": TABLE, "main.py": USE + use}) == TABLE


@pytest.mark.parametrize(
    ("table", "left"),
    [
        ("{'verbose': True}", "{}"),
        ("{'verbose': True,}", "{}"),
        ("{\n  'verbose': True,\n  'a': 1,\n}", "{\n  'a': 1,\n}"),
        ("{\n  'a': 1,\n  'verbose': True,\n}", "{\n  'a': 1,\n}"),
        ("{'a': 1, 'verbose': True, 'b': 2}", "{'a': 1, 'b': 2}"),
        ("{**other, 'verbose': True}", "{**other}"),
    ],
)
def test_the_comma_goes_with_the_entry(table, left):
    text = f"{USE}S = {table}\nR(o, **S)\n"
    assert taken_out({"config.py": text}) == f"{USE}S = {left}\nR(o, **S)\n"
