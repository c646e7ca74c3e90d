"""The user's sources as a rehearsal runs them: loops over epochs end after the first, assertions that stand-ins do not fulfil
are passed over, and no line moves."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ...reading.source import CELLS, NOTEBOOK
from .stage import Stage

FEW = "_headrace_few_epochs"
PASSED_OVER = "assertions"
"""Learned: assertions, as they are written, that end no attempt any more."""


def compiler(stage: Stage) -> Any:
    """What compiles a file of the user's. Its loops over epochs are found by the name of what they count.

    The cells of a notebook may await something on their own level, which makes the code a coroutine's."""

    def few(values: Iterable[Any]) -> Iterator[Any]:
        for count, value in enumerate(values):
            if count >= stage.request.epochs:
                stage.note("time", f"a loop over epochs ended after {stage.request.epochs}")
                return
            yield value

    if stage.uses("time"):
        stage.patch(builtins, FEW, few)

    def compiled(data: bytes, path: str) -> types.CodeType:
        tree = ast.parse(importlib.util.decode_source(data), filename=path)
        if stage.uses("time"):
            tree = ast.fix_missing_locations(_FewEpochs().visit(tree))
        if stage.uses("assertions"):
            stage.assertions[path] = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
            if passed_over := stage.learned.get(PASSED_OVER):
                tree = ast.fix_missing_locations(_NoAssertion(passed_over).visit(tree))
        awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if path.endswith((NOTEBOOK, CELLS)) else 0
        return compile(tree, path, "exec", awaits, dont_inherit=True)

    return compiled


def assertion(node: ast.Assert) -> str:
    """What an assertion demands, in one line."""
    return f"assert {ast.unparse(node.test)}"


class _NoAssertion(ast.NodeTransformer):
    """What is asserted is computed all the same."""

    def __init__(self, passed_over: Collection[str]) -> None:
        self._passed_over = passed_over

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.copy_location(ast.Expr(node.test), node) if assertion(node) in self._passed_over else node


class _FewEpochs(ast.NodeTransformer):
    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if _counts_epochs(node.target, named=("epoch", "ep")) or (
            isinstance(node.iter, ast.Call) and _counts_epochs(node.iter, named=())
        ):
            name = ast.copy_location(ast.Name(id=FEW, ctx=ast.Load()), node.iter)
            node.iter = ast.copy_location(ast.Call(func=name, args=[node.iter], keywords=[]), node.iter)
        return node


def _counts_epochs(node: ast.AST, *, named: tuple[str, ...]) -> bool:
    """Whether a name in it speaks of epochs: `epoch`, `num_epochs`, `args.epochs`, `cfg["EPOCHS"]`."""
    words = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            words.append(part.id)
        elif isinstance(part, ast.Attribute):
            words.append(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words.append(part.value)
    return any("epoch" in word.lower() or word.lower() in named for word in words)
