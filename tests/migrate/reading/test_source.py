"""Reading sources: nothing lost, nothing raised."""

import ast
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.migrate.reading.source import MAX_BYTES, parse_source, read_source, split_lines, walk
from headrace.migrate.survey.survey import survey


@pytest.mark.parametrize(
    "data",
    [
        b"x = 1\n",
        b"x = 1\r\ny = 2\r\n",
        b"x = 1\ry = 2\r",
        b"\xef\xbb\xbfx = 1\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
        "# coding: gbk\nx = '中文'\n".encode("gbk"),
        b"",
        b"def f():\n\tpass\n\x0c\nclass A: pass",
        "s = '\u2028 is no line ending'\nt = 1\n".encode(),
    ],
)
def test_bytes_survive(data):
    file = parse_source("a.py", data)
    assert file.problem is None
    assert file.encode(file.text) == data
    assert "".join(file.lines) == file.text


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"x = 1\nprint 'hello'\n", "PS001", 2),
        (b"f(async=True)\n", "PS001", 1),
        (b"x = '\xff'\n", "PS002", 1),
        (b"# coding: nonsense\n", "PS002", 1),
        (b"x = 1\x00\n", "PS002" if sys.version_info >= (3, 14) else "PS001", 1),
        (b"(" * 5000, "PS001", 1),
    ],
)
def test_what_cannot_be_read_is_a_finding(data, code, line):
    problem = parse_source("bad.py", data).problem
    assert (problem.code, problem.line, problem.severity, problem.path) == (code, line, "error", "bad.py")


def test_deep_nesting_does_not_raise():
    file = parse_source("deep.py", b"x = " + b"-" * 30_000 + b"1\n")
    assert file.problem is None or file.problem.code == "PS001"


def test_long_chains_are_skipped_instead_of_overflowing(tmp_path):
    problem = parse_source("chain.py", b"import torch\nx = " + b" + ".join([b"a"] * 900) + b"\n").problem
    assert (problem.code, problem.severity) == ("PS003", "note")
    (tmp_path / "chain.py").write_bytes(b"import torch\nif a: pass\n" + b"elif b: model(x)\n" * 150)
    survey(tmp_path)


def test_enormous_and_unreadable_files(tmp_path):
    (tmp_path / "big.py").write_bytes(b"#" * (MAX_BYTES + 1))
    assert read_source(tmp_path, "big.py").problem.code == "PS003"
    assert read_source(tmp_path, "gone.py").problem.code == "PS002"


def test_walk_leaves_out_what_is_not_the_users(tmp_path):
    for name in (".git", "build", ".venv", "env", "node_modules", "models/__pycache__", "package.egg-info", "mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.py").write_text("")
    (tmp_path / "mine" / "pyvenv.cfg").write_text("")
    (tmp_path / "models" / "net.py").write_text("")
    (tmp_path / "main.py").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert list(walk(tmp_path)) == ["main.py", "models/net.py"]


@given(st.text(alphabet=st.sampled_from("ab\r\n\f\u2028\x1c ")))
def test_lines_are_those_of_the_tokenizer(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.endswith(("\n", "\r")) for line in lines[:-1])


@given(
    st.lists(st.sampled_from(["x = 1", "if x:\n    y = 2", "s = 'é\u2028'", "# 中", "\tz" * 0]), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
)
def test_positions_index_the_lines(statements, ending):
    text = "\n".join(statements).replace("\n", ending)
    file = parse_source("a.py", text.encode())
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name):
            line = file.lines[node.lineno - 1].encode()
            assert line[node.col_offset : node.end_col_offset].decode() == node.id
