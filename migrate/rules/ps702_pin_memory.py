"""PS702: batches for a GPU in memory that is not pinned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..rewriting.call_edits import truth
from ..rewriting.dataloaders import feeds_gpu, loaders
from ..rewriting.rule import Context, Fix, Rule

_VALID_1 = """\
import torch
from torch.utils.data import DataLoader
model.cuda()
test_loader = DataLoader(data, 64, pin_memory=True)
"""
_VALID_2 = """\
import torch
from torch.utils.data import DataLoader
test_loader = DataLoader(data, 64)
"""
_BEFORE_1 = """\
import torch
from torch.utils.data import DataLoader
model.cuda()
test_loader = DataLoader(data, 64, num_workers=2)
"""


class NoPinnedMemory(Rule):
    """What it does: says where batches for a GPU are loaded without `pin_memory=True`.

    Why: copies to a GPU from ordinary memory are slower, and `non_blocking=True` does nothing.

    Example: `DataLoader(data, 64, num_workers=4)` is `DataLoader(data, 64, num_workers=4, pin_memory=True)`.

    Fix safety: there is no fix: pinned memory is taken from the machine for good, and only the author knows how much
    there is.
    """

    code = "PS702"
    name = "no-pinned-memory"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (
        _VALID_1,
        _VALID_2,
    )
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for loader in loaders(context) if feeds_gpu(context.module) else ():
            pinned = loader.argument("pin_memory")
            if pinned is None or truth(pinned) is False:
                message = "copies to the GPU wait for each other; pin_memory=True lets them run beside the computation"
                yield self.fix(context, loader.call, message, severity="note")
