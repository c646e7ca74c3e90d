"""Notebooks as modules and back: the JSON around an edit keeps every byte, and the result is a notebook still."""

from __future__ import annotations

import ast
import copy
import json
import random

import nbformat
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.migrate.reading.edits import Edit, apply_edits
from headrace.migrate.reading.notebooks.notebook import cell_sources
from headrace.migrate.reading.source import SourceFile, parse_source

CODE = ["import torch\nfrom torch import nn\n", "net = nn.Linear(2, 3)\nx = torch.rand(1, 2)", "y = net(x)\ny"]


def notebook4(sources: list, *, kinds: list[str] | None = None, counts: list | None = None, **more: object) -> dict:
    cells = []
    for index, source in enumerate(sources):
        kind = kinds[index] if kinds else "code"
        cell: dict = {"cell_type": kind, "metadata": {"tags": ["ü"]}, "source": source}
        if kind == "code":
            cell |= {"execution_count": counts[index] if counts else None, "outputs": []}
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4, **more}


def notebook3(sources: list) -> dict:
    cells = [
        {"cell_type": "code", "collapsed": False, "input": source, "language": "python", "metadata": {}, "outputs": []}
        for source in sources
    ]
    return {"metadata": {"name": "old"}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells, "metadata": {}}]}


def listed(source: str) -> list[str]:
    return source.splitlines(keepends=True)


def read(data: dict, **style: object) -> SourceFile:
    return parse_source("a.ipynb", (json.dumps(data, **{"indent": 1, "ensure_ascii": False, **style}) + "\n").encode())


def sources(data: bytes) -> list[str]:
    return list(cell_sources(data.decode()).values())


@pytest.mark.parametrize("style", [{}, {"indent": None}, {"indent": 4, "sort_keys": True}, {"ensure_ascii": True}])
@pytest.mark.parametrize("make", [notebook3, notebook4])
@pytest.mark.parametrize("form", [str, listed])
def test_an_edit_changes_its_line_alone(make, form, style) -> None:
    plain = [CODE[0], "s = 'naïve 🎉'\n" + CODE[1], CODE[2]]
    data = make([form(source) for source in plain])
    file = read(data, **style)
    assert file.encode(file.text) == file.data
    edited = file.encode(file.text.replace("y = net(x)", "graph = compile(net)\ny = graph(x)"))
    expected = copy.deepcopy(data)
    cells = expected["cells"] if "cells" in expected else expected["worksheets"][0]["cells"]
    cells[2]["source" if "source" in cells[2] else "input"] = form("graph = compile(net)\ny = graph(x)\ny")
    assert edited == read(expected, **style).data  # a list of lines stays one, with its indentation
    nbformat.validate(nbformat.reads(edited.decode(), as_version=nbformat.NO_CONVERT))


def test_bytes_that_a_dump_would_not_keep() -> None:
    raw = (
        '\ufeff{ "nbformat_minor":4,\r\n "nbformat" : 4, "metadata": {"x": 1.0e5, "x": 2},\r\n'
        '  "cells":[{"source":["a = \\"\\u00e9\\/\\ud83c\\udf89\\"\\n" , "b = 1"],"cell_type":"code","outputs":[],'
        '"metadata":{},"execution_count":null}]}'
    )
    file = parse_source("a.ipynb", raw.encode())
    assert file.text is not None
    assert 'a = "é/🎉"' in file.text
    assert file.encode(file.text) == raw.encode()
    longer = file.encode(file.text.replace("b = 1\n", "b = 1\nç = b\n").replace("a =", "aa ="))
    assert longer == raw.replace('"a =', '"aa =').replace('"b = 1"', '"b = 1\\n" , "\\u00e7 = b"').encode()


def test_windows_newlines_stay() -> None:
    file = read(notebook4(["a = 1\r\nb = 2", ["c = 3\r\n", "d = 4\r\n"]]))
    edited = file.encode(apply_edits(file.text, [Edit(at := file.text.index("d = 4"), at, "x = 0\r\n")]))
    assert sources(edited) == ["a = 1\r\nb = 2", "c = 3\r\nx = 0\r\nd = 4\r\n"]
    assert '"c = 3\\r\\n",\n    "x = 0\\r\\n",\n' in edited.decode()


MAGICS = {
    "%matplotlib inline\nx = 1": "x = 1",
    "!pip install \\\n  torch\nx = 1": "x = 1",
    "if x:\n    !ls\n": "if x:\n    pass\n",
    "x = !ls -l\nfiles = %sx ls": "x = get_ipython()\nfiles = get_ipython()",
    "net?\nnet.fit??\n?net": "",
    "%%time\n%%timeit\ny = 2": "y = 2",
    "%pylab inline\nif x:\n    %pylab": "from pylab import *; import matplotlib.pyplot as plt, numpy as np\nif x:\n"
    "    from pylab import *; import matplotlib.pyplot as plt, numpy as np",
    "%%bash\nls $(pwd)": "",
    "%%writefile net.py\nimport torch": "",
    "%time y = net(x)\nz = 1": "y = net(x)\nz = 1",
    'text = """\n%not magic\n!neither\n"""\n%cd ..': 'text = """\n%not magic\n!neither\n"""',
    "z = (a\n% b)\n%cd ..": "z = (a\n% b)",
    "ls": "",
    "ls \n\n": "",
    "ls # is this the folder?": "",
    "x = 1\nls -l data\npip install -q timm\nwhos\nmkdir -p a/b": "x = 1",
    "if x:\n    pwd": "if x:\n    pass",
    "z = [\ncat\n]\ncat = 1\ncat": "z = [cat]\ncat = 1\ncat",
    "import more\nmore\nrm = x\nrm -rf": "import more\nmore\nrm = x\nrm - rf",
    "text = '''\npip install timm\n'''": "text = '''\npip install timm\n'''",
    "z = a \\\n% b\n!ls": "z = a % b",
    "q = 'it\\'s ('  # ' (\n!ls": "q = 'it\\'s ('",
}


@pytest.mark.parametrize("source", MAGICS)
def test_magics_become_comments_and_come_back(source: str) -> None:
    file = read(notebook4([source, "last = 1"]))
    assert file.problem is None
    assert file.notebook is not None
    assert file.notebook.findings == ()
    assert file.tree is not None
    assert ast.dump(file.tree) == ast.dump(ast.parse(MAGICS[source] + "\nlast = 1"))
    assert sources(file.encode(file.text.replace("last = 1", "last = 2"))) == [source, "last = 2"]
    first = file.encode(file.text.replace("cell 1\n", "cell 1\nfirst = 0\n"))  # an insertion above a magic keeps it
    assert sources(first) == ([source] if MAGICS[source] == "" and "%%" in source else ["first = 0\n" + source]) + ["last = 1"]


def test_cells_may_each_import_from_the_future() -> None:
    cells = [
        "import os\n",
        '"""Headers"""\n\nfrom __future__ import print_function, division\nimport torch\nx = torch.rand(1)',
        "x",
    ]
    file = read(notebook4(cells))
    compile(file.text, "a.ipynb", "exec")
    assert "\n#headrace:from __future__ import print_function, division\nimport torch\n" in file.text
    edited = [cells[0], cells[1].replace("rand(1)", "ones(1)"), cells[2]]
    assert sources(file.encode(file.text.replace("rand(1)", "ones(1)"))) == edited


def test_the_first_statement_of_a_notebook_may_import_from_the_future() -> None:
    file = read(notebook4(["%matplotlib inline\nfrom __future__ import annotations\n", "def f(x: Net) -> None: ..."]))
    compile(file.text, "a.ipynb", "exec")
    assert "\nfrom __future__ import annotations\n" in file.text


def test_places_lead_back_to_cells() -> None:
    kinds = ["markdown", "code", "code", "raw", "code"]
    file = read(notebook4(["# Title", "a = 1\nb = 2", "", "raw", "%%time\nc = 3\n"], kinds=kinds))
    assert file.notebook is not None
    assert file.tree is not None
    places = {item.targets[0].id: file.notebook.locate(item.lineno) for item in file.tree.body}
    assert places == {"a": (2, 1), "b": (2, 2), "c": (5, 2)}


def test_a_cell_that_does_not_parse_stops_no_other() -> None:
    broken = ["print 'python 2'\n%cd", "a = 1", "def f(:", "x = '\x00'", "y = '\ud800'", "  indented = 1\n    more = 2"]
    file = read(notebook4(broken), ensure_ascii=True)
    assert file.problem is None
    assert file.notebook is not None
    found = [(item.code, file.notebook.locate(item.line)) for item in file.notebook.findings]
    assert found == [("PS001", (1, 1)), ("PS001", (3, 1)), ("PS001", (4, 1)), ("PS001", (5, 1)), ("PS001", (6, 1))]
    assert ast.unparse(file.tree) == "a = 1"
    edited = json.loads(file.encode(file.text.replace("a = 1", "a = 2")))
    assert [cell["source"] for cell in edited["cells"]] == [*broken[:1], "a = 2", *broken[2:]]


@pytest.mark.parametrize("form", [str, listed])
def test_a_cell_that_is_indented_as_a_whole_is_read_as_ipython_reads_it(form) -> None:
    cell = "\n  sizes = [1, 2]\n  for size in sizes:\n      y = net(size)\n\n  %matplotlib inline\n  print(y)"
    file = read(notebook4([form(CODE[0]), form(cell)]))
    assert file.problem is None
    assert file.notebook.findings == ()
    assert "\nsizes = [1, 2]\nfor size in sizes:\n    y = net(size)\n" in file.text
    assert file.encode(file.text) == file.data
    edited = file.text.replace("    y = net(size)\n", "    step = 1\n    y = step(size)\n")
    changed = cell.replace("      y = net(size)\n", "      step = 1\n      y = step(size)\n")
    assert sources(file.encode(edited)) == [CODE[0], changed]


def test_a_first_line_alone_that_is_indented_is_remarked() -> None:
    file = read(notebook4([" sizes = [1, 2]\nfor size in sizes:\n    print(size)"]))
    assert file.text.partition("\n")[2] == "sizes = [1, 2]\nfor size in sizes:\n   print(size)\n"
    assert file.encode(file.text) == file.data
    (found,) = file.notebook.findings
    assert (found.code, found.severity, "newer IPython" in found.message) == ("PS001", "note", True)


def test_the_order_of_execution_is_remarked() -> None:
    file = read(notebook4(CODE, counts=[3, 1, None]))
    assert [(item.code, "In [3] stands before In [1]" in item.message) for item in file.notebook.findings] == [("PS006", True)]
    assert read(notebook4(CODE, counts=[1, 3, None])).notebook.findings == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff\xfe", "utf-8"),
        (b"[]", "no notebook"),
        (b'{"cells": 3}', "no notebook"),
        (b'{"worksheets": {}}', "no notebook"),
        (b'{"cells": ' + b"[" * 100_000, "nested"),
    ],
)
def test_what_is_no_notebook_is_a_finding(data: bytes, reason: str) -> None:
    file = parse_source("a.ipynb", data)
    assert file.problem is not None
    assert (file.problem.code, file.tree) == ("PS002", None)
    assert reason in file.problem.message


@pytest.mark.parametrize(
    "odd",
    [
        {"cells": [3, None, [], "code", {}, {"cell_type": "code"}, {"cell_type": ["code"], "source": "x"}]},
        {
            "cells": [
                {"cell_type": "code", "source": 3},
                {"cell_type": "code", "source": [3]},
                {"cell_type": "code", "source": []},
            ]
        },
        {"worksheets": [{}, 3, {"cells": "no"}, {"cells": []}]},
        {"cells": [], "metadata": []},
    ],
)
def test_odd_values_are_passed_over(odd: dict) -> None:
    file = read(odd)
    assert file.problem is None
    assert file.tree is not None
    assert file.tree.body == []
    assert file.encode(file.text) == file.data


def test_other_languages_are_left_alone() -> None:
    data = notebook4(["x <- 1"])
    data["metadata"]["kernelspec"]["language"] = "R"
    file = read(data)
    assert file.notebook is not None
    assert [item.severity for item in file.notebook.findings] == ["note"]
    assert file.tree is not None
    assert file.tree.body == []


def test_an_empty_cell_can_be_filled() -> None:
    file = read(notebook4([[], "", "a = 1"]))
    edited = json.loads(
        file.encode(file.text.replace("cell 1\n", "cell 1\nx = 1\ny = 2\n").replace("cell 2\n", "cell 2\nz = 1\n"))
    )
    assert [cell["source"] for cell in edited["cells"]] == [["x = 1\n", "y = 2\n"], "z = 1\n", "a = 1"]


def test_huge_outputs_are_passed_over() -> None:
    data = notebook4(CODE)
    data["cells"][0]["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBOR" * 2_000_000}}]
    file = read(data)
    assert file.tree is not None
    edited = file.encode(file.text.replace("y = net(x)", "y = graph(x)"))
    assert len(edited) == len(file.data) + 2
    assert json.loads(edited)["cells"][0] == data["cells"][0]


LINES = st.sampled_from(
    ["x = 1", "%cd ..", "!ls", "é = 'ü'", "net?", "", "    ", "def f():", "    return 1", '"""', "# 🎉", "y = !ls", "(", ")",
     "%time z = 2", "\\", "if x:", "    !ls", "\x0c", "%%time", "'\\''"]
)  # fmt: skip
SOURCES = st.lists(LINES, max_size=6).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r"]).map(lambda end: end.join(lines))
)


@settings(max_examples=150)
@example(["    return 1\n    "], False, None, 0)
@given(
    st.lists(st.one_of(SOURCES, st.text(max_size=20)), max_size=5), st.booleans(), st.sampled_from([None, 1, 3]), st.integers()
)
def test_any_notebook_comes_back_and_takes_edits(texts: list[str], escaped: bool, indent: int | None, seed: int) -> None:
    chance = random.Random(seed)
    cells = [chance.choice([listed(text), text, [text[:2], text[2:]]]) for text in texts]
    data = chance.choice([notebook3, notebook4])(cells)
    file = read(data, indent=indent, ensure_ascii=escaped)
    if file.tree is None:
        return
    assert file.text is not None
    assert file.notebook is not None
    assert file.encode(file.text) == file.data
    parts = [cell for cell in file.notebook.cells if cell.shown is not None]
    if not parts:
        return
    chosen = chance.choice(parts)
    marker = f"{file.notebook.magics.marker} cell {chosen.number}\n"
    new = chance.choice(["added = 1\n", "", "a = 'é'\nb = 2\n"])
    text = file.text.replace(marker, marker + new)
    edited = file.encode(text)
    before, after = cell_sources(file.data.decode()), cell_sources(edited.decode())
    new = "".join(chosen.indent + line for line in new.splitlines(keepends=True))
    assert after == {**before, chosen.number: new + before[chosen.number]}
    back = parse_source("a.ipynb", edited)
    assert back.notebook is not None
    removed = back.encode(back.text.replace(marker + new, marker)) if back.text and new in back.text else file.data
    assert cell_sources(removed.decode()) == before
