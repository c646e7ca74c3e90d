"""Find composed image transforms and say what each is for, by its name and by what it contains."""

from __future__ import annotations

import ast
import re

from ..reading.facts import Phase, TransformSite
from ..reading.scopes import Module, dotted, last_name

COMPOSERS = frozenset(["Compose", "Sequential", "create_transform", "transforms_imagenet_eval", "TransformImage"])
_TRAIN = re.compile(r"train|augment|aug_", re.I)
_EVALUATE = re.compile(r"test|val|eval|infer|predict|dev", re.I)
_RANDOM = re.compile(r"Random|Augment|AutoAug|ColorJitter|Flip|Cutout|Erasing|MixUp|GaussianNoise|RandAug|TrivialAug", re.I)


def is_composed(module: Module, node: ast.AST) -> bool:
    """Whether an expression composes a transform."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in COMPOSERS:
        return False
    if last_name(node.func) != "Sequential":
        return True
    return "transform" in ast.unparse(node)


def is_random(node: ast.AST) -> bool:
    """Whether a transform contains augmentation, which evaluation does not."""
    return any(
        isinstance(inner, ast.Call) and _RANDOM.search(last_name(inner.func)) and not _never(inner) for inner in ast.walk(node)
    )


def _never(call: ast.Call) -> bool:
    return any(
        keyword.arg == "p" and isinstance(keyword.value, ast.Constant) and not keyword.value.value for keyword in call.keywords
    )


def phase_of(name: str) -> Phase:
    """What a name says about the phase; a name that speaks of both says nothing."""
    train, evaluate = bool(_TRAIN.search(name)), bool(_EVALUATE.search(name))
    if train == evaluate:
        return "unknown"
    return "train" if train else "evaluate"


def find_transforms(module: Module) -> list[TransformSite]:
    """The composed transforms of one file, in source order."""
    found = []
    for node in module.nodes:
        if not isinstance(node, ast.Call) or not is_composed(module, node) or _inside_another(module, node):
            continue
        name = _holder(module, node)
        phase = phase_of(name)
        if phase == "unknown":
            function = module.function_of(node)
            phase = phase_of(function.name) if function is not None else "unknown"
        if is_random(node):
            phase = "train"
        elif phase == "train":
            phase = "unknown"
        found.append(TransformSite(path=module.path, line=node.lineno, expression=ast.unparse(node), phase=phase, name=name))
    return sorted(found, key=lambda site: site.line)


def _inside_another(module: Module, node: ast.AST) -> bool:
    current = module.parents.get(node)
    while current is not None and not isinstance(current, ast.stmt):
        if is_composed(module, current):
            return True
        current = module.parents.get(current)
    return False


def _holder(module: Module, node: ast.AST) -> str:
    parent = module.parents[node]
    if isinstance(parent, ast.keyword):
        return parent.arg or ""
    if isinstance(parent, ast.Assign):
        return dotted(parent.targets[0]) or ""
    if isinstance(parent, ast.Dict):
        keys = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is node]
        return str(keys[0].value) if keys and isinstance(keys[0], ast.Constant) else ""
    return ""
