"""Read code between an opened image file and a model's input as one callable."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import Literal

from ..reading.scopes import Function, Module, bound_names, last_name

_PILLOW = frozenset(["PIL.Image.open", "Image.open"])
_READERS = frozenset(["imread", "read_image", "pil_loader", "default_loader", "load_img", "decode_image"])
_OUTER_METHODS = frozenset(
    ["to", "cuda", "cpu", "float", "unsqueeze", "unsqueeze_", "requires_grad_", "contiguous", "type", "half", "view"]
)
_OUTER_CALLS = frozenset(["unsqueeze", "Variable", "expand_dims", "stack", "cat", "batch"])


@dataclass(frozen=True)
class Opened:
    """`callable` is an expression, valid just before `statement`; `convert` a PIL mode that the image is brought to first."""

    callable: ast.expr
    takes: Literal["image", "path"]
    convert: str | None
    statement: ast.stmt
    line: int


def opened_image(module: Module, function: Function | None, statement: ast.stmt | None, value: ast.expr) -> Opened | None:
    """The callable that makes `value` out of an image file, when all its steps stand in this scope; None otherwise."""
    scope = function if function is not None else module.tree
    inliner = _Inliner(module, scope)
    whole = _strip(inliner.inline(copy.deepcopy(value), statement.lineno if statement is not None else 10**9, 0))
    openings = [node for node in ast.walk(whole) if isinstance(node, ast.Call) and _opens(module, node)]
    if len({ast.dump(node) for node in openings}) != 1:
        return None
    pillow = (module.expand(openings[0].func) or "") in _PILLOW
    name: Literal["image", "path"] = "image" if pillow else "path"
    key = ast.dump(openings[0])

    class Cut(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            if ast.dump(node) == key:
                if pillow:
                    return ast.Name(name, ast.Load())
                made = copy.deepcopy(node)
                made.args = [ast.Name(name, ast.Load()), *made.args[1:]]
                return made
            return self.generic_visit(node)

    body = Cut().visit(whole)
    line = inliner.line or (statement.lineno if statement is not None else 1)
    first = inliner.first or statement
    if first is None:
        return None
    if isinstance(body, ast.Call) and len(body.args) == 1 and not body.keywords and pillow:
        argument, convert = _mode(body.args[0])
        if isinstance(argument, ast.Name) and argument.id == "image":
            return Opened(body.func, "image", convert, first, line)
    if isinstance(body, ast.Name):
        return None
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg(name)], kwonlyargs=[], kw_defaults=[], defaults=[])
    return Opened(ast.fix_missing_locations(ast.Lambda(arguments, body)), name, None, first, line)


def _opens(module: Module, node: ast.Call) -> bool:
    expanded = module.expand(node.func) or ""
    return expanded in _PILLOW or (last_name(node.func) in _READERS and module.find_callee(node.func) is None)


def _mode(node: ast.expr) -> tuple[ast.expr, str | None]:
    """`image.convert("RGB")` taken apart into the image and the mode."""
    convert: str | None = None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("convert", "copy"):
        if node.func.attr == "convert" and convert is None and node.args and isinstance(node.args[0], ast.Constant):
            convert = str(node.args[0].value)
        node = node.func.value
    return node, convert


def _strip(node: ast.expr) -> ast.expr:
    """Take off what makes a batch of one and moves it to a device."""
    while True:
        method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if isinstance(node, ast.Call) and method is not None and method.attr in _OUTER_METHODS:
            free = isinstance(method.value, ast.Name) and method.value.id == "torch"  # torch.unsqueeze(x, 0)
            node = node.args[0] if free and node.args else method.value
        elif isinstance(node, ast.Call) and last_name(node.func) in _OUTER_CALLS and node.args:
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value is None:
            node = node.value
        elif isinstance(node, ast.List) and len(node.elts) == 1:
            node = node.elts[0]
        else:
            return node


class _Inliner:
    """Replaces local names that lead to an opened image by what they were last bound to."""

    def __init__(self, module: Module, scope: ast.AST) -> None:
        self.module = module
        self.function = scope if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None
        self.line = 0
        self.first: ast.stmt | None = None
        self.bindings: list[tuple[int, str, ast.expr, ast.stmt]] = []
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                if module.function_of(node) is self.function:
                    self.bindings.append((node.lineno, node.targets[0].id, node.value, node))
            elif isinstance(node, ast.With | ast.AsyncWith):
                for item in node.items:
                    if isinstance(item.optional_vars, ast.Name):
                        self.bindings.append((node.lineno, item.optional_vars.id, item.context_expr, node))
        self.bindings.sort(key=lambda item: item[0])

    def inline(self, node: ast.expr, before: int, depth: int) -> ast.expr:
        if depth > 25:
            return node
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
        if isinstance(node, ast.Lambda | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp):
            names -= {
                name for inner in ast.walk(node) if isinstance(inner, ast.comprehension) for name in bound_names(inner.target)
            }
        values: dict[str, ast.expr] = {}
        for name in names:
            found = [item for item in self.bindings if item[1] == name and item[0] < before]
            if not found:
                continue
            line, _, value, statement = found[-1]
            inlined = self.inline(copy.deepcopy(value), line, depth + 1)
            if any(isinstance(inner, ast.Call) and _opens(self.module, inner) for inner in ast.walk(inlined)):
                values[name] = inlined
                if self.first is None or statement.lineno < self.first.lineno:
                    self.first = statement
                self.line = max(self.line, line)

        class Replace(ast.NodeTransformer):
            def visit_Name(self, inner: ast.Name) -> ast.AST:
                return copy.deepcopy(values[inner.id]) if inner.id in values and isinstance(inner.ctx, ast.Load) else inner

        return Replace().visit(node) if values else node
