"""PS135: models registered with timm that refuse what its create_model hands to them today."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import defaults_of, inside, text_of
from ..reading.scopes import Module, last_name, parameters
from ..rewriting.rule import Context, Fix, Repair, diff

_GIVEN = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
_DECORATOR = re.compile(r"^timm\.models(\.\w+)*\.register_model$")
_EXAMPLE = diff("""\
import torch.nn as nn
from timm.models import register_model


class Net(nn.Module):
    def __init__(self, depth, num_classes=10):
        super().__init__()
        self.fc = nn.Linear(depth, num_classes)


@register_model
-def net_tiny(pretrained=False, **kwargs):  # tiny
+def net_tiny(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **kwargs):  # tiny
    return Net(depth=2, **kwargs)
""")
_VALID = """\
import torch.nn as nn
from timm.models import register_model


class Net(nn.Module):
    def __init__(self, depth, num_classes=10, **kwargs):
        super().__init__()
        self.fc = nn.Linear(depth, num_classes)


class Small(nn.Module):
    def __init__(self, depth, num_classes=10):
        super().__init__()


@register_model
def net_tiny(pretrained=False, **kwargs):
    return Net(depth=2, **kwargs)


@register_model
def small_popped(pretrained=False, **kwargs):
    kwargs.pop("pretrained_cfg", None)
    return Small(depth=2, **kwargs)


@register_model
def small_alone(pretrained=False, pretrained_cfg=None, **kwargs):
    return Small(depth=2)


def small(**kwargs):
    return Small(depth=2, **kwargs)
"""
_INHERITED = diff("""\
from timm.models import register_model
from timm.models.vision_transformer import VisionTransformer


class Distilled(VisionTransformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


@register_model
-def distilled(pretrained=False, **kwargs):
+def distilled(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **kwargs):
    model = Distilled(depth=2, **kwargs)
    return model
""")


class RegisteredModel(Repair):
    """What it does: lets a function registered with timm take, and not hand on, what timm's `create_model` gives to all.

    Why: since timm 0.8 `create_model` hands each registered function `pretrained_cfg`, `pretrained_cfg_overlay` and
    `cache_dir`. A function without `**kwargs` does not take them; with `**kwargs` they reach a class that does not know them.

    Example: `def net(pretrained=False, **kwargs)` becomes
    `def net(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **kwargs)`.

    Fix safety: safe; a function or class that refuses these arguments cannot have used them.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE, _INHERITED)

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        for node in module.of_kind(ast.FunctionDef):
            if not any(_DECORATOR.match(module.expand(d) or "") for d in node.decorator_list):
                continue
            named = {argument.arg for argument in parameters(node)}
            if node.args.kwarg is not None:
                named |= {text for item in inside(node, ast.Constant) if (text := text_of(item)) is not None}
                handing = (call for call in inside(node, ast.Call) if _hands_on(module, call, node.args.kwarg.arg))
                if set(_GIVEN) & named or not any(handing):
                    continue
            missing = [name for name in _GIVEN if name not in named]
            if not missing:
                continue
            added = ", ".join(f"{name}=None" for name in missing)
            if node.args.kwarg is not None:
                at = positions.text.rindex("**", 0, positions.span(node.args.kwarg)[0])
                edit = Edit(at, at, f"{added}, ")
            else:
                given: list[ast.arg | ast.expr] = [*parameters(node), *defaults_of(node).values()]
                start = positions.text.index("(", positions.offset(node.lineno, node.col_offset)) + 1
                at = max((positions.span(item)[1] for item in given), default=start)
                edit = Edit(at, at, f", {added}" if given else added)
            whose = f"{node.name}, whose class" if node.args.kwarg is not None else f"{node.name}, which"
            message = f"timm passes {', '.join(missing)} to {whose} does not take them; add them to {node.name}"
            yield self.fix(context, node, message, [edit])


def _hands_on(module: Module, call: ast.Call, name: str) -> bool:
    """Whether a call hands all keyword arguments to a class that knows what it takes."""
    if not _spreads(call, name):
        return False
    found = module.find_callee(call.func)
    if found is None:
        return _is_timm_class(module.expand(call.func) or "")
    return isinstance(found[1], ast.ClassDef) and _refuses(found[0], found[1])


def _spreads(call: ast.Call, name: str) -> bool:
    return any(item.arg is None and last_name(item.value) == name for item in call.keywords)


def _refuses(module: Module, node: ast.ClassDef, depth: int = 0) -> bool:
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is not None:
        if any(argument.arg in _GIVEN for argument in parameters(init)):
            return False
        if init.args.kwarg is None:
            return True
        name = init.args.kwarg.arg
        if not any(last_name(call.func) == "__init__" and _spreads(call, name) for call in inside(init, ast.Call)):
            return False
    for base in node.bases:
        found = module.find_callee(base)
        if found is not None and isinstance(found[1], ast.ClassDef) and depth < 10:
            return _refuses(found[0], found[1], depth + 1)
        if _is_timm_class(module.expand(base) or ""):
            return True
    return False


def _is_timm_class(name: str) -> bool:
    return name.startswith("timm.models.") and name.rpartition(".")[2][:1].isupper()
