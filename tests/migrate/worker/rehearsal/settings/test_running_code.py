import ast
import sys
import textwrap

import pytest

from headrace.migrate.worker.rehearsal.settings.running_code import around, held, is_bound, running

CODE = """
import sys

def stop(kind, table=("a", "b")):
    class Here:
        where = None
    here = Here()
    here.path = ""
    if kind == "branch":
        if not here.path:
            raise ValueError("no path")
    assert kind != "assert", here.path
    found = dict(
        path=here.path,
        value=1 / (kind != "statement"),
    )
    return found
"""


@pytest.fixture
def stopped(tmp_path):
    """stopped(kind) is the frame in which `stop(kind)` ended."""

    def stop(kind):
        path = tmp_path / "code.py"
        path.write_text(textwrap.dedent(CODE))
        names = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        with pytest.raises((ValueError, AssertionError, ZeroDivisionError)) as caught:
            names["stop"](kind)
        return caught.traceback[-1]._rawentry.tb_frame

    return stop


@pytest.mark.parametrize(
    ("kind", "tests"), [("branch", ["kind == 'branch'", "not here.path"]), ("assert", ["kind != 'assert'"]), ("statement", [])]
)
def test_the_tests_around_a_line_that_gives_up(stopped, kind, tests):
    assert [ast.unparse(node.test) for node in around(stopped(kind))] == tests


def test_a_statement_of_several_lines_is_read_as_a_whole(stopped):
    assert " ".join(running(stopped("statement")).split()).startswith("found = dict( path=here.path, value=1 / (kind")
    assert running(stopped("branch")).strip() == 'raise ValueError("no path")'


def test_the_values_that_a_frame_holds(stopped):
    frame = stopped("assert")
    found = {
        text: held(frame, ast.parse(text, mode="eval").body) for text in ("kind", "here.path", "sys", "table", "none", "[1, 2]")
    }
    assert found == {"kind": "assert", "here.path": "", "sys": sys, "table": ("a", "b"), "none": None, "[1, 2]": [1, 2]}
    bound = {
        text: is_bound(frame, ast.parse(text, mode="eval").body) for text in ("kind", "here.path", "sys", "sys.path", "none")
    }
    assert bound == {"kind": True, "here.path": True, "sys": False, "sys.path": False, "none": False}
