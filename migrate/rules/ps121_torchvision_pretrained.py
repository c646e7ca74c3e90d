"""PS121: `pretrained=` of torchvision's models."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import keyword_of
from ..rewriting.call_edits import calls_of, is_spread, source_of, truth
from ..rewriting.rule import Context, Fix, Repair, diff

_WEIGHTS = '"IMAGENET1K_V1"'
_MODELS = """
    alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169
    densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4
    efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s
    googlenet inception_v3 mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large
    mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf
    regnet_x_8gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf
    regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext50_32x4d
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1
    swin_b swin_s swin_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32
    vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2
""".split()  # noqa: SIM905

_VALID_1 = """\
import torch
from torchvision import models

x = models.resnet18(weights=None)  # pretrained=True
"""
_EXAMPLE_1 = diff("""\
import torch
from torchvision import models
from torchvision.models import vgg16 as net

-x = models.resnet18(pretrained=True, progress=False)
-y = net(pretrained = False)
-z = models.resnet50(pretrained=args.pretrained)
+x = models.resnet18(weights="IMAGENET1K_V1", progress=False)
+y = net(weights=None)
+z = models.resnet50(weights="IMAGENET1K_V1" if args.pretrained else None)
""")


class TorchvisionPretrained(Repair):
    """What it does: names the weights that `pretrained=True` stands for.

    Why: `pretrained` is deprecated since torchvision 0.13 and warns at each call.

    Example: `models.resnet18(pretrained=True)` becomes `models.resnet18(weights="IMAGENET1K_V1")`.

    Fix safety: safe; they are the same weights. Models for which `pretrained` stood for other weights, and calls by
    position or through a table of models, stay.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        if not any(name.startswith("torchvision") for name in context.module.imports.values()):
            return
        for name in _MODELS:
            for call in calls_of(context, f"torchvision.models.{name}"):
                argument = keyword_of(call, "pretrained")
                if argument is None or keyword_of(call, "weights") is not None or is_spread(call):
                    continue
                known = truth(argument.value)
                value = {True: _WEIGHTS, False: "None", None: f"{_WEIGHTS} if {source_of(context, argument.value)} else None"}[
                    known
                ]
                if known is None and not isinstance(argument.value, ast.Name | ast.Attribute):
                    continue
                edit = Edit(*context.positions.span(argument), f"weights={value}")
                message = f"pretrained is deprecated; for {name} write weights={value}"
                yield self.fix(context, call, message, [edit], severity="note")
