"""PS802: the side of a square of tokens by a float: `int(np.sqrt(n))`."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.integers import Integers
from ..reading.names import import_line, meaning
from ..reading.nodes import leaves_torch
from ..rewriting.call_edits import source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_LOADING = re.compile(r"load|resize|resample|convert|checkpoint|state|remap|filter|init|get_pos|2d_sin", re.I)

_VALID_1 = """\
import torch
import numpy as np


def f(x, ratio):
    return int(np.sqrt(ratio)), x
"""
_VALID_2 = """\
import numpy as np
import torch


def heatmap(tokens):
    side = int(np.sqrt(tokens.shape[0]))
    return tokens.reshape(side, side).detach().numpy()
"""
_EXAMPLE_1 = diff("""\
+import math
import torch
import numpy as np


def fold(x):
    B, N, C = x.shape
-    H = W = int(np.sqrt(N))
+    H = W = math.isqrt(N)
    return x.transpose(1, 2).view(B, C, H, W)
""")
_EXAMPLE_2 = diff("""\
import torch
import math


def fold(x):
-    n = int(x.size(1) ** 0.5) + int(math.sqrt(x.shape[2] - 1))
+    n = math.isqrt(x.size(1)) + math.isqrt(x.shape[2] - 1)
    return x.view(-1, n, n)
""")


class IntegerSquareRoot(Repair):
    """What it does: takes the integer square root of a dimension as an integer.

    Why: a graph follows integers; numpy and floats in `forward` are computed outside of it, and a rounded root can be one
    too small.

    Example: `H = int(np.sqrt(N))` becomes `H = math.isqrt(N)`.

    Fix safety: safe where the number is certainly an integer, because both cut off; elsewhere the rule leaves it.
    """

    safety = "safe"
    VALID = (_VALID_1, _VALID_2)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.of_kind(ast.Call):
            function = module.function_of(call)
            if function is None or not (isinstance(call.func, ast.Name) and call.func.id == "int") or len(call.args) != 1:
                continue
            if _LOADING.search(function.name) or leaves_torch(function):
                continue  # it runs outside of the forward pass
            square = _squared(context, call.args[0])
            integers = Integers(module, function)
            if square is None or not integers.of_shape(square) or not integers.certain(square):
                continue
            added = import_line(module, context.positions, "import math")
            taken = module.imports.get("math", "math") != "math" or "math" in module.definitions
            text = f"math.isqrt({source_of(context, square)})"
            edits = [] if taken else [Edit(*context.positions.span(call), text), *([added] if added else [])]
            yield self.fix(context, call, f"the root of a dimension goes through a float; write {text}", edits)


def _squared(context: Context, node: ast.expr) -> ast.expr | None:
    """The n of `np.sqrt(n)`, `math.sqrt(n)`, `n ** 0.5` and `n ** (1 / 2)`."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and meaning(context.module, node.func) in ("numpy.sqrt", "math.sqrt"):
        return node.args[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.right) in ("0.5", "1 / 2"):
        return node.left
    return None
