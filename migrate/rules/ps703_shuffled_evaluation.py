"""PS703: evaluation in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..rewriting.dataloaders import loaders
from ..rewriting.rule import Context, Fix, Rule

_VALID_1 = """\
import torch
from torch.utils.data import DataLoader
train_loader = DataLoader(data, 64, shuffle=True)
test_loader = DataLoader(data, 64, shuffle=False)
"""
_BEFORE_1 = """\
import torch
from torch.utils.data import DataLoader
val_loader = DataLoader(data, batch_size=64, shuffle=True)
"""
_BEFORE_2 = """\
import torch
from torch.utils.data import DataLoader
x = DataLoader(MNIST('d', train=False), 64, True)
"""


class ShuffledEvaluation(Rule):
    """What it does: says where data for evaluation is shuffled.

    Why: the order changes no metric over all samples, but two runs cannot be compared sample by sample, and files are
    read in random order.

    Example: `val_loader = DataLoader(val_set, 64, shuffle=True)`.

    Fix safety: there is no fix: a script that shows a few random samples wants it so.
    """

    code = "PS703"
    name = "shuffled-evaluation"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (_VALID_1,)
    INVALID = (
        (_BEFORE_1, None),
        (_BEFORE_2, None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for loader in loaders(context):
            if loader.evaluates and loader.is_on("shuffle"):
                message = "evaluation needs no shuffle; without it two runs can be compared sample by sample"
                yield self.fix(context, loader.call, message, severity="note")
