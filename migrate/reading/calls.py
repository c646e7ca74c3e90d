"""Calls and the functions they reach: which argument meets which parameter, and functions reduced to some of theirs."""

import ast
import copy

from .nodes import arguments_of, defaults_of, keyword_of, text_of
from .scopes import Function, Module, Repository, last_name


class SliceError(Exception):
    """The way from a point to its program could not be followed; the text says where and why."""


class Calls:
    """Every call of a repository by the callee's last name."""

    def __init__(self, repository: Repository) -> None:
        self.by_name: dict[str, list[tuple[Module, ast.Call]]] = {}
        self.passed: dict[str, list[tuple[Module, ast.Call]]] = {}
        """Calls to which a name is passed as an argument: `mp.spawn(main_worker, ...)`."""
        for module in repository.modules.values():
            for node in module.calls:
                self.by_name.setdefault(last_name(node.func), []).append((module, node))
                for value in arguments_of(node):
                    if isinstance(value, ast.Name):
                        self.passed.setdefault(value.id, []).append((module, node))


def bind(function: Function, call: ast.Call, *, skip: int) -> dict[str, ast.expr]:
    """The argument expressions of a call by parameter name; `skip` leading parameters are bound otherwise (self)."""
    positional = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]][skip:]
    bound: dict[str, ast.expr] = {}
    for name, value in zip(positional, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        bound[name] = value
    bound |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return bound


def substitute(node: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """The expression with names replaced by expressions."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return copy.deepcopy(values[name.id]) if name.id in values else name

    return ast.fix_missing_locations(Replace().visit(copy.deepcopy(node)))


def reduce_function(
    module: Module, function: Function, used: list[str], kept: list[ast.stmt], result: ast.expr, arguments: dict[str, ast.expr]
) -> tuple[ast.FunctionDef, ast.expr]:
    """A function with only the parameters and statements that matter, returning `result`; and the call of it."""
    defaults = default_values(function)
    ordered = [name for name in used if name not in defaults] + [name for name in used if name in defaults]
    for name in ordered:
        if name not in arguments and name not in defaults:
            raise SliceError(
                f"{module.path}:{function.lineno}: nothing in the repository says what {function.name} gets as {name!r}"
            )
    reduced = ast.FunctionDef(
        name=function.name,
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name) for name in ordered],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[defaults[name] for name in ordered if name in defaults],
        ),
        body=[*kept, ast.Return(result)],
        decorator_list=[],
    )
    ast.copy_location(reduced, function)
    given = [name for name in ordered if name in arguments]
    gaps = given != ordered[: len(given)]
    call = ast.Call(
        ast.Name(function.name, ast.Load()),
        [] if gaps else [arguments[name] for name in given],
        [ast.keyword(name, arguments[name]) for name in given] if gaps else [],
    )
    return ast.fix_missing_locations(reduced), ast.fix_missing_locations(ast.copy_location(call, function))


def default_values(function: Function) -> dict[str, ast.expr]:
    """Default expressions by parameter; those that click's `option` decorators state count too."""
    found = defaults_of(function)
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) in ("option", "argument"):
            stated = keyword_of(decorator, "default")
            default = stated.value if stated is not None else ast.Constant(False) if keyword_of(decorator, "is_flag") else None
            for name in filter(None, map(text_of, decorator.args)):
                if default is not None:
                    found.setdefault(name.lstrip("-").replace("-", "_"), default)
    return found


def spread(site: ast.Call) -> ast.Call:
    """`mp.spawn(worker, nprocs=n, args=(a, b))` as the call `worker(0, a, b)`; `Process(target=worker, args=(a,))` likewise."""
    given = keyword_of(site, "args")
    values = list(given.value.elts) if given is not None and isinstance(given.value, ast.Tuple | ast.List) else []
    if last_name(site.func) == "spawn":
        values.insert(0, ast.Constant(0))
    return ast.fix_missing_locations(ast.copy_location(ast.Call(site.func, values, []), site))
