"""PS123: `size_average=` and `reduce=` of losses."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import meaning
from ..reading.nodes import keyword_of
from ..rewriting.call_edits import truth, without
from ..rewriting.rule import Context, Fix, Repair, diff

_LOSS = re.compile(r"torch\.nn\.(\w+Loss|functional\.(\w+_loss|cross_entropy|binary_cross_entropy\w*|kl_div))$")

_EXAMPLE_1 = diff("""\
import torch.nn as nn
import torch.nn.functional as F

-x = nn.CrossEntropyLoss(weight=None, size_average=False)
-y = F.nll_loss(a, b, size_average=True).item()
-z = nn.MSELoss(size_average=False, reduce=False)
+x = nn.CrossEntropyLoss(weight=None, reduction="sum")
+y = F.nll_loss(a, b, reduction="mean").item()
+z = nn.MSELoss(reduction="none")
""")


class LossReduction(Repair):
    """What it does: says with `reduction=` what a loss does with the values of a batch.

    Why: `size_average` and `reduce` are deprecated since torch 0.4.1 and warn at each call.

    Example: `nn.CrossEntropyLoss(size_average=False)` becomes `nn.CrossEntropyLoss(reduction="sum")`.

    Fix safety: safe; torch itself turns one into the other. Values that are not written out stay.
    """

    safety = "safe"
    VALID = ("import torch.nn as nn\n\nx = nn.MSELoss(reduction='sum')  # size_average=False\n",)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        for call in context.module.of_kind(ast.Call):
            old = [item for item in call.keywords if item.arg in ("size_average", "reduce")]
            if not old or not _LOSS.match(meaning(context.module, call.func) or "") or keyword_of(call, "reduction"):
                continue
            values = {item.arg: truth(item.value) for item in old}
            if None in values.values():
                continue
            reduction = "none" if values.get("reduce") is False else "sum" if values.get("size_average") is False else "mean"
            first, *others = old
            edits = [Edit(*context.positions.span(first), f'reduction="{reduction}"'), *without(context, call, list(others))]
            message = f'{" and ".join(str(item.arg) for item in old)}: deprecated; write reduction="{reduction}"'
            yield self.fix(context, call, message, edits, severity="note")
