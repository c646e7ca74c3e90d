"""The DataLoaders of a file: what they load, and whether a model is trained or evaluated on it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..reading.scopes import Module
from .call_edits import calls_of, is_spread, keyword_of, truth
from .rule import Context

_EVALUATION = re.compile(
    r"(^|[_.])(x?val|valid|validation|test|eval|evaluation|dev)(id|s|set|data|loader|dl|dataloader|gen)?($|[_.\[])", re.I
)
_TRAINING = re.compile(r"train", re.I)
_POSITIONS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
)


@dataclass(frozen=True, eq=False)
class Loader:
    """One `DataLoader(...)` of which every argument can be seen."""

    call: ast.Call
    name: str
    """What it is bound to, as written, or empty."""
    evaluates: bool
    """Whether its names, or its dataset's, say that it is for evaluation, and none that it is for training."""

    def argument(self, name: str) -> ast.expr | None:
        """The value given for a parameter."""
        keyword = keyword_of(self.call, name)
        if keyword is not None:
            return keyword.value
        index = _POSITIONS.index(name) if name in _POSITIONS else len(self.call.args)
        return self.call.args[index] if index < len(self.call.args) else None

    def is_on(self, name: str) -> bool:
        """Whether a parameter is plainly True, or a number above zero."""
        return truth(self.argument(name)) is True


def loaders(context: Context) -> Iterator[Loader]:
    """The loaders of a file."""
    names = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
    for call in (call for name in names for call in calls_of(context, name)):
        if is_spread(call) or not (call.args or keyword_of(call, "dataset")):
            continue
        bound = _bound(context.module, call)
        dataset = call.args[0] if call.args else keyword_of(call, "dataset").value  # type: ignore[union-attr]
        yield Loader(call, bound, _evaluates(context.module, bound, dataset))


def _bound(module: Module, call: ast.Call) -> str:
    parent = module.parents[call]
    if isinstance(parent, ast.Assign):
        return ast.unparse(parent.targets[0])
    if isinstance(parent, ast.Dict):
        key = next((key for key, value in zip(parent.keys, parent.values, strict=True) if value is call), None)
        return str(key.value) if isinstance(key, ast.Constant) else ""
    function = module.function_of(call)
    return function.name if isinstance(parent, ast.Return) and function is not None else ""


def _evaluates(module: Module, bound: str, dataset: ast.expr) -> bool:
    if bound and _EVALUATION.search(bound):
        return not _TRAINING.search(bound)
    if bound and _TRAINING.search(bound):
        return False
    if isinstance(dataset, ast.Name) and _EVALUATION.search(dataset.id) and not _TRAINING.search(dataset.id):
        return True
    made = dataset_call(module, dataset)
    if made is None:
        return False
    train, split = keyword_of(made, "train"), keyword_of(made, "split")
    if train is not None:
        return truth(train.value) is False
    return split is not None and isinstance(split.value, ast.Constant) and split.value.value in ("val", "test", "valid")


def dataset_call(module: Module, dataset: ast.expr) -> ast.Call | None:
    """The call that makes a dataset, through one name of the same scope."""
    if isinstance(dataset, ast.Call):
        return dataset
    value = assigned(module, dataset)
    return value if isinstance(value, ast.Call) else None


def assigned(module: Module, node: ast.expr) -> ast.expr | None:
    """The one value that a name has in the function of a node, or in the file; None where there are several."""
    if not isinstance(node, ast.Name):
        return None
    function = module.function_of(node)
    for scope in (function, module.tree):
        values = [
            item.value
            for item in (ast.walk(scope) if scope is not None else ())
            if isinstance(item, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in item.targets)
        ]
        if values:
            return values[0] if len(values) == 1 else None
    return None


def feeds_gpu(module: Module) -> bool:
    """Whether the file moves anything to a GPU."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "cuda"
        and isinstance(module.parents.get(node), ast.Call | ast.Attribute)
        for node in module.by_kind.get(ast.Attribute, [])
    )
