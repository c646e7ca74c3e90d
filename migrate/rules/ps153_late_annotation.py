"""PS153: annotations that name what is bound only later."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..reading.bindings import COMPREHENSIONS
from ..reading.edits import Edit, Positions
from ..reading.nodes import inside, is_docstring, is_future_import
from ..reading.scopes import BUILTINS, Definition, Function, Module, bound_names, dotted, parameters
from ..rewriting.rule import Context, Fix, Repair, diff

_IMPORT = "from __future__ import annotations"
_NOT_ALWAYS = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.JoinedStr, *COMPREHENSIONS)
"""What evaluates its parts under a condition, or binds names of its own."""
_WRITES = frozenset(["exec", "globals", "locals", "vars"])
"""Functions by which a file may bind names that nobody sees."""
_CLASSES = diff('''\
#!/usr/bin/env python
"""A graph."""

+from __future__ import annotations
+
import torch
from collections.abc import Container


class Node:
    def __init__(self, parents: Container[Node] | Node | None = None) -> None:
        self.parents = parents


def layers(net: Net):
    return list(net.modules())


class Net(torch.nn.Module):
    pass
''')
_TYPES = diff("""\
-from __future__ import division
+from __future__ import division, annotations
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from numpy import ndarray


def show(image: ndarray) -> None:
    print(image)
""")
_READ = """\
import dataclasses
import torch


@dataclasses.dataclass
class Settings:
    size: int = 32

    def merged(self, other: Settings):
        return dataclasses.replace(self, **vars(other))


kinds = {field.name: field.type for field in dataclasses.fields(Settings)}
"""
_VALID = """\
import torch
from typing import List

try:
    from numpy import ndarray as Image
except ImportError:
    Image = torch.Tensor


class Node:
    kind: List["Node"]

    def child(self, other: "Node", image: Image) -> int:
        size: Net = other.child(image)
        return size

    def walk(self):
        def inner(node: Node, net: Net):
            return node, net

        return inner


class Net(torch.nn.Module):
    pass


def run(net: Net, node: Node) -> None:
    pass
"""


class LateAnnotation(Repair):
    """What it does: imports `annotations` from `__future__` where an annotation names what is bound only further down.

    Why: Python 3.14 evaluates annotations when somebody asks for them. Before that it evaluates those of functions where the
    function is defined, and those of names in a module or a class where they stand: a class that its own methods name, or one
    that is imported under `if TYPE_CHECKING`, is a NameError.

    Example: `class Node:` with `def __init__(self, parent: Node | None = None)` gets `from __future__ import annotations`.

    Fix safety: safe; the file cannot be run as it stands. It is unsafe where the repository reads annotations (`field.type`,
    `parameter.annotation`, `__annotations__`, `torch.jit.script`), which are text then. Notebooks are left alone: each cell is
    compiled for itself, and what is further down may have been run before.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_CLASSES, _TYPES, (_READ, None)) if sys.version_info < (3, 14) else ()

    def check(self, context: Context) -> Iterator[Fix]:
        if sys.version_info >= (3, 14):
            return
        module = context.module
        imports = [item for item in module.tree.body if isinstance(item, ast.ImportFrom) and is_future_import(item)]
        if module.file.notebook is not None or any(alias.name == "annotations" for item in imports for alias in item.names):
            return
        unbound: dict[str, ast.Name] = {}
        for name in sorted(_unbound(module, module.tree), key=module.place):
            unbound.setdefault(name.id, name)
        if not unbound:
            return
        modules = [other for other in context.index.repository.modules.values() if other.path != module.path]
        read = any(map(_reads_annotations, [module, *modules])) or _names_locals(module)
        edit = _edit(context.positions, module.tree, imports)
        for name in unbound.values():
            message = (
                f"{name.id} is not bound yet where this annotation stands, and Python before 3.14 evaluates it there; "
                f"write {_IMPORT} at the top of the file"
            )
            yield self.fix(context, name, message, [edit], severity="error", offer="unsafe" if read else "safe")


@dataclass(frozen=True)
class _Scope:
    """A module, a class or a function while its statements are gone through."""

    node: ast.Module | Definition
    every: frozenset[str]
    """All names that are its own, wherever it binds them, and those that only type checkers see."""
    before: set[str]
    """Those that the statements so far may have bound."""


def _unbound(module: Module, node: ast.Module | Definition, outer: tuple[_Scope, ...] = ()) -> Iterator[ast.Name]:
    """The names in annotations in a scope, and in those inside of it, that are not bound when they are evaluated.

    Only what stands in a scope by itself is looked at: nobody knows whether an `if` is entered, and a `try` may mend it.
    """
    if isinstance(node, Function) and not any(isinstance(item, Definition) for item in node.body):
        return  # most of them: annotations of local variables are not evaluated
    own = module.names_of(node) if isinstance(node, Definition) else set().union(*map(bound_names, node.body))
    given = {item.arg for item in parameters(node)} if isinstance(node, Function) else set()
    scope = _Scope(node, frozenset(own), given)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):  # whose name has its value by then
            scope.before.update(bound_names(statement))
        annotations = [] if isinstance(node, Function) and isinstance(statement, ast.AnnAssign) else _annotations(statement)
        for name in (name for annotation in annotations for name in _read_always(annotation)):
            if _is_unbound(module, name.id, statement, (*outer, scope)):
                yield name
        if isinstance(statement, Definition):
            yield from _unbound(module, statement, (*outer, scope))
        scope.before.update(_bound(module, statement))


def _annotations(statement: ast.stmt) -> list[ast.expr]:
    """The annotations of a statement, which are evaluated with it outside of functions."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.annotation]
    if not isinstance(statement, Function):
        return []
    found = [*(item.annotation for item in parameters(statement)), statement.returns]
    return [annotation for annotation in found if annotation is not None]


def _read_always(annotation: ast.expr) -> Iterator[ast.Name]:
    """The names that evaluating an annotation reads; none of one that has conditions or names of its own."""
    parts = list(inside(annotation, ast.expr))
    if not any(isinstance(part, _NOT_ALWAYS) for part in parts):
        yield from (part for part in parts if isinstance(part, ast.Name))


def _is_unbound(module: Module, name: str, statement: ast.stmt, scopes: tuple[_Scope, ...]) -> bool:
    """Whether a name is certainly not bound when the annotations of a statement in the last of these scopes are evaluated."""
    generic = (statement, *(scope.node for scope in scopes))
    if name in BUILTINS or any(name in _type_parameters(node) for node in generic) or name in _bound_elsewhere(module):
        return False
    running = next(scope for scope in reversed(scopes) if not isinstance(scope.node, ast.ClassDef))
    in_class = False
    for scope in reversed(scopes):
        if isinstance(scope.node, ast.ClassDef):  # no scope inside of a class sees its names
            if scope is scopes[-1]:
                in_class = name in scope.every
                if name in scope.before:
                    return False
        elif isinstance(scope.node, Function):
            if name in scope.every:  # an outer function may have gone on by then
                return scope is running and name not in scope.before
        elif running is scope:
            late = name not in scope.before and (in_class or name in scope.every)
            return late and not any(line <= statement.lineno for line in _unseen(module))
        else:  # a function runs when the module is through, or nobody knows when
            late = name not in set().union(*(_bound(module, item) for item in module.tree.body))
            return late and (in_class or name in scope.every) and not _unseen(module)
    return False


def _type_parameters(node: ast.AST) -> set[str]:
    """What `class A[T]` or `def f[T]()` calls its type parameters, since Python 3.12."""
    return {item.name for item in getattr(node, "type_params", ())}


def _bound(module: Module, statement: ast.stmt) -> set[str]:
    """The names that a statement may bind when it runs, which no type checker does."""
    if isinstance(statement, ast.If) and (module.expand(statement.test) or "").endswith(".TYPE_CHECKING"):
        return set().union(*map(bound_names, statement.orelse))
    return bound_names(statement)


def _bound_elsewhere(module: Module) -> set[str]:
    """Names that a function may bind outside of itself, and those that an expression binds, such as a default value."""
    statements: list[ast.Global | ast.Nonlocal] = [*module.of_kind(ast.Global), *module.of_kind(ast.Nonlocal)]
    given = {name for node in statements for name in node.names}
    return given | {node.target.id for node in module.of_kind(ast.NamedExpr)}


def _unseen(module: Module) -> list[int]:
    """The lines by which a file may bind names that it does not show."""
    stars = [node.lineno for node in module.of_kind(ast.ImportFrom) if node.names[0].name == "*"]
    calls = [call for call in module.of_kind(ast.Call) if dotted(call.func) in _WRITES]
    return stars + [call.lineno for call in calls if dotted(call.func) != "vars" or not call.args]


def _reads_annotations(module: Module) -> bool:
    """Whether a file takes annotations for objects, and not for text."""
    read = {node.attr for node in module.of_kind(ast.Attribute)} | {*module.imports}
    if read & {"__annotations__", "get_annotations"} or "torch.jit.script" in module.references:
        return True
    if "annotation" in read and any(name.partition(".")[0] == "inspect" for name in module.imports.values()):
        return True
    return "type" in read and "dataclasses.fields" in module.references


def _names_locals(module: Module) -> bool:
    """Whether a decorator gets a function whose annotations name what another function holds: as text nobody finds that."""
    functions: list[Function] = [*module.of_kind(ast.FunctionDef), *module.of_kind(ast.AsyncFunctionDef)]
    for function in functions:
        outer = [item for item in module.ancestors(function) if isinstance(item, Function)]
        if not outer or not function.decorator_list:
            continue
        held = set().union(*map(module.names_of, outer))
        if any(node.id in held for item in _annotations(function) for node in inside(item, ast.Name)):
            return True
    return False


def _edit(positions: Positions, tree: ast.Module, imports: list[ast.ImportFrom]) -> Edit:
    """The import, together with one from `__future__`, else above the first statement below the docstring."""
    if imports:
        end = positions.span(imports[0].names[-1])[1]
        return Edit(end, end, ", annotations")
    first = tree.body[1] if is_docstring(tree.body[0]) else tree.body[0]
    line = min(item.lineno for item in (first, *getattr(first, "decorator_list", ())))
    start, newline = positions.starts[line - 1], positions.newline(line)
    if not positions.starts_line(first) or positions.continues(line - 1):
        start = positions.span(first)[0]
        return Edit(start, start, f"{_IMPORT}; ")
    text = f"{_IMPORT}{newline * (3 if isinstance(first, Definition) else 2)}"
    # With the end of the line before, so that it comes first where another rule imports something at this place, too.
    before = positions.text[start - 1 : start]
    return Edit(start - len(before), start, before + text)
