"""Tell composed image transforms, and what each is for by its name and by what it contains."""

import ast
import re
from typing import Literal

from ..reading.nodes import inside, keyword_of
from ..reading.scopes import last_name

_COMPOSERS = frozenset(["Compose", "Sequential", "create_transform", "transforms_imagenet_eval", "TransformImage"])
_TRAIN = re.compile(r"train|augment|aug_", re.I)
_EVALUATE = re.compile(r"test|val|eval|infer|predict|dev", re.I)
_RANDOM = re.compile(r"Random|Augment|AutoAug|ColorJitter|Flip|Cutout|Erasing|MixUp|GaussianNoise|RandAug|TrivialAug", re.I)


def is_composed(node: ast.AST) -> bool:
    """Whether an expression composes a transform."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in _COMPOSERS:
        return False
    return last_name(node.func) != "Sequential" or "transform" in ast.unparse(node)


def is_random(node: ast.AST) -> bool:
    """Whether a transform contains augmentation, which evaluation does not."""
    return any(_RANDOM.search(last_name(call.func)) and not _never(call) for call in inside(node, ast.Call))


def _never(call: ast.Call) -> bool:
    share = keyword_of(call, "p")
    return share is not None and isinstance(share.value, ast.Constant) and not share.value.value


def phase_of(name: str) -> Literal["train", "evaluate", "unknown"]:
    """What a name says about the phase; a name that speaks of both says nothing."""
    train, evaluate = bool(_TRAIN.search(name)), bool(_EVALUATE.search(name))
    if train == evaluate:
        return "unknown"
    return "train" if train else "evaluate"
