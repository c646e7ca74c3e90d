"""What the code around a model's calls is for, where its words alone mislead: gradients that train nothing, and images that
come as rows of their pixels."""

import ast
import re

from ..reading.nodes import arguments_of
from ..reading.scopes import Module, last_name

_LOSS = re.compile(r"loss|err(or)?\b|cost|crit|objective|energy|\bJ\b", re.I)
_UPDATES = frozenset(["step", "sub_", "add_", "addcmul_", "addcdiv_", "copy_", "training_step"])
"""Calls that change weights after `backward()`."""
_OF_IMAGES = frozenset(["torchvision", "PIL", "cv2", "skimage", "imageio"])
"""Libraries of images: what a file that imports none makes flat is something else."""


def explains(module: Module, call: ast.Call) -> bool:
    """Whether `score.backward()` is for a map of what the score came from: it is no loss, and the file changes no weights."""
    if last_name(call.func) != "backward" or _LOSS.search(ast.unparse(call)):
        return False
    return all(last_name(node.func) not in _UPDATES for node in module.calls)


def gives_rows(module: Module) -> bool:
    """Whether a file gives networks images as rows of their pixels, as `model(images.view(-1, 784))`: it imports a library of
    images, and makes rows elsewhere than in a network's own `forward`."""
    if not any(name.partition(".")[0] in _OF_IMAGES for name in module.imports.values()):
        return False
    functions = ((call, module.function_of(call)) for call in module.calls if _makes_rows(call))
    return any(function is None or function.name != "forward" for _, function in functions)


def _makes_rows(call: ast.Call) -> bool:
    """Whether a call makes rows: `.view(-1, 784)`, `.reshape(len(x), -1)`, `.flatten(1)`, or `.view(-1)` of one image."""
    name, sizes = last_name(call.func), arguments_of(call)
    if name in ("flatten", "ravel", "Flatten"):
        return isinstance(call.func, ast.Attribute)
    sizes = sizes[0].elts if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List) else sizes
    return name in ("view", "reshape") and 1 <= len(sizes) <= 2 and any(ast.unparse(size) == "-1" for size in sizes)
