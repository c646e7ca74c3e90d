"""Find the transform that evaluation applies to an image: from the model's call back through loader, data set and functions.

The result is a point in the code and an expression there; `interprocedural` makes the program that computes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ..reading.calls import Calls, bind
from ..reading.scopes import Function, Module, bound_names, last_name, parameters
from ..slicing.interprocedural import Point
from ..survey.lightning_module import LightningSite
from ..survey.loops import CallSite, TrainerSite, input_of
from ..survey.transforms import is_composed, is_random, phase_of
from .opened import Opened, opened_image
from .sources import Place, Sources

_WRAPPERS = frozenset(["enumerate", "tqdm", "trange", "zip", "iter", "list", "islice", "track", "progress_bar", "reversed"])
_DATASETS = frozenset(
    ["Subset", "random_split", "ConcatDataset", "DataLoader", "MultiEpochsDataLoader", "create_loader", "cycle"]
)
_TIMM_LOADERS = frozenset(["timm.data.create_loader", "timm.data.loader.create_loader"])
_LOADER_TO_TRANSFORM = frozenset(
    ["input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode", "crop_border_pixels", "tf_preprocessing"]
)
"""Arguments of timm's create_loader that it hands on to create_transform."""
_COLORED = frozenset(
    ["ImageFolder", "DatasetFolder", "CIFAR10", "CIFAR100", "ImageNet", "SVHN", "STL10", "Flowers102", "Food101"]
)
_TRANSFORM = re.compile(r"transform|preproc|augment|tfm|^tf$|_tf$", re.I)


@dataclass(frozen=True)
class EvaluationTransform:
    """`point` computes a callable that takes a PIL image ("image") or a file's path ("path")."""

    point: Point
    stack: tuple[tuple[Module, ast.Call], ...]
    takes: Literal["image", "path"]
    convert: str | None
    """The PIL mode that the image is brought to first, where the code says it."""
    path: str
    line: int
    definition: ast.expr
    """The expression that makes the callable, as far as names could be followed; at `path` and `line`."""


class Tracer:
    """Follows one model call's data backward; `entry` is the script whose calls of a function count first."""

    def __init__(self, calls: Calls, entry: Module) -> None:
        self.sources = Sources(calls, entry)
        self._steps = 0

    def transform(self, site: CallSite) -> EvaluationTransform | None:
        """The transform of one model call, or None when the way is lost."""
        statement = site.module.statement_of(site.call)
        if isinstance(site, TrainerSite):
            places = [Place(site.module, site.function, statement, loader) for loader in site.loaders]
            found = next((found for place in places if (found := self.dataset(place)) is not None), None)
            if found is None and isinstance(site, LightningSite):
                return self._loaders(site.owner.module, site.owner.node)
            return found
        if site.loop is not None:
            place = Place(site.module, site.function, site.loop, site.loop.iter)
            if (found := self.dataset(place)) is not None:
                return found
        given = input_of(site.call)
        return self.prediction(Place(site.module, site.function, statement, given)) if given is not None else None

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
            for source in self.sources.of(place):
                if (found := self.dataset(source)) is not None:
                    return found
            return None
        if isinstance(node, ast.Subscript):
            return next((found for item in self.sources.items(place, node) if (found := self.dataset(item)) is not None), None)
        if isinstance(node, ast.IfExp):
            return self.dataset(place.at(node.orelse)) or self.dataset(place.at(node.body))
        if isinstance(node, ast.Call):
            return self._call(place, node)
        return None

    def _call(self, place: Place, node: ast.Call) -> EvaluationTransform | None:
        name = last_name(node.func)
        target = place.module.find_callee(node.func)
        if (place.module.expand(node.func) or "") in _TIMM_LOADERS:
            return self._timm_loader(place, node)
        found: EvaluationTransform | None = None
        if target is not None and isinstance(target[1], ast.ClassDef):
            found = self._dataset_class(place, node, target[0], target[1])
        if found is not None:
            return found
        for keyword in node.keywords:
            if keyword.arg and _is_evaluation_transform(keyword.arg):
                found = self._accept(place.at(keyword.value), convert=_mode(node))
                if found is not None:
                    return found
        if target is not None and isinstance(target[1], ast.FunctionDef | ast.AsyncFunctionDef):
            return self._function(place, node, target[0], target[1])
        if target is None and name not in _WRAPPERS | _DATASETS:
            for argument in node.args:
                if self._composes(place.at(argument)):
                    return self._accept(place.at(argument), convert=_mode(node))
        inner = [keyword.value for keyword in node.keywords if keyword.arg in ("dataset", "data_source", "loader", "iterable")]
        for argument in [*inner, *node.args]:
            found = self.dataset(place.at(argument)) if not isinstance(argument, ast.Constant) else None
            if found is not None:
                return found
        if isinstance(node.func, ast.Attribute) and not node.args:
            return self.dataset(place.at(node.func.value))
        return None

    def _timm_loader(self, place: Place, node: ast.Call) -> EvaluationTransform | None:
        """The transform that `timm.data.create_loader` makes for its data set, where it does not train."""
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg in _LOADER_TO_TRANSFORM}
        if len(node.args) > 1:
            given["input_size"] = node.args[1]
        training = next((keyword.value for keyword in node.keywords if keyword.arg == "is_training"), ast.Constant(False))
        if not isinstance(training, ast.Constant) or training.value or len(node.args) > 3:
            return None
        made = ast.parse("__import__('timm.data').data.create_transform(is_training=False, use_prefetcher=False)", mode="eval")
        assert isinstance(made.body, ast.Call)
        made.body.keywords += [ast.keyword(name, value) for name, value in given.items()]
        call = ast.fix_missing_locations(ast.copy_location(made.body, node))
        point = Point(place.module, place.function, place.statement, call)
        return EvaluationTransform(point, place.stack, "image", "RGB", place.module.path, node.lineno, call)

    def _loaders(self, module: Module, owner: ast.ClassDef) -> EvaluationTransform | None:
        """The transform behind the loaders that a Trainer asks an object of a class for."""
        methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
        for name in ("test_dataloader", "val_dataloader", "predict_dataloader"):
            for inner in ast.walk(methods[name]) if name in methods else ():
                if isinstance(inner, ast.Return) and inner.value is not None:
                    found = self.dataset(Place(module, methods[name], inner, inner.value))
                    if found is not None:
                        return found
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
        if getter is None and (found := self._loaders(module, owner)) is not None:
            return found
        opened = None
        if getter is not None:
            opened = self._getter(module, getter)
        convert = opened.convert if opened is not None else _mode(node)
        if init is not None:
            arguments = bind(init, node, skip=1)
            for name in [argument.arg for argument in parameters(init)[1:]]:
                if name in arguments and _is_evaluation_transform(name):
                    found = self._accept(place.at(arguments[name]), convert=convert)
                    if found is not None:
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

    def _composes(self, place: Place, depth: int = 0) -> bool:
        """Whether an expression leads to a composed transform."""
        node = place.expression
        if is_composed(node):
            return True
        if depth > 5:
            return False
        if isinstance(node, ast.Name):
            return any(self._composes(source, depth + 1) for source in self.sources.of(place))
        if isinstance(node, ast.Subscript):
            return any(self._composes(item, depth + 1) for item in self.sources.items(place, node))
        return isinstance(node, ast.Call) and bool(_TRANSFORM.search(last_name(node.func)))

    def _accept(self, place: Place, *, convert: str | None) -> EvaluationTransform | None:
        node = place.expression
        if isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id == "None"):
            return None
        if self._augments(place):
            return None
        if isinstance(node, ast.Name):  # a parameter is best asked for where its value is made
            parameter = place.function is not None and node.id in {item.arg for item in parameters(place.function)}
            sources = list(self.sources.of(place))
            if parameter and len(sources) == 1:
                return self._accept(sources[0], convert=convert)
        point = Point(place.module, place.function, place.statement, node)
        made = self._definition(place)
        return EvaluationTransform(
            point, place.stack, "image", convert, made.module.path, getattr(made.expression, "lineno", 1), made.expression
        )

    def _augments(self, place: Place, depth: int = 0) -> bool:
        if is_composed(place.expression):
            return is_random(place.expression)
        if depth < 5 and isinstance(place.expression, ast.Name | ast.Subscript):
            sources = (
                self.sources.of(place)
                if isinstance(place.expression, ast.Name)
                else self.sources.items(place, place.expression)
            )
            return any(self._augments(source, depth + 1) for source in sources)
        return False

    def _definition(self, place: Place, depth: int = 0) -> Place:
        if depth < 8 and isinstance(place.expression, ast.Name | ast.Subscript | ast.Attribute):
            sources = (
                self.sources.items(place, place.expression)
                if isinstance(place.expression, ast.Subscript)
                else self.sources.of(place)
            )
            for source in sources:
                return self._definition(source, depth + 1)
        return place

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
                yield from self.sources.call_sites(place, place.function, node.id)


def _mode(node: ast.Call) -> str | None:
    """What torchvision's own data sets hand to their transform."""
    name = last_name(node.func)
    if name in _COLORED:
        return "RGB"
    return "L" if re.search(r"MNIST|USPS", name) else None


def _is_evaluation_transform(name: str) -> bool:
    """Whether a parameter's name is that of a transform on images, and not of training's."""
    return bool(_TRANSFORM.search(name)) and "target" not in name and phase_of(name) != "train"


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
