"""PS701: a DataLoader that decodes in the process of the model."""

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
test_loader = DataLoader(data, 64, num_workers=4)
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
test_loader = DataLoader(data, 64)
"""


class NoWorkers(Rule):
    """What it does: says where batches for a GPU are loaded without worker processes.

    Why: with `num_workers=0` the GPU waits while the next batch is read and decoded.

    Example: `DataLoader(data, 64)` is `DataLoader(data, 64, num_workers=4)`.

    Fix safety: there is no fix: the right number depends on the machine's cores, and a dataset that holds open files may
    not allow any.
    """

    code = "PS701"
    name = "no-workers"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (
        _VALID_1,
        _VALID_2,
    )
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for loader in loaders(context) if feeds_gpu(context.module) else ():
            workers = loader.argument("num_workers")
            if workers is None or truth(workers) is False:
                message = "the GPU waits while this process loads the next batch; give num_workers about the number of cores"
                yield self.fix(context, loader.call, message, severity="note")
