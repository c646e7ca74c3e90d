"""PS159: what timm calls the configuration of weights."""

import ast
from collections.abc import Iterator

from ..reading.bindings import last_name
from ..reading.edits import Edit
from ..reading.nodes import keyword_of, values_of
from ..rewriting.call_edits import calls_of, source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_OLD, _NEW = "default_cfg", "pretrained_cfg"
_TAKE_IT = ("build_model_with_cfg", "load_pretrained")
_SIMPLE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Dict)

_EXAMPLE_1 = diff("""\
import torch
from timm.models import build_model_with_cfg, load_pretrained

CONFIGS = {"small": {"url": ""}}


def create(variant, pretrained=False, **kwargs):
    return build_model_with_cfg(
        Net,
        variant,
        pretrained,
-        default_cfg=CONFIGS[variant],
+        pretrained_cfg=kwargs.pop("pretrained_cfg", None) or CONFIGS[variant],
        **kwargs)


model = Net()
-load_pretrained(model, default_cfg=CONFIGS["small"], num_classes=10)
+load_pretrained(model, pretrained_cfg=CONFIGS["small"], num_classes=10)
""")
_EXAMPLE_2 = diff("""\
import timm.models as models
import torch


def create(variant, default_cfg=None, **given):
    given = dict(given, depth=3)
-    return models.build_model_with_cfg(Net, variant, False, default_cfg=default_cfg if variant else {}, **given)
+    return models.build_model_with_cfg(Net, variant, False, pretrained_cfg=given.pop("pretrained_cfg", None) or (default_cfg if variant else {}), **given)
""")  # noqa: E501
_OF_MODULE = """\
import torch
from timm.models import build_model_with_cfg

SHARED = {"depth": 3}
x = build_model_with_cfg(Net, "net", False, default_cfg={}, **SHARED)
"""
_OWN = """\
import torch


def build_model_with_cfg(model, variant, pretrained, default_cfg):
    return model()


x = build_model_with_cfg(torch.nn.ReLU, "x", False, default_cfg={})
"""


class TimmConfigurations(Repair):
    """What it does: writes `pretrained_cfg=` for the `default_cfg=` of timm's `build_model_with_cfg` and `load_pretrained`.

    Why: timm 0.6 renamed it, and hands a registered model `pretrained_cfg`, None where nobody asks for one, besides. What it
    does not know it gives to the model's own class, which raises TypeError.

    Example: `build_model_with_cfg(Net, variant, pretrained, default_cfg=cfg, **kwargs)` becomes `build_model_with_cfg(Net,
    variant, pretrained, pretrained_cfg=kwargs.pop("pretrained_cfg", None) or cfg, **kwargs)`.

    Fix safety: safe; the same configuration is used. Where the other arguments come out of anything but the function's own
    variables, it is only remarked.
    """

    safety = "safe"
    VALID = (_OWN,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2, (_OF_MODULE, None))

    def check(self, context: Context) -> Iterator[Fix]:
        names = [name for name in context.module.references if name.startswith("timm.") and name.rpartition(".")[2] in _TAKE_IT]
        for name in names:
            for call in calls_of(context, name):
                if (given := keyword_of(call, _OLD)) is not None:
                    message = f"timm's {last_name(call.func)} takes {_NEW} in place of {_OLD} since timm 0.6"
                    yield self.fix(context, call, message, list(self._renamed(context, call, given)))

    def _renamed(self, context: Context, call: ast.Call, given: ast.keyword) -> Iterator[Edit]:
        spread = [item.value for item in call.keywords if item.arg is None]
        taken = [item for item in spread if isinstance(item, ast.Name) and _is_own(context, call, item.id)]
        if taken != spread:
            return
        start, _ = context.positions.span(given)
        yield Edit(start, start + len(_OLD), _NEW)
        if taken:
            begin, end = context.positions.span(given.value)
            text = source_of(context, given.value)
            text = text if isinstance(given.value, _SIMPLE) else f"({text})"
            first = " or ".join(f'{item.id}.pop("{_NEW}", None)' for item in taken)
            yield Edit(begin, end, f"{first} or {text}")


def _is_own(context: Context, call: ast.Call, name: str) -> bool:
    """Whether a variable is the `**name` of the function around a call, or is assigned there: a table of its own."""
    function = context.module.function_of(call)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if function.args.kwarg is not None and function.args.kwarg.arg == name:
        return True
    given = values_of(function, name)
    return any(isinstance(item, ast.Dict) or (isinstance(item, ast.Call) and last_name(item.func) == "dict") for item in given)
