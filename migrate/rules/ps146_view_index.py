"""PS146: a dictionary's keys, values or items, or what `map`, `filter` and `zip` give, by their number, as in Python 2."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import is_bound
from ..reading.scopes import Module, last_name
from ..rewriting.rule import Context, Fix, Repair, diff

_ITERATORS = frozenset(["filter", "map", "zip"])
_EXAMPLE_1 = diff("""\
import torch

state = torch.load("net.pth")
-first = state.keys()[0]  # of the first layer
+first = list(state.keys())[0]  # of the first layer
-last = state["net"].items()[-1][1]
+last = list(state["net"].items())[-1][1]
-at = means.index(filter(lambda mean: mean > 0, means)[0])
+at = means.index(list(filter(lambda mean: mean > 0, means))[0])
""")


class ViewIndex(Repair):
    """What it does: makes a list of a dictionary's keys, values or items, or of what `map`, `filter` and `zip` give, before one
    of them is taken by its number.

    Why: they have been views and iterators since Python 3, which have no numbers: a TypeError.

    Example: `state.keys()[0]` becomes `list(state.keys())[0]`.

    Fix safety: safe; it is the same key. Where they can be taken by their number today, as those of a table of pandas, so it is
    too. Parts of several, such as `keys()[1:]`, are left alone.
    """

    safety = "safe"
    VALID = (
        "import torch\n\nkeys = list(state.keys())[0], frame.keys()[1:], state.keys(0)[0], state.values()[name]\n"
        "\n\ndef map(images):\n    return images\n\n\nfirst = map(images)[0]\n",
    )
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        for node in context.module.of_kind(ast.Subscript):
            call = node.value
            if isinstance(call, ast.Call) and _is_number(node.slice) and _has_no_numbers(context.module, call):
                start, end = context.positions.span(call)
                message = f"{last_name(call.func)}() has no numbers since Python 3; make a list of it"
                yield self.fix(context, call, message, [Edit(start, start, "list("), Edit(end, end, ")")], severity="error")


def _has_no_numbers(module: Module, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in ("keys", "values", "items") and not call.args and not call.keywords
    return isinstance(call.func, ast.Name) and call.func.id in _ITERATORS and not is_bound(module, call.func.id)


def _is_number(node: ast.expr) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(value, ast.Constant) and type(value.value) is int
