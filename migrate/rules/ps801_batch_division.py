"""PS801: the batch size goes through a float: `int(x.shape[0] / n)`."""

import ast
from collections.abc import Iterator
from typing import Literal

from ..reading.edits import Edit
from ..reading.integers import Integers
from ..reading.nodes import leaves_torch
from ..reading.scopes import Module
from ..rewriting.call_edits import source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_SWIN = diff("""\
import torch


def window_reverse(windows, window_size, H, W):
-    B = int(windows.shape[0] / (H * W / window_size / window_size))  # how many images
+    B = windows.shape[0] // (H * W // window_size // window_size)  # how many images
    x = windows.view(B, H // window_size, W // window_size, window_size, window_size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)
""")
_FRAMES = diff("""\
import torch


def merge(x, frames: int):
-    n = int(x.size(0) / frames)
+    n = x.size(0) // frames
    return x.view(n, frames, -1).mean(1)
""")

_SHAPED = frozenset(
    [
        "chunk",
        "contiguous",
        "expand",
        "flatten",
        "permute",
        "repeat",
        "reshape",
        "split",
        "transpose",
        "unfold",
        "unsqueeze",
        "view",
    ]
)
"""Methods of tensors."""
_PICTURES = frozenset(["PIL", "cv2", "imageio", "matplotlib", "skimage"])
"""Libraries that take arrays and pictures: what calls one is in no graph."""


class BatchDivision(Repair):
    """What it does: divides the number of rows as an integer, not as a float that is cut off.

    Why: a graph for any batch size follows integers; a detour through a float fixes the batch size (PG121).

    Example: `B = int(x.shape[0] / (H * W / ws / ws))` becomes `B = x.shape[0] // (H * W // ws // ws)`.

    Fix safety: safe where every operand is certainly an integer, because shapes are not negative; unsafe where an operand may
    be a float. An inner division stays an inner one only where the function divides the same sizes by the same numbers
    elsewhere, so that there is no remainder; otherwise the divisors go to the other side: `x * ws * ws // (H * W)`.
    """

    safety = "safe"
    VALID = (
        "import torch\n\n\ndef f(x, ratio):\n    return int(x.shape[1] * ratio)\n",
        "import cv2\nimport torch\n\n\ndef half(image):\n    return cv2.resize(image, (64, int(image.shape[0] * 50 / 100)))\n",
        "# drawn.py:\ndef f(rows, height):\n    for y in range(height):\n        put(rows[int(y * len(rows) / height)])\n"
        "# net.py:\nimport torch\n",
        "import torch\n\n\ndef crops(x, n):\n    b = int(x.shape[0] / n)\n    return x.view(b, n, -1).mean(1).cpu().numpy()\n",
    )
    INVALID = (_SWIN, _FRAMES)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node in module.of_kind(ast.Call):
            if not _cuts_quotient(node):
                continue
            assert isinstance(node, ast.Call)
            function = module.function_of(node)
            quotient = node.args[0]
            assert isinstance(quotient, ast.BinOp)
            if function is None or leaves_torch(function) or not _handles_tensors(module, function):
                continue
            integers = Integers(module, function)
            if not integers.of_batch(quotient.left) or _subtracts(quotient):
                continue
            above, others = _chain(quotient.left)
            below, divisors = _chain(quotient.right)
            certain = all(integers.certain(item) for item in (above, *others, below, *divisors))
            text = _quotient(context, above, below, divisors, function)
            text = " // ".join([text, *(_written(context, item) for item in others)])
            if (
                "\n" in text
                or "\r" in text
                or isinstance(module.parents[node], ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Compare)
            ):
                text = f"({text})"
            message = f"the batch size goes through a float, which fixes the batch size of a graph; write {text}"
            offer: Literal["safe", "unsafe"] = "safe" if certain else "unsafe"
            yield self.fix(context, node, message, [Edit(*context.positions.span(node), text)], offer=offer)


def _handles_tensors(module: Module, function: ast.AST) -> bool:
    """Whether a function may be of tensors: its file imports torch, or it shapes one; rows of a picture that is drawn or
    resized are no batch."""
    imports = any(name.partition(".")[0] == "torch" for name in (*module.imports.values(), *module.star_imports))
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    if any((module.expand(callee) or "").partition(".")[0] in _PICTURES for callee in calls):
        return False
    return imports or any(isinstance(callee, ast.Attribute) and callee.attr in _SHAPED for callee in calls)


def _cuts_quotient(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "int"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.BinOp)
        and isinstance(node.args[0].op, ast.Div)
    )


def _subtracts(node: ast.expr) -> bool:
    return any(isinstance(item, ast.Sub | ast.USub) for item in ast.walk(node))


def _chain(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """a / b / c as a and [b, c]."""
    divisors: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        divisors.insert(0, node.right)
        node = node.left
    return node, divisors


def _factors(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [ast.unparse(node)]


def _written(context: Context, node: ast.expr, brackets: bool = True) -> str:
    text = source_of(context, node)
    return f"({text})" if brackets and isinstance(node, ast.BinOp | ast.IfExp) else text


def _quotient(context: Context, above: ast.expr, below: ast.expr, divisors: list[ast.expr], function: ast.AST) -> str:
    """The integer division, in the user's own words where it leaves no remainder on the way."""
    top = _written(context, above, not _is_product(above))
    if not divisors:
        return f"{top} // {_written(context, below)}"
    divided = {
        (ast.unparse(node.left), ast.unparse(node.right))
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
    }
    left = _factors(below)
    for divisor in map(ast.unparse, divisors):
        whole = next((factor for factor in left if (factor, divisor) in divided), None)
        if whole is None:
            product = " * ".join(_written(context, item) for item in divisors)
            return f"{top} * {product} // {_written(context, below)}"
        left.remove(whole)
    inner = [_written(context, below, not _is_product(below)), *(_written(context, item) for item in divisors)]
    return f"{top} // ({' // '.join(inner)})"


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
