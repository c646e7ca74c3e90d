"""The input shape that a repository states: in its transform, its data set, a self-test or a constructor of its models."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..reading.scopes import Function, Module, last_name, parameters
from ..reading.source import head, walk
from ..survey.transforms import is_composed, is_random

Shape = tuple[int, int, int]
_DATASETS = {
    "MNIST": (1, 28, 28),
    "FashionMNIST": (1, 28, 28),
    "KMNIST": (1, 28, 28),
    "EMNIST": (1, 28, 28),
    "CIFAR10": (3, 32, 32),
    "CIFAR100": (3, 32, 32),
    "SVHN": (3, 32, 32),
    "STL10": (3, 96, 96),
}
_OTHERS = frozenset(["Dataset", "ImageFolder", "DatasetFolder", "ImageNet", "VisionDataset"])
"""Of which nobody knows how large their images are."""
_RESIZING = re.compile(r"^(Resize|CenterCrop|resize|center_crop|Scale|thumbnail|FiveCrop|TenCrop)$")
_SIDE = re.compile(r"^(img|image|input|in|im)_?(size|res|resolution)$|^resolution$")
_SETTINGS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")
_MOST_SETTINGS, _MOST_BYTES, _LEAST_SIDE = 50, 200_000, 8
_STATED = re.compile(
    r"""[\s\-{]*["']?(?P<name>\w{1,40})["']?\s*[:=]\s*(?P<value>\d{1,4}|[\[(]\s*\d{1,4}\s*,\s*\d{1,4}\s*[\])])\s*(,|}|[#;].*)?$"""
)
_CHANNELS = re.compile(r"^(in|input|img|image)_(chans?|channels?|planes)$|^channels$")


def from_transform(source: str, convert: str | None) -> Shape | None:
    """The shape after the last resize or crop with a literal size in a transform's program."""
    size: tuple[int, int] | None = None
    channels = 1 if convert == "L" else 3
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if last_name(node.func) == "Grayscale":
            channels = 3 if any(isinstance(item, ast.Constant) and item.value == 3 for item in _values(node)) else 1
        if _RESIZING.match(last_name(node.func)) and (found := _size(node)) is not None:
            crop = "crop" in last_name(node.func).lower()
            size = found if crop or size is None or isinstance(_first(node), ast.Tuple | ast.List) else size
    return (channels, *size) if size is not None else None


def from_transforms(modules: Iterable[Module]) -> tuple[Shape, str, int] | None:
    """The shape to which the repository's transforms without augmentation bring images, where all agree, and the place of the
    first."""
    found: dict[Shape, tuple[str, int]] = {}
    for module in modules:
        for call in module.calls:
            if is_composed(call) and not is_random(call) and (shape := from_transform(ast.unparse(call), None)) is not None:
                found.setdefault(shape, (module.path, call.lineno))
    return next(((shape, *place) for shape, place in found.items()), None) if len(found) == 1 else None


def from_data_set(modules: Iterable[Module], transform_resizes: bool) -> Shape | None:
    """The shape of torchvision's small data sets, unless a transform changes it."""
    if transform_resizes:
        return None
    found = {_DATASETS[name] for module in modules for name in _data_sets(module)}
    return found.pop() if len(found) == 1 else None


def from_name(modules: Iterable[Module], path: str, name: str) -> Shape | None:
    """The shape of the data sets in the whole repository that a model is named for, as `cifar_resnet20` is; of all of them
    where there is no other kind of data. For a model to which no script leads."""
    modules = list(modules)
    found = {known for module in modules for known in _data_sets(module)}
    words = set(re.findall(r"[a-z]+", f"{path} {name}".lower()))
    named = {known for known in found if known.rstrip("0123456789").lower() in words}
    if not named and any(last_name(base) in _OTHERS for module in modules for base in _bases_and_calls(module)):
        return None
    shapes = {_DATASETS[known] for known in named or found}
    return shapes.pop() if len(shapes) == 1 else None


def _bases_and_calls(module: Module) -> Iterator[ast.expr]:
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            yield from node.bases
        elif isinstance(node, ast.Call):
            yield node.func


def _data_sets(module: Module) -> Iterator[str]:
    """Those that a file calls, names, derives from, or can choose by a text, as in `datasets.__dict__[name.upper()]`."""
    chosen = False
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in _DATASETS:
            yield last_name(node.func)
        elif isinstance(node, ast.ClassDef):
            own = (last_name(base) for base in node.bases if (module.expand(base) or "").startswith("torchvision.datasets."))
            yield from (name for name in own if name in _DATASETS)
        elif isinstance(node, ast.Attribute) and module.expand(node) == f"torchvision.datasets.{node.attr}":
            if node.attr in _DATASETS:
                yield node.attr
            chosen |= node.attr == "__dict__"
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "vars") and node.args:
            chosen |= module.expand(node.args[0]) == "torchvision.datasets"
    if chosen:
        texts = {node.value.upper() for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        yield from (name for name in _DATASETS if name.upper() in texts)


def from_settings(root: Path) -> tuple[Shape, str, int] | None:
    """The shape that the repository's files of settings state for images, where they agree, and the first file and line that
    does: `image_size: 224`, `"input_size": [299, 299]`, `img_size = 32`."""
    found: dict[Shape, tuple[str, int]] = {}
    for path in itertools.islice(walk(root, _SETTINGS), _MOST_SETTINGS):
        try:
            text = head(root / path, _MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if (stated := _STATED.match(line)) is not None and _SIDE.match(stated["name"].lower()):
                sides = [int(side) for side in re.findall(r"\d+", stated["value"])]
                if len(sides) <= 2 and min(sides) >= _LEAST_SIDE:
                    found.setdefault((3, sides[0], sides[-1]), (path, number))
    if len(found) != 1:
        return None
    shape, place = next(iter(found.items()))
    return shape, *place


def from_self_test(module: Module) -> Shape | None:
    """The shape of `torch.randn(1, 3, 32, 32)` in the file of a model, where all such calls agree."""
    found: set[Shape] = set()
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("randn", "rand", "zeros", "ones", "empty", "Tensor"):
            values = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List) else node.args
            numbers = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, int)]
            if len(numbers) == len(values) == 4 and numbers[1] in (1, 3, 4) and min(numbers[2:]) >= 8:
                found.add((numbers[1], numbers[2], numbers[3]))
    return found.pop() if len(found) == 1 else None


def from_tests(home: Module) -> Shape | None:
    """The shape of such tensors in the files that import a model's file, its tests above all, where those agree."""
    found: set[Shape] = set()
    for module in home.repository.modules.values():
        names = {value for value in module.imports.values() for value in (value, value.rpartition(".")[0]) if value}
        if any(module.repository.module(name, module.path) is home for name in names):
            found |= {shape for shape in [from_self_test(module)] if shape is not None}
    return found.pop() if len(found) == 1 else None


def from_constructor(module: Module, name: str, depth: int = 0) -> Shape | None:
    """The shape that a model is built for where nobody says otherwise: `def __init__(self, num_classes, input_size=224)`.

    A factory's own constant for it counts more than the default of the class. None where anything else is handed over.
    """
    found = module.find(name)
    if found is None or depth > 5:
        return None
    module, node = found
    methods = node.body if isinstance(node, ast.ClassDef) else [node]
    for item in methods:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name in ("__init__", name):
            defaults = _defaults(item)
            side = next((value for key, value in defaults.items() if _SIDE.match(key)), None)
            if side is None and not isinstance(node, ast.ClassDef):
                return _from_call(module, item, depth)
            if any(_SIDE.match(argument.arg) for argument in parameters(item)):
                channels = next((value for key, value in defaults.items() if _CHANNELS.match(key)), None)
                return _square(side, channels)
    return None


def states_size(source: str) -> bool:
    """Whether a program hands any call the size of images by keyword."""
    return any(isinstance(node, ast.keyword) and _SIDE.match(node.arg or "") for node in ast.walk(ast.parse(source)))


def stated_size(module: Module, name: str, source: str) -> Shape | None:
    """The shape that a model's own file, its tests or its constructor states for a program that builds it."""
    stated = from_self_test(module) or from_tests(module)
    return stated if stated is not None or states_size(source) else from_constructor(module, name)


def _from_call(module: Module, function: Function, depth: int) -> Shape | None:
    """The shape for which a factory builds its class: the only call in it of something that has such a size."""
    shapes: set[Shape | None] = set()
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        assert isinstance(call.func, ast.Name)
        target = module.find_callee(call.func)
        if target is None:
            continue
        given = next((keyword.value for keyword in call.keywords if _SIDE.match(keyword.arg or "")), None)
        positional = [argument.arg for argument in _callable(target[1])][: len(call.args)]
        if given is None and any(_SIDE.match(argument) for argument in positional):
            return None
        stated = from_constructor(target[0], target[1].name, depth + 1) if given is None else _square(given, None)
        shapes |= {stated} if stated is not None or given is not None else set()
    return shapes.pop() if len(shapes) == 1 else None


def _callable(node: ast.AST) -> list[ast.arg]:
    if isinstance(node, ast.ClassDef):
        found = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
        return [argument for item in found for argument in parameters(item)[1:]]
    return list(parameters(node)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []


def _defaults(function: Function) -> dict[str, ast.expr]:
    positional = [*function.args.posonlyargs, *function.args.args]
    named = dict(zip((argument.arg for argument in reversed(positional)), reversed(function.args.defaults), strict=False))
    only = {
        a.arg: value for a, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if value is not None
    }
    return named | only


def _square(side: ast.expr | None, channels: ast.expr | None) -> Shape | None:
    values = side.elts if isinstance(side, ast.Tuple | ast.List) else [side, side]
    numbers = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, int)]
    depth = channels.value if isinstance(channels, ast.Constant) and isinstance(channels.value, int) else 3
    if len(numbers) == 2 == len(values) and min(numbers) >= 8 and (channels is None or isinstance(channels, ast.Constant)):
        return depth, numbers[0], numbers[1]
    return None


def _values(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _first(node: ast.Call) -> ast.expr | None:
    keyword = next((item.value for item in node.keywords if item.arg in ("size", "height")), None)
    return keyword if keyword is not None else (node.args[0] if node.args else None)


def _size(node: ast.Call) -> tuple[int, int] | None:
    value = _first(node)
    if isinstance(value, ast.Tuple | ast.List):
        numbers = [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, int)]
        return (numbers[0], numbers[1]) if len(numbers) == len(value.elts) == 2 else None
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return (value.value, value.value)
    return None
