"""Walks and questions about syntax."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headrace.migrate.reading.nodes import (
    arguments_of,
    defaults_of,
    inside,
    is_docstring,
    is_future_import,
    keyword_of,
    required_of,
    text_of,
    values_of,
)


def function_of(signature: str) -> ast.FunctionDef:
    (found,) = inside(ast.parse(f"def f({signature}): pass"), ast.FunctionDef)
    return found


@pytest.mark.parametrize(
    ("signature", "defaults", "required"),
    [
        ("", {}, []),
        ("a, b", {}, ["a", "b"]),
        ("a, b=1, *rest, c, d=2, **more", {"b": "1", "d": "2"}, ["a", "c"]),
        ("a, b=1, /, c=2, *, d=3, e", {"b": "1", "c": "2", "d": "3"}, ["a", "e"]),
    ],
)
def test_defaults_and_required_parameters(signature: str, defaults: dict[str, str], required: list[str]) -> None:
    function = function_of(signature)
    assert {name: ast.unparse(value) for name, value in defaults_of(function).items()} == defaults
    assert list(defaults_of(function)) == list(defaults)
    assert required_of(function) == required


def test_calls_and_their_arguments() -> None:
    assert list(inside(None, ast.Call)) == []
    (call,) = inside(ast.parse("x.f(a, *b, k=c, **d)"), ast.Call)
    assert [ast.unparse(value) for value in arguments_of(call)] == ["a", "*b", "c", "d"]
    assert keyword_of(call, "a") is None
    assert (found := keyword_of(call, "k")) is not None
    assert ast.unparse(found.value) == "c"


def test_values_that_a_name_gets() -> None:
    tree = ast.parse("a = 1\na.b = 2\nc = a = 3\na, d = 4\nif x:\n    a = 'five'\na += 6\n")
    assert [ast.unparse(value) for value in values_of(tree, "a")] == ["1", "3", "'five'"]
    assert [ast.unparse(value) for value in values_of(tree, "a.b")] == ["2"]
    assert values_of(None, "a") == []


def test_texts_and_headers() -> None:
    text, number, future, other = ast.parse("'x'\n3\nfrom __future__ import annotations\nimport b\n").body
    assert [is_docstring(item) for item in (text, number, future)] == [True, False, False]
    assert [is_future_import(item) for item in (text, future, other)] == [False, True, False]
    assert text_of(text.value) == "x"  # type: ignore[attr-defined]
    assert text_of(None) is None


def test_the_nodes_of_a_kind_come_in_the_order_of_ast_walk() -> None:
    tree = ast.parse(Path(__file__).read_text())
    for kind in (ast.AST, ast.Call, ast.Name, ast.FunctionDef | ast.Import):
        assert list(inside(tree, kind)) == [node for node in ast.walk(tree) if isinstance(node, kind)]
    assert list(inside(None, ast.AST)) == []
