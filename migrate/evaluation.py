"""Find the transform that evaluation applies to an image: from the model's call back through loader, data set and functions.

The result is a point in the code and an expression there; `frames` makes the program that computes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .frames import Calls, Point, bind, substitute
from .loops import CallSite
from .opened import Opened, opened_image
from .scopes import Function, Module, bound_names, last_name, parameters
from .transforms import is_composed, is_random, phase_of

_WRAPPERS = frozenset(["enumerate", "tqdm", "trange", "zip", "iter", "list", "islice", "track", "progress_bar", "reversed"])
_DATASETS = frozenset(
    ["Subset", "random_split", "ConcatDataset", "DataLoader", "MultiEpochsDataLoader", "create_loader", "cycle"]
)
_TRANSFORM = re.compile(r"transform|preproc|augment|tfm|^tf$|_tf$", re.I)
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


@dataclass(frozen=True)
class EvaluationTransform:
    """`point` computes a callable that takes a PIL image ("image") or a file's path ("path")."""

    point: Point
    stack: tuple[tuple[Module, ast.Call], ...]
    takes: str
    convert: str | None
    """The PIL mode that the image is brought to first, where the code says it."""
    path: str
    line: int
    definition: ast.expr
    """The expression that makes the callable, as far as names could be followed; at `path` and `line`."""


class Tracer:
    """Follows data backward through one repository; `caller` finds the call of a function that nothing on the stack called."""

    def __init__(self, calls: Calls, entry: Module) -> None:
        self.calls = calls
        self.entry = entry
        self._steps = 0

    def transform(self, site: CallSite) -> EvaluationTransform | None:
        """The transform of one model call, or None when the way is lost."""
        statement = site.module.statement_of(site.call)
        if site.loop is not None:
            place = Place(site.module, site.function, site.loop, site.loop.iter)
            if (found := self.dataset(place)) is not None:
                return found
        return self.prediction(Place(site.module, site.function, statement, site.call.args[0]))

    # -- from a loader to a transform

    def dataset(self, place: Place) -> EvaluationTransform | None:
        """The transform of the data set behind an expression."""
        self._steps += 1
        if self._steps > 400:
            return None
        node = place.expression
        if isinstance(node, ast.Tuple | ast.List) and place.index is not None and place.index < len(node.elts):
            return self.dataset(place.at(node.elts[place.index]))
        if isinstance(node, ast.Name | ast.Attribute):
            for source in self.sources(place):
                if (found := self.dataset(source)) is not None:
                    return found
            return None
        if isinstance(node, ast.Subscript):
            return next((found for item in self.items(place, node) if (found := self.dataset(item)) is not None), None)
        if isinstance(node, ast.IfExp):
            return self.dataset(place.at(node.orelse)) or self.dataset(place.at(node.body))
        if isinstance(node, ast.Call):
            return self._call(place, node)
        return None

    def _call(self, place: Place, node: ast.Call) -> EvaluationTransform | None:
        name = last_name(node.func)
        target = place.module.find_callee(node.func)
        if target is not None and isinstance(target[1], ast.ClassDef):
            if (found := self._dataset_class(place, node, target[0], target[1])) is not None:
                return found
        for keyword in node.keywords:
            if (
                keyword.arg
                and _TRANSFORM.search(keyword.arg)
                and "target" not in keyword.arg
                and phase_of(keyword.arg) != "train"
            ):
                if (found := self._accept(place.at(keyword.value), convert=self._mode(place.module, node))) is not None:
                    return found
        if target is not None and isinstance(target[1], ast.FunctionDef | ast.AsyncFunctionDef):
            return self._function(place, node, target[0], target[1])
        if target is None and name not in _WRAPPERS | _DATASETS:
            for argument in node.args:
                if self._composes(place.at(argument)):
                    return self._accept(place.at(argument), convert=self._mode(place.module, node))
        inner = [keyword.value for keyword in node.keywords if keyword.arg in ("dataset", "data_source", "loader", "iterable")]
        for argument in [*inner, *node.args]:
            if isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                if (found := self.dataset(place.at(argument))) is not None:
                    return found
        if isinstance(node.func, ast.Attribute) and not node.args:
            return self.dataset(place.at(node.func.value))
        return None

    def _function(self, place: Place, node: ast.Call, module: Module, function: Function) -> EvaluationTransform | None:
        stack = ((place.module, node), *place.stack)
        for inner in ast.walk(function):
            if isinstance(inner, ast.Return) and inner.value is not None and module.function_of(inner) is function:
                value, index = inner.value, place.index
                if isinstance(value, ast.Tuple) and index is not None and index < len(value.elts):
                    value, index = value.elts[index], None
                found = self.dataset(Place(module, function, inner, value, stack, index))
                if found is not None:
                    return found
        return None

    def _dataset_class(self, place: Place, node: ast.Call, module: Module, owner: ast.ClassDef) -> EvaluationTransform | None:
        methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
        getter, init = methods.get("__getitem__"), methods.get("__init__")
        opened = None
        if getter is not None:
            opened = self._getter(module, getter)
        convert = opened.convert if opened is not None else self._mode(place.module, node)
        if init is not None:
            arguments = bind(init, node, skip=1)
            for name in [argument.arg for argument in parameters(init)[1:]]:
                if _TRANSFORM.search(name) and "target" not in name and name in arguments and phase_of(name) != "train":
                    if (found := self._accept(place.at(arguments[name]), convert=convert)) is not None:
                        return found
            for inner in ast.walk(init):
                if isinstance(inner, ast.Assign) and any(_TRANSFORM.search(ast.unparse(target)) for target in inner.targets):
                    stack = ((place.module, node), *place.stack)
                    inside = Place(module, init, inner, inner.value, stack)
                    if self._composes(inside) and (found := self._accept(inside, convert=convert)) is not None:
                        return found
        if opened is not None and getter is not None and not _reads_self(opened.callable):
            return self._opened(Place(module, getter, opened.statement, opened.callable), opened)
        return None

    def _getter(self, module: Module, getter: Function) -> Opened | None:
        for inner in ast.walk(getter):
            if isinstance(inner, ast.Return) and inner.value is not None:
                value = inner.value.elts[0] if isinstance(inner.value, ast.Tuple) and inner.value.elts else inner.value
                if (found := opened_image(module, getter, inner, value)) is not None:
                    return found
        return None

    def _mode(self, module: Module, node: ast.Call) -> str | None:
        """What torchvision's own data sets hand to their transform."""
        name = last_name(node.func)
        if name in (
            "ImageFolder",
            "DatasetFolder",
            "CIFAR10",
            "CIFAR100",
            "ImageNet",
            "SVHN",
            "STL10",
            "Flowers102",
            "Food101",
        ):
            return "RGB"
        return "L" if re.search(r"MNIST|USPS", name) else None

    def _composes(self, place: Place, depth: int = 0) -> bool:
        """Whether an expression leads to a composed transform."""
        node = place.expression
        if is_composed(place.module, node):
            return True
        if depth > 5:
            return False
        if isinstance(node, ast.Name):
            return any(self._composes(source, depth + 1) for source in self.sources(place))
        if isinstance(node, ast.Subscript):
            return any(self._composes(item, depth + 1) for item in self.items(place, node))
        return isinstance(node, ast.Call) and bool(_TRANSFORM.search(last_name(node.func)))

    def _accept(self, place: Place, *, convert: str | None) -> EvaluationTransform | None:
        node = place.expression
        if isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id == "None"):
            return None
        if self._augments(place):
            return None
        if isinstance(node, ast.Name):  # a parameter is best asked for where its value is made
            parameter = place.function is not None and node.id in {item.arg for item in parameters(place.function)}
            sources = list(self.sources(place))
            if parameter and len(sources) == 1:
                return self._accept(sources[0], convert=convert)
        point = Point(place.module, place.function, place.statement, node)
        made = self._definition(place)
        return EvaluationTransform(
            point, place.stack, "image", convert, made.module.path, getattr(made.expression, "lineno", 1), made.expression
        )

    def _augments(self, place: Place, depth: int = 0) -> bool:
        if is_composed(place.module, place.expression):
            return is_random(place.expression)
        if depth < 5 and isinstance(place.expression, ast.Name | ast.Subscript):
            sources = self.sources(place) if isinstance(place.expression, ast.Name) else self.items(place, place.expression)
            return any(self._augments(source, depth + 1) for source in sources)
        return False

    def _definition(self, place: Place, depth: int = 0) -> Place:
        if depth < 8 and isinstance(place.expression, ast.Name | ast.Subscript | ast.Attribute):
            sources = (
                self.items(place, place.expression) if isinstance(place.expression, ast.Subscript) else self.sources(place)
            )
            for source in sources:
                return self._definition(source, depth + 1)
        return place

    # -- from a name to where its value is made

    def sources(self, place: Place) -> Iterator[Place]:
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
                yield from self._argument(place, place.function, node.id)
                return
            outer = place.module.function_of(place.function)
            if outer is not None:
                yield from self.sources(replace(place, function=outer, statement=None))
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

    def _argument(self, place: Place, function: Function, name: str) -> Iterator[Place]:
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
            for source in self.sources(place.at(node.value)) if isinstance(node.value, ast.Name) else ():
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
            list(self.sources(place.at(node.value)))
            if isinstance(node.value, ast.Name | ast.Attribute)
            else [place.at(node.value)]
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
            for source in self.sources(place.at(node)):
                value = source.expression
                if isinstance(value, ast.Tuple | ast.List):
                    keys = [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
                    return next((key for known in _EVALUATION_KEYS for key in keys if key.lower().startswith(known)), None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str | int):
                    return value.value
        return None

    # -- from a prediction's input to a transform

    def prediction(self, place: Place) -> EvaluationTransform | None:
        """The callable that makes a model's input out of an opened image, or out of its path."""
        self._steps += 1
        if self._steps > 400:
            return None
        opened = opened_image(place.module, place.function, place.statement, place.expression)
        if opened is not None:
            return self._opened(replace(place, statement=opened.statement, expression=opened.callable), opened)
        for call in _calls_toward(place):
            target = place.module.find_callee(call.func)
            if target is None or isinstance(target[1], ast.ClassDef):
                continue
            module, function = target[0], target[1]
            for inner in ast.walk(function):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    stack = ((place.module, call), *place.stack)
                    found = self.prediction(Place(module, function, inner, inner.value, stack))
                    if found is not None:
                        return found
        if place.function is not None:
            for source in self._parameter_sources(place):
                if (found := self.prediction(source)) is not None:
                    return found
        return None

    def _opened(self, place: Place, opened: Opened) -> EvaluationTransform:
        point = Point(place.module, place.function, place.statement, place.expression)
        made = self._definition(place) if isinstance(place.expression, ast.Name) else place
        path, line = made.module.path, getattr(made.expression, "lineno", opened.line)
        target = place.module.find_callee(place.expression)
        if made is place:
            path, line = (target[0].path, target[1].lineno) if target is not None else (path, opened.line)
        return EvaluationTransform(point, place.stack, opened.takes, opened.convert, path, line, made.expression)

    def _parameter_sources(self, place: Place) -> Iterator[Place]:
        assert place.function is not None
        names = {argument.arg for argument in parameters(place.function)}
        for node in ast.walk(place.expression):
            if isinstance(node, ast.Name) and node.id in names and not place.stack:
                yield from self._argument(place, place.function, node.id)


def _calls_toward(place: Place) -> list[ast.Call]:
    """The calls in an expression and in what its local names are bound to."""
    calls = [node for node in ast.walk(place.expression) if isinstance(node, ast.Call)]
    names = {node.id for node in ast.walk(place.expression) if isinstance(node, ast.Name)}
    scope: ast.AST = place.function or place.module.tree
    for _ in range(4):
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and any(name in names for target in node.targets for name in bound_names(target)):
                calls += [inner for inner in ast.walk(node.value) if isinstance(inner, ast.Call) and inner not in calls]
                names |= {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
    return calls


def _reads_self(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == "self" for inner in ast.walk(node))


def _speaks_of_evaluation(call: ast.Call) -> bool:
    return any(
        phase_of(ast.unparse(argument)) == "evaluate" for argument in [*call.args, *(item.value for item in call.keywords)]
    )
