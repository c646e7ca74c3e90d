"""PS158: names of modules with a dot in them."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import calls_of, source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_ADDING = ("add_module", "register_module")

_EXAMPLE_1 = diff("""\
import torch
from torch import nn


class Layer(nn.Sequential):
    def __init__(self, width):
        super().__init__()
-        self.add_module('norm.1', nn.BatchNorm2d(width)),
+        self.add_module('norm1', nn.BatchNorm2d(width)),
        self.add_module('relu', nn.ReLU(inplace=True)),

    def norm(self, x):
-        return getattr(self, 'norm.1')(x)
+        return getattr(self, 'norm1')(x)
""")
_EXAMPLE_2 = diff("""\
import torch.nn as nn
from collections import OrderedDict

-stem = nn.Sequential(OrderedDict([("conv.0", nn.Conv2d(3, 8, 3)), ("conv_0", nn.ReLU()), ("conv0", nn.ReLU())]))
+stem = nn.Sequential(OrderedDict([("conv__0", nn.Conv2d(3, 8, 3)), ("conv_0", nn.ReLU()), ("conv0", nn.ReLU())]))
for i in range(2):
-    stem.add_module("block.%d" % i, nn.ReLU())
+    stem.add_module("block%d" % i, nn.ReLU())
-    stem.add_module("last.{}".format(i), nn.ReLU())
+    stem.add_module("last{}".format(i), nn.ReLU())
""")


class DottedNames(Repair):
    """What it does: takes the dots out of the names under which modules are added to others.

    Why: since torch 0.4 they raise KeyError ("module name can't contain"); DenseNets that were copied from torchvision 0.2
    have such names.

    Example: `self.add_module("norm.1", nn.BatchNorm2d(8))` becomes `self.add_module("norm1", nn.BatchNorm2d(8))`, torchvision's
    name for it today.

    Fix safety: safe; the module could not be made. Weights that were saved with the old names, torchvision's first DenseNets
    among them, must have theirs changed likewise before they are loaded, which the remark says.
    """

    safety = "safe"
    VALID = (
        "import torch\n\nnet = torch.nn.Sequential()\nnet.add_module('norm1', torch.nn.ReLU())\nnet.add_module(name, part)\n"
        "plugins.add_module('os.path')\nplugins.add_module('os.path', os.path)\n",
    )
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        if not any(name.partition(".")[0] == "torch" for name in context.module.imports.values()):
            return
        taken = {node.value for node in context.module.of_kind(ast.Constant) if isinstance(node.value, str)}
        edited: set[ast.Constant] = set()
        for name in _names(context):
            old = str(name.value)
            new = _undotted(old, taken)
            same = [node for node in _beside(context, name) if node.value == old and node not in edited]
            edits = [Edit(*context.positions.span(node), source_of(context, node).replace(old, new)) for node in same]
            edited.update(same)
            if edits:
                message = (
                    f"torch takes no module's name with a dot in it since 0.4; write {new}, and rename so what was saved "
                    f"as {old} before it is loaded"
                )
                yield self.fix(context, name, message, edits, severity="error")


def _names(context: Context) -> Iterator[ast.Constant]:
    """The constants, plain or formatted with something, that name a module with a dot."""
    for call in context.module.calls:
        adds = isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING and len(call.args) == 2
        if adds and _is_module(context, call):
            yield from _dotted(call.args[0])
    for call in calls_of(context, "torch.nn.Sequential"):
        for table in call.args[:1]:
            for item in ast.walk(table):
                if isinstance(item, ast.Tuple) and len(item.elts) == 2:
                    yield from _dotted(item.elts[0])


def _is_module(context: Context, call: ast.Call) -> bool:
    """Whether a module of torch is what something is added to: a class's own object, or what gets a layer of torch's."""
    owner, added = call.func.value if isinstance(call.func, ast.Attribute) else None, call.args[1]
    layer = isinstance(added, ast.Call) and (context.module.expand(added.func) or "").startswith("torch.nn.")
    around = next((item for item in context.module.ancestors(call) if isinstance(item, ast.ClassDef)), None)
    return layer or (isinstance(owner, ast.Name) and owner.id == "self" and around is not None and bool(around.bases))


def _dotted(node: ast.expr) -> Iterator[ast.Constant]:
    match node:
        case ast.BinOp(left=text, op=ast.Mod()) | ast.Call(func=ast.Attribute(value=text, attr="format")):
            pass
        case text:
            pass
    if isinstance(text, ast.Constant) and isinstance(text.value, str) and "." in text.value:
        yield text


def _beside(context: Context, name: ast.Constant) -> Iterator[ast.Constant]:
    """All texts of the class in which a module is named, or of the file."""
    around = next((item for item in context.module.ancestors(name) if isinstance(item, ast.ClassDef)), context.module.tree)
    return (node for node in ast.walk(around) if isinstance(node, ast.Constant))


def _undotted(name: str, taken: set[str]) -> str:
    """The name without its dots, or with what no other name of the file has in their place."""
    forms = [name.replace(".", between) for between in ("", "_", "__", "_dot_")]
    return next((form for form in forms if form not in taken), forms[-1])
