"""Networks that compute the same in training and in evaluation mode: all their layers are torch's that know no mode."""

from __future__ import annotations

import ast
import re

from ..reading.scopes import Module, last_name, root_of

_PLAIN = re.compile(
    r"Module|Sequential|ModuleList|ModuleDict|Parameter(List)?|Identity|(Unf|F)latten|(Conv|ConvTranspose)[123]d|(Bil|L)inear"
    r"|(Adaptive)?(Max|Avg)Pool[123]d|LPPool2d|(Zero|Constant|Reflection|Replication)Pad[123]d|(Layer|Group)Norm|LocalResponseNorm"
    r"|Upsample|Pixel(Uns|S)huffle|Embedding|(Log)?(Softmax(2d)?|Sigmoid)|Tanh|Hard(swish|sigmoid|tanh)|(Leaky|P)?ReLU6?|[SGC]?ELU"
    r"|SiLU|Mish|Soft(plus|sign)"
)
"""Layers of torch.nn that have one mode."""
_MOVED = re.compile(r"dropout|(batch|instance)_norm|rrelu|rand|bernoulli|multinomial|gumbel|attention|^normal_?$")
"""What of torch's functions asks for a mode, or draws."""


def knows_no_mode(module: Module, made: ast.expr) -> bool:
    """Whether an expression makes such a network: a call of a class of the repository, perhaps moved to a device."""
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and isinstance(made.func.value, ast.Call):
        if made.func.attr not in ("to", "cuda", "cpu", "float"):
            return False
        made = made.func.value
    return isinstance(made, ast.Call) and _names_plain(module, made.func, set())


def _names_plain(module: Module, node: ast.expr, seen: set[ast.ClassDef]) -> bool:
    """Whether an expression names such a class of the repository."""
    match module.find_callee(node):
        case (home, ast.ClassDef() as found):
            return _is_plain(home, found, seen)
    return False


def _is_plain(module: Module, node: ast.ClassDef, seen: set[ast.ClassDef]) -> bool:
    if node in seen:
        return True
    seen.add(node)
    if not node.bases or not all(_is_base(module, base, seen) for base in node.bases):
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == "training":
            return False
        if isinstance(inner, ast.Call) and not _calls_plain(module, inner, seen):
            return False
    return True


def _is_base(module: Module, base: ast.expr, seen: set[ast.ClassDef]) -> bool:
    return module.expand(base) in ("torch.nn.Module", "torch.nn.modules.Module") or _names_plain(module, base, seen)


def _calls_plain(module: Module, call: ast.Call, seen: set[ast.ClassDef]) -> bool:
    if module.find_callee(call.func) is not None:
        return _names_plain(module, call.func, seen)
    name = last_name(call.func)
    whole = module.expand(call.func) or ""
    if whole.startswith("torch.nn.init."):
        return True
    if whole.startswith("torch.nn.") and not whole.startswith("torch.nn.functional."):
        return _PLAIN.fullmatch(name) is not None
    library = whole.partition(".")[0]
    if library != "torch" and (module.star_imports or (whole and root_of(call.func) in module.imports)):
        return False
    return not _MOVED.search(name) and name not in ("train", "getattr", "exec")
