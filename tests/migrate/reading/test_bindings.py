"""What a piece of code binds and reads."""

import ast

import pytest

from headrace.migrate.reading.bindings import bound_names, local_names, reads


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = [last := y for y in z]", {"x", "last"}),
        ("if (m := build()) is None: raise E", {"m"}),
        ("f = lambda: (hidden := 1)", {"f"}),
        ("for a, (b, *c) in d: e: int = 1", {"a", "b", "c", "e"}),
        ("with f() as g, h() as (i, j): import k.l, m as n", {"g", "i", "j", "k", "n"}),
        ("def f(a):\n    b = 1", {"f"}),
        ("match a:\n    case {'x': b, **c}: pass\n    case [d, *e] as f: pass", {"b", "c", "d", "e", "f"}),
    ],
)
def test_names_that_a_statement_binds(source, names):
    assert bound_names(ast.parse(source).body[0]) == names


def test_names_of_outer_scopes_are_not_local():
    function = ast.parse("def f(a, *b, c=1, **d):\n    global g\n    nonlocal h\n    g = h = i = [j := k for l in m]").body[0]
    assert local_names(function) == {"a", "b", "c", "d", "i", "j"}


def test_reads_are_whole_or_by_attribute():
    assert reads(ast.parse("y = args.arch; model.eval(); [z.w for z in x]")) == {
        ("args", "arch"), ("model", "eval"), ("model", None), ("x", None)
    }  # fmt: skip
