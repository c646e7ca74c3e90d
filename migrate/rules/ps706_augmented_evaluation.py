"""PS706: evaluation on randomly changed images."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar, Literal

from ..reading.scopes import last_name
from ..rewriting.call_edits import keyword_of
from ..rewriting.dataloaders import assigned, dataset_call, loaders
from ..rewriting.rule import Context, Fix, Rule

_RANDOM = frozenset(["ColorJitter", "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "Cutout", "CutMix", "MixUp"])

_VALID_1 = """\
import torch
from torch.utils.data import DataLoader
from torchvision import transforms

t = transforms.Compose([transforms.CenterCrop(2)])
test_loader = DataLoader(ImageFolder('d', transform=t))
"""
_BEFORE_1 = """\
import torch
from torch.utils.data import DataLoader
from torchvision import transforms

t = transforms.Compose([transforms.RandomCrop(2), transforms.ToTensor()])
test_set = ImageFolder('d', transform=t)
test_loader = DataLoader(test_set)
"""


class AugmentedEvaluation(Rule):
    """What it does: says where data for evaluation gets a transform with random steps.

    Why: the accuracy then depends on chance, and a service that prepared images so would answer differently each time.

    Example: `val_set = ImageFolder(d, transform=train_transform)`, where `train_transform` flips images at random.

    Fix safety: there is no fix: which transform was meant only the author knows.
    """

    code = "PS706"
    name = "augmented-evaluation"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (_VALID_1,)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for loader in loaders(context):
            dataset = loader.argument("dataset")
            made = dataset_call(module, dataset) if loader.evaluates and dataset is not None else None
            given = keyword_of(made, "transform") if made is not None else None
            if given is None:
                continue
            transform = assigned(module, given.value) or given.value
            random = [last_name(node.func) for node in ast.walk(transform) if isinstance(node, ast.Call) and _is_random(node)]
            if random:
                message = f"evaluation goes through {', '.join(random)}, so its accuracy depends on chance"
                yield self.fix(context, given, message)


def _is_random(call: ast.Call) -> bool:
    name = last_name(call.func)
    return name in _RANDOM or name.startswith("Random")
