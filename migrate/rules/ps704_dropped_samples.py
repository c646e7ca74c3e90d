"""PS704: evaluation that leaves samples out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..rewriting.dataloaders import loaders
from ..rewriting.rule import Context, Fix, Rule

_VALID_1 = """\
import torch
from torch.utils.data import DataLoader
train_loader = DataLoader(data, 64, drop_last=True)
test_loader = DataLoader(data, 64)
"""
_BEFORE_1 = """\
import torch
from torch.utils.data import DataLoader
test_loader = DataLoader(data, 64, drop_last=True)
"""


class DroppedSamples(Rule):
    """What it does: says where data for evaluation is loaded with `drop_last=True`.

    Why: the samples of the last batch are not evaluated, so the accuracy is that of fewer samples, and depends on the
    batch size.

    Example: `test_loader = DataLoader(test_set, 64, drop_last=True)`.

    Fix safety: there is no fix: leaving it out changes the numbers that the script reports.
    """

    code = "PS704"
    name = "dropped-samples"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (_VALID_1,)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for loader in loaders(context):
            if loader.evaluates and loader.is_on("drop_last"):
                message = "the last samples are never evaluated, so the accuracy is over fewer of them; leave drop_last out"
                yield self.fix(context, loader.call, message)
