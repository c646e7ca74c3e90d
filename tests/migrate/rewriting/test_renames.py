"""Renames: through aliases, in every form of import, and never what only has the same name."""

import ast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import survey

HEAD = "import torch\n"


def repaired(tmp_path, source, code, **options):
    (tmp_path / "a.py").write_text(HEAD + source)
    changes = rewrite(survey(tmp_path), select=[code], **options)
    return changes[0].after.decode().removeprefix(HEAD) if changes else source


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        ("PS116", "import numpy as xp\nx = xp.int(xp.float(1))\n", "import numpy as xp\nx = int(float(1))\n"),
        ("PS116", "from numpy import float, zeros\nx = float(1)\n", "float = float\nfrom numpy import zeros\nx = float(1)\n"),
        ("PS108", "from timm.models import layers\nx = layers.DropPath\n", "from timm import layers\nx = layers.DropPath\n"),
        ("PS108", "from timm.models.layers import *\n", "from timm.layers import *\n"),
        (
            "PS108",
            "if 1:\n\tfrom timm.models.layers import DropPath  # é\n",
            "if 1:\n\tfrom timm.layers import DropPath  # é\n",
        ),
        (
            "PS104",
            "def f():\n    from collections import Mapping, OrderedDict; return Mapping\n",
            "def f():\n    from collections.abc import Mapping\n    from collections import OrderedDict; return Mapping\n",
        ),
        ("PS104", "import collections as c\nx = c.Iterable\n", "import collections as c\nx = c.abc.Iterable\n"),
        ("PS105", "import torch._six\n\nx = torch._six.inf\n", "\nx = torch.inf\n"),
        (
            "PS120",
            "import torchvision as tv\nx = tv.transforms.Scale(2)\n",
            "import torchvision as tv\nx = tv.transforms.Resize(2)\n",
        ),
        (
            "PS104",
            "from collections import (Iterable,\n                         OrderedDict,  # kept\n                         Sequence)\n",  # noqa: E501
            "from collections.abc import Iterable, Sequence\nfrom collections import (OrderedDict)\n",
        ),
    ],
)
def test_forms_of_imports(tmp_path, code, before, after):
    found = repaired(tmp_path, before, code)
    if "# kept" in before:
        assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(after))
        return
    assert found == after
    assert repaired(tmp_path, found, code) == found


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("PS116", "import numpy as np\n\n\ndef f(np):\n    return np.int(3)\n"),
        ("PS116", "import numpy as np\n\n\ndef f():\n    np = other\n    return np.int(3)\n"),
        ("PS116", "import mine as np\nx = np.int(3)\n"),
        ("PS116", "import numpy as np\nx = f'{np.int(3)} np.int'  # np.int\n"),
        ("PS116", "import numpy as np\n\nnp.int = int\n"),
        ("PS108", "import timm.data.transforms as T\n\n\ndef own(name):\n    return name\n\n\nT._pil_interp = own\n"),
        ("PS108", "from models.layers import DropPath\nfrom .timm.models.layers import x\n"),
        ("PS120", "class transforms:\n    Scale = 1\n\n\nx = transforms.Scale\n"),
        ("PS119", "from mine import Image\nx = Image.ANTIALIAS\n"),
        ("PS105", "if TORCH_MAJOR == 1 and TORCH_MINOR < 8:\n    from torch._six import container_abcs\nelse:\n    x = 1\n"),
        ("PS108", "try:\n    from timm.models.layers import DropPath\nexcept:\n    DropPath = None\n"),
    ],
)
def test_what_only_looks_alike_stays(tmp_path, code, source):
    assert repaired(tmp_path, source, code) == source


def test_a_try_that_only_asks_to_install_is_no_fallback(tmp_path):
    source = "try:\n    from timm.models.layers import DropPath\nexcept ImportError:\n    raise ImportError('install timm')\n"
    assert "from timm.layers import DropPath" in repaired(tmp_path, source, "PS108")


def test_packages_of_the_repository_itself_stay(tmp_path):
    source = HEAD + "import Queue\nfrom timm.models.layers import DropPath\n\nx = Queue.Queue()\n"
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "Queue.py").write_text("class Queue:\n    pass\n")
    (tmp_path / "timm" / "models").mkdir(parents=True)
    (tmp_path / "timm" / "models" / "layers.py").write_text("DropPath = 1\n")
    assert rewrite(survey(tmp_path), select=["PS1"]) == []


def test_a_name_taken_by_the_file_is_not_replaced(tmp_path):
    source = "import numpy as np\n\n\ndef int(x):\n    return x\n\n\ny = np.int(3)\n"
    (tmp_path / "a.py").write_text(HEAD + source)
    (change,) = rewrite(survey(tmp_path), select=["PS116"])
    assert not change.changed
    assert change.findings[0].fix == "manual"


def test_inexact_names_need_unsafe(tmp_path):
    source = "from timm.optim.novograd import NovoGrad\n"
    assert repaired(tmp_path, source, "PS108") == source
    assert repaired(tmp_path, source, "PS108", unsafe=True) == "from timm.optim import NvNovoGrad as NovoGrad\n"


PIECES = [
    "from collections import Iterable, OrderedDict as O",
    "from timm.models.layers import DropPath as D, to_2tuple",
    "from torch._six import inf, string_classes",
    "import numpy as np",
    "x = np.int(3) if True else np.float('np.int')",
    "from torch.autograd import Variable",
    "y = Variable(Variable(x, volatile=True))",
    "def f(np, x): return np.int, Variable(x)",
    "s = '''np.int\nVariable(x)'''  # np.int",
    "from PIL import Image; z = Image.ANTIALIAS; é = 'é'; w = Image.CUBIC",
    "for i in xrange(3): print(i)",
    "a = iter(b).next()  # next",
    "if x: y = torch.load('é').eval()",
]


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=8), ending=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_mixture_stays_valid_and_comes_to_rest(tmp_path, pieces, ending):
    source = "\n".join(["import torch", *pieces, ""]).replace("\n", ending)
    (tmp_path / "a.py").write_bytes(source.encode())
    for _ in range(2):
        changes = [change for change in rewrite(survey(tmp_path)) if change.changed]
        if not changes:
            break
        (change,) = changes
        ast.parse(change.after)
        assert change.after.count(b"\n") == change.after.count(ending.encode())
        for comment in (b"# np.int", b"# next", b"'''np.int"):
            assert change.after.count(comment) == change.before.count(comment)
        (tmp_path / "a.py").write_bytes(change.after)
    assert not any(change.changed for change in rewrite(survey(tmp_path)))
