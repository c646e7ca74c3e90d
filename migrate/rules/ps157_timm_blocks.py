"""PS157: arguments of the blocks of timm's vision transformers."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import defaults_of, keyword_of
from ..reading.scopes import Module
from ..rewriting.call_edits import calls_of, is_spread, without
from ..rewriting.rule import Context, Fix, Repair, diff

_HOME = "timm.models.vision_transformer"
_BLOCK, _ATTENTION = f"{_HOME}.Block", f"{_HOME}.Attention"
_SCALE = "qk_scale"

_EXAMPLE_1 = diff("""\
import torch
from timm.models.vision_transformer import Block, PatchEmbed

x = PatchEmbed(224, 16)
-y = Block(768, 12, 4, qkv_bias=True, qk_scale=None, norm_layer=Norm)
+y = Block(768, 12, 4, qkv_bias=True, norm_layer=Norm)
-z = [Block(dim=8, num_heads=2, drop=0.1, attn_drop=0.2) for _ in range(2)]
+z = [Block(dim=8, num_heads=2, proj_drop=0.1, attn_drop=0.2) for _ in range(2)]
""")
_EXAMPLE_2 = diff("""\
import timm.models.vision_transformer as transformers
import torch


class Encoder(torch.nn.Module):
    def __init__(self, dim, heads=8, scale=None, drop=0.0):
        super().__init__()
-        self.block = transformers.Block(dim, heads, qk_scale=scale, drop=drop)
+        self.block = transformers.Block(dim, heads, proj_drop=drop)


encoder = Encoder(64, scale=None)
""")
_OWN_SCALE = """\
import torch
from timm.models.vision_transformer import Attention

x = Attention(64, qk_scale=0.2)
"""
_GIVEN_SCALE = """\
import torch
from timm.models.vision_transformer import Attention


def attention(dim, scale=None):
    return Attention(dim, qk_scale=scale)


x = attention(64, scale=0.2)
"""
_OWN_BLOCK = """\
import torch


class Block(torch.nn.Module):
    def __init__(self, dim, qk_scale=None, drop=0.0):
        super().__init__()


x = Block(8, qk_scale=None, drop=0.1)
"""


class TimmBlocks(Repair):
    """What it does: writes `proj_drop=` for the `drop=` of timm's `Block`, and leaves out a `qk_scale=` of None of `Block` and
    `Attention`.

    Why: the calls raise TypeError: timm 0.5 took `qk_scale` out, and 0.9 renamed `drop`.

    Example: `Block(dim, heads, qk_scale=None, drop=0.1)` becomes `Block(dim, heads, proj_drop=0.1)`.

    Fix safety: safe; the dropout stands where it stood, and None always meant the scale that timm computes today. A scale of
    one's own is only remarked, and so is a parameter for which something in the repository gives one.
    """

    safety = "safe"
    VALID = (_OWN_BLOCK,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2, (_OWN_SCALE, None), (_GIVEN_SCALE, None))

    def check(self, context: Context) -> Iterator[Fix]:
        for name in (_BLOCK, _ATTENTION):
            for call in calls_of(context, name):
                yield from self._scale(context, call)
        for call in calls_of(context, _BLOCK):
            given = keyword_of(call, "drop")
            if given is not None and not is_spread(call):
                start, _ = context.positions.span(given)
                message = "timm's Block takes proj_drop in place of drop since timm 0.9"
                yield self.fix(context, call, message, [Edit(start, start + len("drop"), "proj_drop")])

    def _scale(self, context: Context, call: ast.Call) -> Iterator[Fix]:
        given = keyword_of(call, _SCALE)
        if given is None or is_spread(call):
            return
        message = f"timm's blocks take no {_SCALE} since timm 0.5"
        if _is_none(context.module, call, given.value):
            yield self.fix(context, call, f"{message}; leave it out", without(context, call, [given]))
        else:
            yield self.fix(context, call, f"{message}, and scale by the size of a head; write the block yourself", [])


def _is_none(module: Module, call: ast.Call, value: ast.expr) -> bool:
    """Whether a value is None, or a parameter that is None unless something is given for it, which nothing in the repository
    does by its name."""
    if isinstance(value, ast.Constant):
        return value.value is None
    function = module.function_of(call)
    if not isinstance(value, ast.Name) or not isinstance(function, ast.FunctionDef):
        return False
    default = defaults_of(function).get(value.id)
    given = (keyword_of(other, value.id) for file in module.repository.modules.values() for other in file.calls)
    values = (item.value for item in given if item is not None)
    own = all((isinstance(item, ast.Constant) and item.value is None) or _hands_on(item, value.id) for item in values)
    return isinstance(default, ast.Constant) and default.value is None and own


def _hands_on(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name
