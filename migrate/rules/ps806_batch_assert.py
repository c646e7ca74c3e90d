"""PS806: an assert that fixes the number of rows."""

import ast
from collections.abc import Iterator

from ..reading.integers import Integers
from ..rewriting.rule import Context, Fix, Repair

_VALID_1 = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        assert H == self.side and x.shape[1] == 3
        return x
"""
_BEFORE_1 = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        assert B % 8 == 0, 'clips of eight'
        return x
"""


class BatchAssert(Repair):
    """What it does: says where the forward pass asserts something about the batch size.

    Why: such a line fixes the batch size of a graph (PG121), or fails at other sizes.

    Example: `assert x.shape[0] == 8` in `forward`.

    Fix safety: there is no fix: whether other batch sizes are right only the author knows.
    """

    safety = "manual"
    VALID = (_VALID_1,)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node in module.of_kind(ast.Assert):
            function = module.function_of(node)
            if function is None or not function.name.startswith("forward") or module.class_of(function) is None:
                continue
            if Integers(module, function).of_batch(node.test):
                message = f"assert {ast.unparse(node.test)} fixes the batch size of a graph; leave the assertion out"
                yield self.fix(context, node, message)
