"""PS124: `.data` of a loss."""

import ast
import re
from collections.abc import Iterator

from ..reading.scopes import last_name
from ..rewriting.rule import Context, Fix, Repair


class DataAttribute(Repair):
    """What it does: says where a loss is read through `.data`.

    Why: `.data` hides writes from autograd; `.detach()` does the same and notices them, and `.item()` gives the number.

    Example: `total += loss.data` is `total += loss.item()` or `loss.detach()`.

    Fix safety: there is no fix: whether a number or a tensor is wanted only the author knows.
    """

    safety = "manual"
    VALID = ("import torch\n\ntotal += loss.detach()\nw = weight.data\nlast = loss.data.item()\n",)
    INVALID = (("import torch\n\nloss = criterion(a, b)\ntotal = total + loss.data\n", None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for node in context.module.of_kind(ast.Attribute):
            if isinstance(node, ast.Attribute) and node.attr == "data" and re.search(r"loss", last_name(node.value), re.I):
                parent = context.module.parents[node]
                if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.Subscript):
                    continue
                if isinstance(parent, ast.Attribute) and parent.attr == "item":  # the number, as it should be
                    continue
                message = ".data hides writes from autograd; read a loss with .item(), or with .detach() for a tensor"
                yield self.fix(context, node, message, severity="note")
