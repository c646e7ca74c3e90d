"""Whether a file may mean something of its own by the name of a builtin."""

import pytest

from headrace.migrate.reading.names import is_bound
from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source

MAIN = "from models import *\nfor i in xrange(3):\n    pass\n"


@pytest.mark.parametrize(
    ("models", "bound"),
    [
        ("import torch\nfrom net import *\n", False),
        ("from main import *\n", False),  # of each other
        ("from six.moves import xrange\n", True),
        ("from six.moves import *\n", True),  # outside of the repository
        ("try:\n    xrange\nexcept NameError:\n    xrange = range\n", True),
        ("def xrange(n):\n    return range(n)\n", True),
        ("from net import *\nfrom compat import *\n", True),
    ],
)
def test_a_builtin_may_come_from_a_file_of_which_everything_is_imported(models, bound):
    files = {"main.py": MAIN, "models.py": models, "net.py": "def net():\n    pass\n", "compat.py": "xrange = range\n"}
    repository = Repository([parse_source(path, text.encode()) for path, text in files.items()])
    assert is_bound(repository.modules["main.py"], "xrange") == bound
