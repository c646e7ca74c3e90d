"""PS153: what is evaluated where, held against what Python does, and where the import comes to stand."""

import json
import sys

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python evaluates annotations late from 3.14 on")

IMPORT = "from __future__ import annotations\n"
SELF = "class A:\n    def f(self, x: A):\n        pass\n"


def change_of(folder, source, *codes, path="a.py", unsafe=False):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(source.encode())
    changes = rewrite(survey(folder), select=codes or ["PS153"], unsafe=unsafe)
    return next((change for change in changes if change.path == path), None)


def executed(source):
    """Runs a source as a file, and then what it calls `run`."""
    held = {"__name__": "a"}
    exec(compile(source, "a.py", "exec", dont_inherit=True), held)
    held.get("run", lambda: None)()


BROKEN = [
    "class A:\n    T = int\n\n    class B:\n        def f(self, x: T):\n            pass\n\n\nT = 3\n",
    "def f(x: A):\n    pass\n\n\nfrom os.path import *\n\nA = int\n",
    SELF,
    "class A:\n    def f(self) -> list[A]:\n        pass\n",
    "class A:\n    async def f(self, *x: A, **y: A) -> None:\n        pass\n",
    "class A:\n    @staticmethod\n    def f(x, /, *, y: A | None = None):\n        pass\n",
    "class A:\n    other: A = None\n",
    "class A:\n    other: A\n",
    "class A:\n    class B:\n        def f(self, x: A.B):\n            pass\n",
    "class A:\n    def f(self, x: B):\n        pass\n\n    class B:\n        pass\n",
    "def f(x: A):\n    pass\n\n\nclass A:\n    pass\n",
    "x: A = 3\nA = int\n",
    "x = {}\nx['a']: A = 3\nA = int\n",
    "def f(x: later.Name):\n    pass\n\n\nimport os as later\n",
    "def f(x: A):\n    pass\n\n\nif f:\n    A = int\n",
    "def f() -> f:\n    pass\n",
    "import typing\n\nif typing.TYPE_CHECKING:\n    from numpy import ndarray\n\n\ndef f(x: ndarray):\n    pass\n",
    "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import numpy as np\n\n\ndef run():\n"
    "    def inner(x: np.ndarray):\n        pass\n",
    "def run():\n    class A:\n        def f(self, x: A):\n            pass\n",
    "def run():\n    def inner(x: A):\n        pass\n\n    A = int\n    return inner, A\n",
    "def before():\n    print(vars(run))\n\n\ndef f(x: A):\n    pass\n\n\nA = int\n\n\ndef run():\n    pass\n",
]
SOUND = [
    "def run(A=int):\n    def inner(x: A):\n        pass\n\n    A = 3\n    return inner\n",
    "def run():\n    x: A = 3\n\n    def inner():\n        pass\n\n    A = int\n    return x, inner, A\n",
    "def run():\n    def middle():\n        def inner(x: A):\n            pass\n\n    A = int\n    middle()\n",
    "from typing import TYPE_CHECKING\nfrom os.path import *\n\nif TYPE_CHECKING:\n    from os.path import join\n\n\n"
    "def run():\n    def inner(x: join):\n        pass\n",
    "vars()['A'] = int\n\n\ndef f(x: A):\n    pass\n\n\nA = int\n",
    "class A:\n    def f(self, x: 'A', y: list['A']):\n        pass\n",
    "class A:\n    def f(self):\n        x: A = 3\n        self.x: B = x\n        return x\n\n\ndef run():\n    A().f()\n",
    "class A:\n    def f(self):\n        def inner(x: A, y: B):\n            return x, y\n\n        return inner\n\n\n"
    "class B:\n    pass\n\n\ndef run():\n    A().f()\n",
    "class A:\n    pass\n\n\nclass A:\n    def f(self, x: A):\n        pass\n",
    "A: A = int\n",
    "class B:\n    A = int\n\n    def f(self, x: A):\n        pass\n\n\nA = 3\n",
    "try:\n    from numpy import nothing as A\nexcept ImportError:\n    A = None\n\n\ndef f(x: A):\n    pass\n\n\nA = int\n",
    "for A in (int,):\n    pass\n\n\ndef f(x: A):\n    pass\n\n\nA = int\n",
    "with open(__file__ if 0 else '/dev/null') as A:\n    def f(x: A):\n        pass\n\n\nA = int\n",
    "def bind():\n    global A\n    A = int\n\n\nbind()\n\n\ndef f(x: A):\n    pass\n\n\nA = 3\n",
    "globals()['A'] = int\n\n\ndef f(x: A):\n    pass\n\n\nA = int\n",
    "from os.path import *\n\n\ndef f(x: join):\n    pass\n\n\njoin = int\n",
    "def f(x: list, y: int = 3):\n    pass\n\n\nlist = int\n",
    "def f(y=(A := int), x: A = 3):\n    pass\n\n\nA = 3\n",
    "def f(x: (A if False else int), y: [A for A in ()], z: (False and A)):\n    pass\n\n\nA = int\n",
    "try:\n    def f(x: A):\n        pass\nexcept NameError:\n    pass\n\nA = int\n",
    "import sys\n\nif sys.version_info >= (3, 14):\n    def f(x: A):\n        pass\n\n\nA = int\n"
    if sys.version_info < (3, 14)
    else "",
    "def outer():\n    A = int\n\n    def run(x: A):\n        pass\n\n    return run\n\n\ndef run():\n    outer()\n\n\nA = 3\n",
    IMPORT + SELF,
]


@pytest.mark.parametrize("source", BROKEN)
def test_what_python_refuses_is_found_and_runs_then(tmp_path, source):
    with pytest.raises(NameError):
        executed(source)
    change = change_of(tmp_path, f"{source}\n\nimport torch\n")
    assert {(item.code, item.fix) for item in change.findings} == {("PS153", "applied")}
    assert change.after.decode().count(IMPORT) == 1
    executed(change.after)


@pytest.mark.parametrize("source", SOUND)
def test_what_python_takes_is_left_alone(tmp_path, source):
    executed(source)
    (tmp_path / "net.py").write_text("import torch\n")
    assert change_of(tmp_path, source) is None


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ("import torch\n", f"{IMPORT}\nimport torch\n"),
        ('"""Doc."""\nimport torch\n', f'"""Doc."""\n{IMPORT}\nimport torch\n'),
        ("#!/usr/bin/env python\n# Mine.\n\nimport torch\n", f"#!/usr/bin/env python\n# Mine.\n\n{IMPORT}\nimport torch\n"),
        ('"""Doc."""; import torch\n', f'"""Doc."""; {IMPORT.strip()}; import torch\n'),
        ('"""Doc."""; \\\nimport torch\n', f'"""Doc."""; \\\n{IMPORT.strip()}; import torch\n'),
        ("from __future__ import (\n    division,\n)\n", "from __future__ import (\n    division, annotations,\n)\n"),
        ("from __future__ import division as d  # old\n", "from __future__ import division as d, annotations  # old\n"),
        ("", f"{IMPORT}\n\n"),
        ("@id\n", f"{IMPORT}\n\n@id\n"),
        ("# -*- coding: utf-8 -*-\nä = 'ö'\n", f"# -*- coding: utf-8 -*-\n{IMPORT}\nä = 'ö'\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_import_is_the_first_statement(tmp_path, above, expected, newline):
    (tmp_path / "net.py").write_text("import torch\n")
    change = change_of(tmp_path, (above + SELF).replace("\n", newline))
    assert change.after.decode() == (expected + SELF).replace("\n", newline)
    executed(change.after.decode().replace("import torch", "import json"))


def test_the_import_comes_before_one_that_another_rule_adds_there(tmp_path):
    change = change_of(tmp_path, f'"""Doc."""\nimport urllib2\nimport torch\nurllib2.urlopen\n{SELF}', "PS104", "PS153")
    assert change.after.decode().startswith(f'"""Doc."""\n{IMPORT}')
    assert {"PS104", "PS153"} <= set(change.rules)
    compile(change.after, "a.py", "exec")


READS = [
    "import dataclasses\nimport torch\n\nkinds = [item.type for item in dataclasses.fields(x)]\n",
    "import inspect\nimport torch\n\nkinds = [item.annotation for item in inspect.signature(x).parameters.values()]\n",
    "import torch\n\nkinds = x.__annotations__\n",
    "import torch\n\nnet = torch.jit.script(Net())\n",
]


@pytest.mark.parametrize("source", READS)
def test_where_another_file_reads_annotations_only_unsafe_acts(tmp_path, source):
    (tmp_path / "b.py").write_text(source)
    change = change_of(tmp_path, SELF)
    assert not change.changed
    assert [item.fix for item in change.findings] == ["unsafe"]
    assert change_of(tmp_path, SELF, unsafe=True).after.decode() == f"{IMPORT}\n\n{SELF}"


def test_a_decorator_that_is_given_annotations_of_local_names(tmp_path):
    source = "import torch\n\n\ndef make(app):\n    class Item:\n        def f(self, x: Item):\n            pass\n\n"
    route = "    @app.get('/')\n    def route(item: Item):\n        pass\n"
    assert [item.fix for item in change_of(tmp_path, source + route).findings] == ["unsafe"]
    assert [item.fix for item in change_of(tmp_path, source).findings] == ["applied"]


def test_a_library_that_only_has_an_attribute_of_that_name_reads_none(tmp_path):
    (tmp_path / "b.py").write_text("import torch\n\nboxes = dataset.annotation, field.type\n")
    assert change_of(tmp_path, SELF).changed


def test_each_name_is_remarked_where_it_stands_first(tmp_path):
    source = "import torch\n\n\ndef f(x: B, y: A) -> A:\n    pass\n\n\nA = B = int\n"
    findings = change_of(tmp_path, source).findings
    assert [(item.line, item.column, item.message.partition(" ")[0]) for item in findings] == [(4, 9, "B"), (4, 15, "A")]


def test_notebooks_are_left_alone(tmp_path):
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": f"import torch\n{SELF}"}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    assert rewrite(survey(tmp_path), rules=choose_rules(["PS153"])) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are parsed since Python 3.12")
def test_type_parameters_are_bound_and_aliases_are_evaluated_late(tmp_path):
    source = "import torch\n\n\nclass A[T]:\n    def f[S](self, x: T, y: S):\n        pass\n\n\ntype B = C\nT = S = C = int\n"
    executed(source)
    assert change_of(tmp_path, source) is None
    change = change_of(tmp_path, "import torch\n\n\ndef f[T](x: A[T]):\n    pass\n\n\ntype A[T] = list[T]\n")
    assert [item.code for item in change.findings] == ["PS153"]
