"""Which imports a slice keeps."""

import ast

import pytest

from headrace.migrate.reading.scopes import Repository, bound_names
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.import_slicer import ImportSlicer
from headrace.migrate.slicing.liveness import LiveNames

OWN = "import os\n\n\ndef make():\n    pass\n\n\ndef _hidden():\n    pass\n"


@pytest.mark.parametrize(
    ("source", "live", "kept"),
    [
        ("import torch, numpy as np", {("np", None)}, "import numpy as np"),
        ("import torch", {("x", None)}, None),
        ("from own import make as m, other", {("m", None)}, "from own import make as m"),
        ("from own import *", {("make", None)}, "from own import *"),
        ("from own import *", {("missing", None)}, None),
        ("from unknown import *", {("missing", None)}, "from unknown import *"),
        ("import own", set(), "import own"),  # nobody reads it: it was made for what it does
        ("import torch.optim\nimport torch", {("torch", "nn")}, None),
        ("import torch.optim\nimport torch", {("torch", "optim")}, "import torch.optim"),
        ("from own import make", {("globals", None)}, "from own import make"),
        ("from __future__ import annotations", set(), "from __future__ import annotations"),
    ],
)
def test_imports(source, live, kept):
    module = Repository([parse_source("main.py", source.encode()), parse_source("own.py", OWN.encode())]).modules["main.py"]
    bound = set().union(*map(bound_names, module.tree.body))
    names = LiveNames(live)
    result = ImportSlicer(module, bound, top_level=True, wrapped=False).statement(module.tree.body[0], names)
    assert (ast.unparse(result) if result is not None else None) == kept


def test_a_star_becomes_names_inside_a_function():
    module = Repository([parse_source("main.py", b"from own import *"), parse_source("own.py", OWN.encode())]).modules[
        "main.py"
    ]
    slicer = ImportSlicer(module, set(), top_level=True, wrapped=True)
    assert ast.unparse(slicer.statement(module.tree.body[0], LiveNames({("make", None)}))) == "from own import make"


def test_what_globals_may_mean():
    text = "import torch\n\nclass Net(torch.nn.Module): pass\n\nclass Other: pass\n\ndef net():\n    return Net()\n"
    module = Repository([parse_source("main.py", text.encode())]).modules["main.py"]
    slicer = ImportSlicer(module, set(), top_level=True, wrapped=False)
    found = [item.name for item in module.tree.body[1:] if slicer.may_be_looked_up(item, LiveNames({("globals", None)}))]
    assert found == ["Net", "net"]
