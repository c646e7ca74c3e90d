"""Follow a value backward through a repository: from a name, an attribute or an entry to the places where it is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..reading.calls import Calls, bind, substitute
from ..reading.scopes import Function, Module, bound_names, last_name, parameters
from ..survey.transforms import phase_of

_EVALUATION_KEYS = ("test", "val", "valid", "validation", "eval", "dev")


@dataclass(frozen=True)
class Place:
    """An expression and where it stands; `stack` are the calls through which its function was reached, innermost first."""

    module: Module
    function: Function | None
    statement: ast.stmt | None
    expression: ast.expr
    stack: tuple[tuple[Module, ast.Call], ...] = ()
    index: int | None = None
    """Which element of a returned tuple is meant."""

    def at(self, expression: ast.expr, **changes: object) -> Place:
        return replace(self, expression=expression, index=None, **changes)  # type: ignore[arg-type]


class Sources:
    """Answers for one repository, as seen from one entry file."""

    def __init__(self, calls: Calls, entry: Module) -> None:
        self.calls = calls
        self.entry = entry

    def of(self, place: Place) -> Iterator[Place]:
        """The places where the value of a name or attribute may come from, the nearest first."""
        node = place.expression
        if isinstance(node, ast.Attribute):
            yield from self._attribute(place, node)
            return
        assert isinstance(node, ast.Name)
        if place.function is not None:
            found = False
            for source in self._assigned(place, place.function, node.id):
                found = True
                yield source
            if found:
                return
            if node.id in {argument.arg for argument in parameters(place.function)}:
                yield from self.call_sites(place, place.function, node.id)
                return
            outer = place.module.function_of(place.function)
            if outer is not None:
                yield from self.of(replace(place, function=outer, statement=None))
                return
        if node.id in place.module.imports:
            module_name, _, attribute = place.module.imports[node.id].rpartition(".")
            other = place.module.repository.module(module_name, place.module.path)
            if other is not None:
                yield from self._assigned(Place(other, None, None, node), other.tree, attribute)
            return
        statement = place.statement if place.function is None else None
        yield from self._assigned(Place(place.module, None, statement, node), place.module.tree, node.id)

    def _assigned(self, place: Place, scope: ast.AST, name: str) -> Iterator[Place]:
        before = place.statement.lineno if place.statement is not None else 10**9
        function = scope if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None
        found: list[tuple[int, Place]] = []
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and node.lineno < before and place.module.function_of(node) is function:
                for target in node.targets:
                    inside = Place(place.module, function, node, node.value, place.stack if function is place.function else ())
                    if isinstance(target, ast.Name) and target.id == name:
                        found.append((node.lineno, inside))
                    elif isinstance(target, ast.Tuple | ast.List):
                        for index, element in enumerate(target.elts):
                            if isinstance(element, ast.Name) and element.id == name:
                                found.append((node.lineno, replace(inside, index=index)))
            elif isinstance(node, ast.For | ast.AsyncFor) and name in bound_names(node.target):
                found.append((node.lineno, Place(place.module, function, node, node.iter, place.stack)))
        for _, item in sorted(found, key=lambda pair: -pair[0]):
            yield item

    def call_sites(self, place: Place, function: Function, name: str) -> Iterator[Place]:
        """What the calls of a function give for one of its parameters."""
        skip = 1 if place.module.class_of(function) is not None else 0
        sites = [place.stack[0]] if place.stack else self._callers(place.module, function)
        for where, call in sites:
            arguments = bind(function, call, skip=skip)
            if name in arguments:
                caller, statement = where.function_of(call), where.statement_of(call)
                yield Place(where, caller, statement, arguments[name], place.stack[1:])

    def _callers(self, module: Module, function: Function) -> list[tuple[Module, ast.Call]]:
        owner = module.class_of(function)
        name = owner.name if owner is not None and function.name == "__init__" else function.name
        sites = []
        for where, call in self.calls.by_name.get(name, []):
            found = where.find_callee(call.func)
            if (found is not None and found[1] in (function, owner)) or (
                owner is not None and isinstance(call.func, ast.Attribute)
            ):
                sites.append((where, call))
            elif found is None and isinstance(call.func, ast.Name) and where is module and where.function_of(call) is not None:
                sites.append((where, call))  # a function nested in another
        # evaluation may call the function with the training loader too: calls that speak of evaluation first
        return sorted(sites, key=lambda site: (site[0] is not self.entry, not _speaks_of_evaluation(site[1])))

    def _attribute(self, place: Place, node: ast.Attribute) -> Iterator[Place]:
        if node.attr == "dataset":
            yield place.at(node.value)
            return
        function = place.function
        owner = place.module.class_of(function) if function is not None else None
        where: Module = place.module
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            owner = None
            for source in self.of(place.at(node.value)) if isinstance(node.value, ast.Name) else ():
                if isinstance(source.expression, ast.Call):
                    found = source.module.find_callee(source.expression.func)
                    if found is not None and isinstance(found[1], ast.ClassDef):
                        where, owner = found[0], found[1]
                        break
            if owner is None and isinstance(node.value, ast.Name) and node.value.id in place.module.imports:
                other = place.module.repository.module(place.module.imports[node.value.id], place.module.path)
                if other is not None:
                    yield from self._assigned(Place(other, None, None, node), other.tree, node.attr)
                return
        if owner is None:
            return
        for inner in ast.walk(owner):
            if not isinstance(inner, ast.Assign):
                continue
            for target in inner.targets:
                elements = target.elts if isinstance(target, ast.Tuple) else [target]
                for index, element in enumerate(elements):
                    if isinstance(element, ast.Attribute) and element.attr == node.attr and last_name(element.value) == "self":
                        method = where.function_of(inner)
                        yield Place(where, method, inner, inner.value, (), index if isinstance(target, ast.Tuple) else None)

    def items(self, place: Place, node: ast.Subscript) -> Iterator[Place]:
        """What `loaders["val"]` denotes: the entry of a dict literal or of a comprehension over names."""
        key = self._key(place, node.slice)
        containers = (
            list(self.of(place.at(node.value))) if isinstance(node.value, ast.Name | ast.Attribute) else [place.at(node.value)]
        )
        for container in containers:
            value = container.expression
            if isinstance(value, ast.Dict):
                for item, entry in zip(value.keys, value.values, strict=True):
                    if isinstance(item, ast.Constant) and item.value == key:
                        yield container.at(entry)
            elif isinstance(value, ast.DictComp) and key is not None and isinstance(value.key, ast.Name):
                yield container.at(substitute(value.value, {value.key.id: ast.Constant(key)}))
            elif isinstance(value, ast.Tuple | ast.List) and isinstance(key, int) and -len(value.elts) <= key < len(value.elts):
                yield container.at(value.elts[key])
            elif isinstance(value, ast.Call) and isinstance(key, int):
                yield replace(container, index=key)

    def _key(self, place: Place, node: ast.expr) -> str | int | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int):
            return node.value
        if isinstance(node, ast.Name):
            for source in self.of(place.at(node)):
                value = source.expression
                if isinstance(value, ast.Tuple | ast.List):
                    keys = [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
                    return next((key for known in _EVALUATION_KEYS for key in keys if key.lower().startswith(known)), None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str | int):
                    return value.value
        return None


def _speaks_of_evaluation(call: ast.Call) -> bool:
    return any(
        phase_of(ast.unparse(argument)) == "evaluate" for argument in [*call.args, *(item.value for item in call.keywords)]
    )
