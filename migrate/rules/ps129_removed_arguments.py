"""PS129: arguments that libraries removed."""

from collections.abc import Iterator

from ..reading.nodes import keyword_of
from ..rewriting.call_edits import calls_of, is_spread, with_argument, without
from ..rewriting.rule import Context, Fix, Repair, diff

_SCHEDULER = "torch.optim.lr_scheduler."
_VERBOSE = ("verbose", "schedulers have no verbose since torch 2.7; leave verbose out")
_BN_TF = ("bn_tf", "no model of timm takes bn_tf since timm 0.4; leave bn_tf out")
_REMOVED = [(name, *_BN_TF) for name in ("timm.create_model", "timm.models.create_model", "timm.models.factory.create_model")]

_VALID_1 = """\
import torch
import yaml
from torch.optim.lr_scheduler import StepLR

x = StepLR(o, 3)  # verbose=True
y = yaml.load(f, Loader=yaml.SafeLoader), yaml.safe_load(f)
"""
_EXAMPLE_1 = diff("""\
import torch
import yaml
from torch.optim import lr_scheduler

-x = lr_scheduler.ReduceLROnPlateau(o, 'min', verbose=True, patience=3)
-y = torch.optim.lr_scheduler.StepLR(o, 2, verbose=False)
-z = yaml.load(open('a'))
+x = lr_scheduler.ReduceLROnPlateau(o, 'min', patience=3)
+y = torch.optim.lr_scheduler.StepLR(o, 2)
+z = yaml.load(open('a'), Loader=yaml.FullLoader)
""")


class RemovedArguments(Repair):
    """What it does: leaves out `verbose=` of learning-rate schedulers and `bn_tf=` of timm's `create_model`, and gives
    `yaml.load` its loader.

    Why: the calls raise TypeError: schedulers lost `verbose` in torch 2.7, no model of timm takes `bn_tf` since 0.4, and
    PyYAML 6 loads nothing without a `Loader`.

    Example: `ReduceLROnPlateau(optimizer, verbose=True)` becomes `ReduceLROnPlateau(optimizer)`.

    Fix safety: safe; `verbose` only printed the learning rate, and `bn_tf` only reached EfficientNets. `yaml.load(f)`
    becomes `yaml.load(f, Loader=yaml.FullLoader)`, which is what it did before.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (
        _EXAMPLE_1,
        (
            "from timm.models import create_model\n\nm = create_model(\n    a.m,\n    drop=0,\n    bn_tf=a.bn_tf,\n    x=1)\n",
            "from timm.models import create_model\n\nm = create_model(\n    a.m,\n    drop=0,\n    x=1)\n",
        ),
    )

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for name, argument, message in [
            *_REMOVED,
            *((name, *_VERBOSE) for name in module.references if name.startswith(_SCHEDULER)),
        ]:
            for call in calls_of(context, name):
                given = keyword_of(call, argument)
                if given is not None and not is_spread(call):
                    yield self.fix(context, call, message, without(context, call, [given]))
        for call in calls_of(context, "yaml.load"):
            if len(call.args) == 1 and keyword_of(call, "Loader") is None and not is_spread(call):
                edits = [with_argument(context, call, "Loader=yaml.FullLoader")] if module.imports.get("yaml") == "yaml" else []
                yield self.fix(context, call, "yaml.load needs a Loader since PyYAML 6; add Loader=yaml.FullLoader", edits)
