"""The input shape that a repository states: in its evaluation transform, its data set, or a self-test of its models."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from .scopes import Module, last_name

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
_RESIZING = re.compile(r"^(Resize|CenterCrop|resize|center_crop|Scale|thumbnail|FiveCrop|TenCrop)$")


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


def from_data_set(modules: Iterable[Module], transform_resizes: bool) -> Shape | None:
    """The shape of torchvision's small data sets, unless a transform changes it."""
    if transform_resizes:
        return None
    found = {_DATASETS[name] for module in modules for name in _data_sets(module)}
    return found.pop() if len(found) == 1 else None


def _data_sets(module: Module) -> Iterator[str]:
    """Those that a file calls, names, or can choose by a text, as in `datasets.__dict__[name.upper()]`."""
    chosen = False
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in _DATASETS:
            yield last_name(node.func)
        elif isinstance(node, ast.Attribute) and module.expand(node) == f"torchvision.datasets.{node.attr}":
            if node.attr in _DATASETS:
                yield node.attr
            chosen |= node.attr == "__dict__"
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "vars") and node.args:
            chosen |= module.expand(node.args[0]) == "torchvision.datasets"
    if chosen:
        texts = {node.value.upper() for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        yield from (name for name in _DATASETS if name.upper() in texts)


def from_self_test(module: Module) -> Shape | None:
    """The shape of `torch.randn(1, 3, 32, 32)` in the file of a model, where all such calls agree."""
    found: set[Shape] = set()
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("randn", "rand", "zeros", "ones", "Tensor"):
            values = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List) else node.args
            numbers = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, int)]
            if len(numbers) == len(values) == 4 and numbers[1] in (1, 3, 4) and min(numbers[2:]) >= 8:
                found.add((numbers[1], numbers[2], numbers[3]))
    return found.pop() if len(found) == 1 else None


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
