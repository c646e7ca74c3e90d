"""PS113: `torch.load` without `weights_only`."""

import ast
from collections.abc import Iterator

from ..reading.nodes import inside, keyword_of
from ..rewriting.call_edits import calls_of, is_spread, with_argument
from ..rewriting.rule import Context, Fix, Repair

_METHODS = frozenset(["eval", "train", "cuda", "to", "parameters", "named_parameters", "forward", "modules", "load_state_dict"])


class TorchLoad(Repair):
    """What it does: says where a checkpoint is loaded that may hold more than tensors.

    Why: since torch 2.6 `torch.load` refuses anything but tensors and plain containers, unless it is told otherwise; a
    pickle can run code.

    Example: `model = torch.load('model.pth')` loads a whole model; save its `state_dict()` instead, or write
    `weights_only=False` for a file that you made.

    Fix safety: unsafe where the result is used as a model, which needs `weights_only=False`, and loading then runs code
    of the file. Elsewhere there is only a note, since what a file holds is not known.
    """

    safety = "unsafe"
    VALID = ("import torch\n\nstate = torch.load('a.pth', weights_only=True)\n",)
    INVALID = (
        (
            "import torch\n\nmodel = torch.load('a.pth')\nmodel.eval()\n",
            "import torch\n\nmodel = torch.load('a.pth', weights_only=False)\nmodel.eval()\n",
        ),
        ("import torch\n\nmodel.load_state_dict(torch.load('a.pth', map_location='cpu'))\n", None),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        for call in calls_of(context, "torch.load"):
            if keyword_of(call, "weights_only") is not None or is_spread(call):
                continue
            if _is_model(context, call):
                message = (
                    "torch.load unpickles a whole model here, which fails since torch 2.6; save the state_dict instead, "
                    "or add weights_only=False for a file that you trust"
                )
                yield self.fix(context, call, message, [with_argument(context, call, "weights_only=False")])
            else:
                message = (
                    "torch.load reads only tensors and plain containers since torch 2.6; for a checkpoint that holds more, "
                    "such as the script's arguments, add weights_only=False"
                )
                yield self.fix(context, call, message, severity="note")


def _is_model(context: Context, call: ast.Call) -> bool:
    """Whether the result is used as a module: `torch.load(p).eval()`, or a name on which a module's methods are called."""
    module = context.module
    parent = module.parents[call]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _METHODS
    if not isinstance(parent, ast.Assign):
        return False
    names = {ast.unparse(target) for target in parent.targets}
    scope: ast.AST = module.function_of(call) or module.tree
    calls = [(node, node.func) for node in inside(scope, ast.Call) if isinstance(node.func, ast.Attribute)]
    loaded = {ast.unparse(value) for node, method in calls if method.attr == "load_state_dict" for value in node.args}
    used = any(method.attr in _METHODS and ast.unparse(method.value) in names for _, method in calls)
    return used and not names & loaded
