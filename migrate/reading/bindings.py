"""Names in a piece of Python code: what it reads, and what it binds."""

import ast
from collections.abc import Container, Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
NameUse = tuple[str, str | None]
"""A name in use, whole, or only one attribute of it: ("args", "arch")."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def dotted(node: ast.AST | None) -> str | None:
    """ "a.b.c" for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def root_of(node: ast.AST) -> str | None:
    """The name at the bottom of a chain of attributes, subscripts and calls: `a` for `a.b[0].c()`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return node.id if isinstance(node, ast.Name) else None


def use_of(node: ast.AST) -> NameUse | None:
    """What an expression that denotes a place uses: ("args", "arch") for `args.arch.x[0]`, ("a", None) for `a`."""
    last: str | None = None
    while True:
        if isinstance(node, ast.Attribute):
            last = node.attr
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred):
            last = None
            node = node.value
        else:
            return (node.id, last) if isinstance(node, ast.Name) else None


def last_name(node: ast.AST) -> str:
    """The rightmost identifier of a callee: "load" for `torch.load`, "" when there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """Every parameter, in order, with *args and **kwargs last."""
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]


def targets_of(node: ast.AST) -> Iterator[ast.expr]:
    """The elementary targets of an assignment target: names, attributes and subscripts."""
    if isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from targets_of(element)
    elif isinstance(node, ast.Starred):
        yield from targets_of(node.value)
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        yield node


def bound_names(node: ast.AST) -> set[str]:
    """Names that a statement binds in its own scope, nested statements included, nested scopes not."""
    names: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(current.name)
            continue
        if isinstance(current, ast.Lambda):
            continue
        if isinstance(current, COMPREHENSIONS):  # whose own names stay inside, but for those that `:=` binds
            names.update(item.target.id for item in ast.walk(current) if isinstance(item, ast.NamedExpr))
            continue
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Store | ast.Del):
            names.add(current.id)
        elif isinstance(current, ast.alias):
            names.add(current.asname or current.name.partition(".")[0])
        elif isinstance(current, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and current.name:
            names.add(current.name)
        elif isinstance(current, ast.MatchMapping) and current.rest:
            names.add(current.rest)
        stack.extend(ast.iter_child_nodes(current))
    return names


def local_names(function: Function | ast.Lambda) -> set[str]:
    """Names local to a function: parameters and what its body binds, without `global` and `nonlocal` ones."""
    names = {argument.arg for argument in parameters(function)}
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    outer: set[str] = set()
    for statement in body:
        names |= bound_names(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Global | ast.Nonlocal):
                outer.update(node.names)
    return names - outer


def reads(node: ast.AST | Iterable[ast.AST] | None, modules: Container[str] = ()) -> set[NameUse]:
    """The names from outside that a piece of code reads, with nested functions, lambdas and comprehensions looked into.

    Calling a method reads the whole object, unless its name is one of `modules`.
    """
    found: set[NameUse] = set()
    for item in [node] if isinstance(node, ast.AST) else node or ():
        _collect(item, found, frozenset())
        for inner in ast.walk(item):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Name):
                name = inner.func.value.id
                if (
                    name not in modules
                    and (name, inner.func.attr) in found
                    and not inner.func.attr.startswith(("parse_", "add_argument"))
                ):
                    found.add((name, None))
    return found


def _collect(node: ast.AST, found: set[NameUse], hidden: frozenset[str]) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            found.add((node.id, None))
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id not in hidden:
            found.add((node.value.id, None if node.attr == "__dict__" else node.attr))
        return
    if isinstance(node, FUNCTIONS):
        inner = hidden | local_names(node)
        for argument in parameters(node):
            if argument.annotation:
                _collect(argument.annotation, found, hidden)
        for outside in [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]:
            if outside is not None:
                _collect(outside, found, hidden)
        if getattr(node, "returns", None):
            _collect(node.returns, found, hidden)  # type: ignore[union-attr, arg-type]
        for inside in [node.body] if isinstance(node, ast.Lambda) else node.body:
            _collect(inside, found, inner)
        return
    if isinstance(node, ast.ClassDef):
        for outside in [*node.bases, *(keyword.value for keyword in node.keywords), *node.decorator_list]:
            _collect(outside, found, hidden)
        for inside in node.body:  # a class body's names are not seen by its methods, but reading one name too many is harmless
            _collect(inside, found, hidden)
        return
    if isinstance(node, COMPREHENSIONS):
        hidden |= {
            name for generator in node.generators for target in targets_of(generator.target) for name in bound_names(target)
        }
    for child in ast.iter_child_nodes(node):
        _collect(child, found, hidden)
