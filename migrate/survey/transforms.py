"""Find composed image transforms and say what each is for, by its name and by what it contains."""

import ast
import re
from itertools import takewhile

from ..reading.facts import Phase, TransformSite
from ..reading.nodes import inside, keyword_of
from ..reading.scopes import Module, dotted, last_name

COMPOSERS = frozenset(["Compose", "Sequential", "create_transform", "transforms_imagenet_eval", "TransformImage"])
_TRAIN = re.compile(r"train|augment|aug_", re.I)
_EVALUATE = re.compile(r"test|val|eval|infer|predict|dev", re.I)
_RANDOM = re.compile(r"Random|Augment|AutoAug|ColorJitter|Flip|Cutout|Erasing|MixUp|GaussianNoise|RandAug|TrivialAug", re.I)


def is_composed(module: Module, node: ast.AST) -> bool:
    """Whether an expression composes a transform."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in COMPOSERS:
        return False
    return last_name(node.func) != "Sequential" or "transform" in ast.unparse(node)


def is_random(node: ast.AST) -> bool:
    """Whether a transform contains augmentation, which evaluation does not."""
    return any(_RANDOM.search(last_name(call.func)) and not _never(call) for call in inside(node, ast.Call))


def _never(call: ast.Call) -> bool:
    share = keyword_of(call, "p")
    return share is not None and isinstance(share.value, ast.Constant) and not share.value.value


def phase_of(name: str) -> Phase:
    """What a name says about the phase; a name that speaks of both says nothing."""
    train, evaluate = bool(_TRAIN.search(name)), bool(_EVALUATE.search(name))
    if train == evaluate:
        return "unknown"
    return "train" if train else "evaluate"


def find_transforms(module: Module) -> list[TransformSite]:
    """The composed transforms of one file, in source order."""
    found = []
    for node in module.calls:
        around = takewhile(lambda item: not isinstance(item, ast.stmt), module.ancestors(node))
        if not is_composed(module, node) or any(is_composed(module, item) for item in around):
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
