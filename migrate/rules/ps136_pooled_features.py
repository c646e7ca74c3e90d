"""PS136: Vision Transformers written for a timm whose forward_features gave the vector that the head takes."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside
from ..reading.scopes import bound_names, last_name, parameters
from ..rewriting.rule import Context, Fix, Repair, diff

_BASE = re.compile(r"^timm\.(models\.)?(\w+\.)*VisionTransformer$")
_EXAMPLE = diff("""\
import torch
import timm.models.vision_transformer


class Vit(timm.models.vision_transformer.VisionTransformer):
    def forward_features(self, x):
        x = self.blocks(self.patch_embed(x))
        x = self.norm(x)
        outcome = x[:, 0]

        return outcome  # a vector

+    def forward(self, x):
+        return self.head(self.forward_features(x))
+
    def other(self):
        pass
""")
_VALID = """\
import torch
from timm.models.vision_transformer import VisionTransformer


class Tokens(VisionTransformer):
    def forward_features(self, x):
        return self.norm(self.blocks(self.patch_embed(x)))


class Today(VisionTransformer):
    def forward_features(self, x, attn_mask=None):
        return self.norm(self.blocks(self.patch_embed(x)))[:, 0]


class Own(VisionTransformer):
    def forward_features(self, x):
        return self.norm(self.blocks(self.patch_embed(x)))[:, 0]

    def forward(self, x):
        return self.head(self.forward_features(x))
"""


class PooledFeatures(Repair):
    """What it does: writes out the `forward` that timm's VisionTransformer had, for a class that relies on it.

    Why: until timm 0.5, `forward` was the head on what `forward_features` gave. Today it hands `forward_features` a mask
    and pools and normalizes the result itself, so a class whose own `forward_features` pools fails, or does both twice.

    Example: below `def forward_features(self, x)`, which returns `x[:, 0]`, comes
    `def forward(self, x): return self.head(self.forward_features(x))`.

    Fix safety: safe; it is what the class computed when it was written, and today it does not run.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        for node in module.of_kind(ast.ClassDef):
            methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            features = methods.get("forward_features")
            if features is None or {"forward", "forward_head"} & methods.keys():
                continue
            if not any(_BASE.match(module.expand(base) or "") for base in node.bases):
                continue
            taken = parameters(features)
            if len(taken) != 2 or features.args.vararg or features.args.kwarg or not _pools(features):
                continue
            newline, indent = positions.newline(features.lineno), positions.indent(features.lineno)
            inner = positions.indent(features.body[0].lineno)
            image = taken[1].arg
            body = f"def forward(self, {image}):{newline}{inner}return self.head(self.forward_features({image}))"
            edit = positions.insert_after(features, body)
            edit = Edit(edit.start, edit.end, edit.text.replace(f"{indent}def", f"{newline}{indent}def", 1))
            message = f"timm pools after forward_features since 0.6, and {node.name} pools inside; define forward"
            yield self.fix(context, features, message, [edit])


def _pools(function: ast.FunctionDef) -> bool:
    """Whether what a function returns is one vector of each image: the first token, or a mean of tokens."""
    returned = [item.value for item in inside(function, ast.Return) if item.value is not None]
    values = list(returned)
    for value in returned:
        if isinstance(value, ast.Name):
            made = inside(function, ast.Assign)
            values += [item.value for item in made if any(value.id in bound_names(target) for target in item.targets)]
    return any(_is_first(value) or (isinstance(value, ast.Call) and last_name(value.func) == "mean") for value in values)


def _is_first(node: ast.AST) -> bool:
    """Whether a value is `x[:, 0]`, perhaps in a call."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _is_first(node.args[0])
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
        return False
    first, second = node.slice.elts
    whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    return whole and isinstance(second, ast.Constant) and second.value == 0
