"""PS705: worker processes that start anew at each epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar, Literal

from ..rewriting.dataloaders import loaders
from ..rewriting.rule import Context, Fix, Rule

_VALID_1 = """\
import torch
from torch.utils.data import DataLoader
for epoch in range(9):
    pass
loader = DataLoader(data, 64, num_workers=2, persistent_workers=True)
"""
_VALID_2 = """\
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, 64, num_workers=2)
"""
_BEFORE_1 = """\
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, 64, num_workers=2)
for epoch in range(9):
    for x, y in loader:
        pass
"""


class RestartedWorkers(Rule):
    """What it does: says where a loader with worker processes lives through several epochs without keeping them.

    Why: without `persistent_workers=True` every epoch starts the processes again, which takes seconds where a script
    imports much.

    Example: `DataLoader(data, 64, num_workers=4)` is `DataLoader(data, 64, num_workers=4, persistent_workers=True)`.

    Fix safety: there is no fix: workers that stay keep their memory, and their random state from epoch to epoch.
    """

    code = "PS705"
    name = "restarted-workers"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (
        _VALID_1,
        _VALID_2,
    )
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        loops = [node for node in module.by_kind.get(ast.For, []) if isinstance(node, ast.For)]
        if not any("epoch" in ast.unparse(node.target).lower() for node in loops):
            return
        for loader in loaders(context):
            if loader.is_on("num_workers") and loader.argument("persistent_workers") is None:
                message = "the workers start anew at each epoch; persistent_workers=True keeps them"
                yield self.fix(context, loader.call, message, severity="note")
