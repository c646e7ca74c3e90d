"""PS150: a generator that `numpy.sum` adds up."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.scopes import Module
from ..rewriting.call_edits import calls_of
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import numpy as np
import torch

-count = np.sum(np.prod(v.size()) for name, v in net.named_parameters())
+count = sum(np.prod(v.size()) for name, v in net.named_parameters())
""")


class NumpySum(Repair):
    """What it does: adds up a generator with Python's `sum` where a script gives it to `numpy.sum`.

    Why: numpy never took a generator for an array and called `sum` itself, with a warning; it raises TypeError now.

    Example: `np.sum(v.numel() for v in net.parameters())` becomes `sum(v.numel() for v in net.parameters())`.

    Fix safety: safe; it is what numpy did.
    """

    safety = "safe"
    VALID = ("import numpy as np\nimport torch\n\nx = np.sum([v for v in y]), np.sum((v for v in y), axis=0), np.sum(y)\n",)
    INVALID = (
        _EXAMPLE_1,
        ("import torch\nfrom numpy import sum\n\nx = sum(v for v in (1, 2))\n", None),
        ("import torch\nimport numpy as np\n\ndef f(sum):\n    return np.sum(v for v in sum)\n", None),
        ("import torch\nimport numpy as np\nfrom math import *\n\nx = np.sum(v for v in (1, 2))\n", None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for call in calls_of(context, "numpy.sum"):
            if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not call.keywords:
                named = isinstance(call.func, ast.Name) or _is_taken(context.module)
                edits = [] if named else [Edit(*context.positions.span(call.func), "sum")]
                message = "numpy.sum takes no generator; add it up with Python's own sum"
                yield self.fix(context, call, message, edits, severity="error")


def _is_taken(module: Module) -> bool:
    """Whether `sum` may be another one somewhere in the file."""
    bound = {node.id for node in module.of_kind(ast.Name) if isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in module.of_kind(ast.arg)} | {*module.imports}
    bound |= {node.name for node in module.of_kind(ast.FunctionDef)} | {node.name for node in module.of_kind(ast.ClassDef)}
    return "sum" in bound or bool(module.star_imports)
