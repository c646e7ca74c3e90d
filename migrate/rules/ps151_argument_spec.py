"""PS151: the parameters of a function by `inspect.getargspec`."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import calls_of
from ..rewriting.rule import Context, Fix, Repair, diff

_SAME = ("args", "varargs", "defaults")
_EXAMPLE_1 = diff("""\
import inspect
import torch

-names = inspect.getargspec(Net.__init__).args[1:]
-args, varargs, keywords, defaults = inspect.getargspec(Net.forward)
-rest = inspect.getargspec(Net.forward).keywords
+names = inspect.getfullargspec(Net.__init__).args[1:]
+args, varargs, keywords, defaults = inspect.getfullargspec(Net.forward)[:4]
+rest = inspect.getfullargspec(Net.forward).varkw
""")


class ArgumentSpec(Repair):
    """What it does: asks for a function's parameters with `inspect.getfullargspec`.

    Why: Python 3.11 has no `inspect.getargspec` any more.

    Example: `inspect.getargspec(Net.__init__).args` becomes `inspect.getfullargspec(Net.__init__).args`.

    Fix safety: safe; the first four parts are the same. Where the result goes on under a name it is only remarked.
    """

    safety = "safe"
    VALID = ("import inspect\nimport torch\n\nx = inspect.getfullargspec(f).args  # inspect.getargspec\n",)
    INVALID = (
        _EXAMPLE_1,
        ("import inspect\nimport torch\n\nspec = inspect.getargspec(f)\n", None),
        ("import torch\nfrom inspect import getargspec\n\nx = getargspec(f).args\n", None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        positions = context.positions
        for call in calls_of(context, "inspect.getargspec"):
            edits, node, parent = [], call.func, context.module.parents.get(call)
            if isinstance(node, ast.Attribute):
                end, after = positions.span(node)[1], positions.span(call)[1]
                edits = [Edit(end - len(node.attr), end, "getfullargspec")]
                if isinstance(parent, ast.Attribute) and parent.attr == "keywords":
                    close = positions.span(parent)[1]
                    edits.append(Edit(close - len(parent.attr), close, "varkw"))
                elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
                    edits.append(Edit(after, after, "[:4]"))
                elif not (isinstance(parent, ast.Attribute) and parent.attr in _SAME):
                    edits = []
            message = "inspect has no getargspec since Python 3.11; write getfullargspec, which calls keywords varkw"
            yield self.fix(context, call, message, edits, severity="error")
