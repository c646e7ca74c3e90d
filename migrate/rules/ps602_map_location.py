"""PS602: a checkpoint that loads only where it was saved."""

import ast
from collections.abc import Iterator

from ..reading.nodes import keyword_of
from ..reading.scopes import Module
from ..rewriting.call_edits import calls_of, is_spread, with_argument
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import torch

model.cuda()
-model.load_state_dict(torch.load('a'))
+model.load_state_dict(torch.load('a', map_location="cpu"))
""")


class MapLocation(Repair):
    """What it does: says where a script that uses a GPU loads a checkpoint without `map_location`.

    Why: a checkpoint that was saved on a GPU does not load on a machine without one.

    Example: `torch.load(path)` is `torch.load(path, map_location="cpu")`, followed by `load_state_dict`.

    Fix safety: unsafe: weights then lie on the CPU until they are copied into a model, which matters where they are used
    as they are.
    """

    safety = "unsafe"
    VALID = ("import torch\n\nmodel.cuda()\nx = torch.load('a', map_location='cpu')\n",)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        for call in calls_of(context, "torch.load") if _uses_gpu(context.module) else ():
            if len(call.args) == 1 and keyword_of(call, "map_location") is None and not is_spread(call):
                message = 'a checkpoint saved on a GPU does not load on a machine without one; add map_location="cpu"'
                edits = [with_argument(context, call, 'map_location="cpu"')]
                yield self.fix(context, call, message, edits, severity="note")


def _uses_gpu(module: Module) -> bool:
    uses = [node for node in module.of_kind(ast.Attribute) if node.attr == "cuda"]
    return any(isinstance(module.parents.get(node), ast.Call | ast.Attribute) for node in uses)
