"""PS131: `iterator.next()`, the Python 2 way to the first batch."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import torch

-x, y = iter(loader).next()
+x, y = next(iter(loader))
it = iter(loader)
-a = it.next()[0]
+a = next(it)[0]
b = it.__next__()
""")


class IteratorNext(Repair):
    """What it does: calls `next()` instead of the method.

    Why: iterators have had no `next` method since Python 3, and those of DataLoader lost theirs in torch 1.13.

    Example: `images, labels = iter(loader).next()` becomes `images, labels = next(iter(loader))`.

    Fix safety: safe; it is the same step. Only iterators that the file makes with `iter()` are taken for such.
    """

    safety = "safe"
    VALID = ("import torch\n\nit = iter(loader)\nx = next(it)  # it.next()\ny = node.next()\n",)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        made = {ast.unparse(target) for node in module.of_kind(ast.Assign) if _is_iter(node.value) for target in node.targets}
        for call in module.of_kind(ast.Call):
            node = call.func
            if not isinstance(node, ast.Attribute) or node.attr != "next" or call.args or call.keywords:
                continue
            if _is_iter(node.value) or ast.unparse(node.value) in made:
                start, middle = context.positions.span(node.value)
                end = context.positions.span(call)[1]
                edits = [Edit(start, start, "next("), Edit(middle, end, ")")]
                yield self.fix(context, call, "iterators have no method next; call next()", edits)


def _is_iter(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "iter"
