"""PS129: arguments that libraries removed."""

import ast
from collections.abc import Iterator

from ..reading.bindings import last_name
from ..reading.edits import Edit
from ..reading.nodes import keyword_of
from ..reading.spread_tables import spread_with, tables_with, without_entry
from ..rewriting.call_edits import calls_of, is_spread, source_of, with_argument, without
from ..rewriting.rule import Context, Fix, Repair, diff

_SCHEDULER = "torch.optim.lr_scheduler."
_VERBOSE = ("verbose", "schedulers have no verbose since torch 2.7; leave verbose out")
_BN_TF = ("bn_tf", "no model of timm takes bn_tf since timm 0.4; leave bn_tf out")
_REMOVED = [(name, *_BN_TF) for name in ("timm.create_model", "timm.models.create_model", "timm.models.factory.create_model")]

_CYCLES = ("CosineLRScheduler", "TanhLRScheduler")
_OF_CYCLES = {"t_mul": "cycle_mul", "decay_rate": "cycle_decay"}

_DRAWN = ("OneOf", "SomeOf", "OneOrOther", "RandomOrder")

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


_EXAMPLE_TABLE = diff("""\
import torch

HOW = {
    "factor": 0.5,
-    "patience": 3,
-    "verbose": True,  # prints
+    "patience": 3,  # prints
}
x = torch.optim.lr_scheduler.ReduceLROnPlateau(o, **HOW)
print(HOW["factor"])

logged = dict(verbose=1), {"verbose": False}
TOLD = {"verbose": True, "gamma": 0.1}
print(TOLD)
-y = torch.optim.lr_scheduler.StepLR(o, 3, **TOLD)
+y = torch.optim.lr_scheduler.StepLR(o, 3, **{name: value for name, value in TOLD.items() if name != "verbose"})
""")

_EXAMPLE_2 = diff("""\
import albumentations as A
import torch
from albumentations.pytorch import ToTensorV2

-x = A.Compose([A.Resize(32, 32, always_apply=True), A.Blur(always_apply=False, p=0.1), ToTensorV2(always_apply=True, p=0.5)])
+x = A.Compose([A.Resize(32, 32, p=1.0), A.Blur(p=0.1), ToTensorV2(p=1.0)])
""")

_EXAMPLE_3 = diff("""\
import torch
from timm.scheduler import StepLRScheduler
from timm.scheduler.cosine_lr import CosineLRScheduler

-x = CosineLRScheduler(o, t_initial=n, t_mul=1., decay_rate=0.5, cycle_limit=1)
+x = CosineLRScheduler(o, t_initial=n, cycle_mul=1., cycle_decay=0.5, cycle_limit=1)
y = StepLRScheduler(o, decay_t=3, decay_rate=0.1)
""")


class RemovedArguments(Repair):
    """What it does: leaves out `verbose=` of learning-rate schedulers and `bn_tf=` of timm's `create_model`, gives
    `yaml.load` its loader, says `p=1.0` for albumentations' `always_apply=True`, and `cycle_mul` and `cycle_decay` for the
    `t_mul` and `decay_rate` of timm's schedulers that go in cycles.

    A `verbose` that comes to a scheduler out of a table (`**SCHEDULER`) is left out of the table, or, where anything else reads
    that, of what is spread.

    Why: the calls raise TypeError: schedulers lost `verbose` in torch 2.7, no model of timm takes `bn_tf` since 0.4, timm 0.5
    gave the arguments of cycles names of their own, and PyYAML 6 loads nothing without a `Loader`. albumentations 2 has no
    `always_apply`: `ToTensorV2` raises, others ignore it.

    Example: `ReduceLROnPlateau(optimizer, verbose=True)` becomes `ReduceLROnPlateau(optimizer)`.

    Fix safety: safe; `verbose` only printed the learning rate, and `bn_tf` only reached EfficientNets. `yaml.load(f)`
    becomes `yaml.load(f, Loader=yaml.FullLoader)`, which is what it did before. `p=1.0` means the same in all versions of
    albumentations, but where one of several transforms is drawn by `p`: that is only remarked.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (
        _EXAMPLE_1,
        _EXAMPLE_2,
        _EXAMPLE_3,
        _EXAMPLE_TABLE,
        ("import albumentations as A\nimport torch\n\nx = A.OneOf([A.Blur(always_apply=True), A.Posterize()])\n", None),
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
        for table, entry in tables_with(module, "verbose", _SCHEDULER):
            yield self.fix(context, entry, _VERBOSE[1], without_entry(context.positions, table, entry))
        for given in spread_with(module, "verbose", _SCHEDULER):
            text = source_of(context, given.value)
            rest = f'{{name: value for name, value in {text}.items() if name != "verbose"}}'
            yield self.fix(context, given, _VERBOSE[1], [Edit(*context.positions.span(given.value), rest)])
        for name in [
            name for name in module.references if name.startswith("timm.scheduler.") and name.rpartition(".")[2] in _CYCLES
        ]:
            for call in calls_of(context, name):
                yield from self._cycles(context, call)
        for name in [name for name in module.references if name.startswith("albumentations.")]:
            for call in calls_of(context, name):
                given = keyword_of(call, "always_apply")
                if given is not None:
                    edits = list(self._with_certainty(context, call, given))
                    yield self.fix(context, call, "albumentations 2 has no always_apply; it is p=1.0", edits)
        for call in calls_of(context, "yaml.load"):
            if len(call.args) == 1 and keyword_of(call, "Loader") is None and not is_spread(call):
                edits = [with_argument(context, call, "Loader=yaml.FullLoader")] if module.imports.get("yaml") == "yaml" else []
                yield self.fix(context, call, "yaml.load needs a Loader since PyYAML 6; add Loader=yaml.FullLoader", edits)

    def _cycles(self, context: Context, call: ast.Call) -> Iterator[Fix]:
        for old, new in _OF_CYCLES.items():
            if (given := keyword_of(call, old)) is not None and not is_spread(call):
                start, _ = context.positions.span(given)
                message = f"timm's {last_name(call.func)} takes {new} in place of {old}"
                yield self.fix(context, call, message, [Edit(start, start + len(old), new)])

    def _with_certainty(self, context: Context, call: ast.Call, given: ast.keyword) -> Iterator[Edit]:
        """The edits that say `always_apply` by `p`; none where it is not known, or `p` is the weight of one of several."""
        chance = keyword_of(call, "p")
        outer = context.module.parents.get(call)
        while outer is not None and not (isinstance(outer, ast.Call) and last_name(outer.func) in _DRAWN):
            outer = context.module.parents.get(outer)
        if outer is not None or is_spread(call) or not isinstance(given.value, ast.Constant):
            return
        if not given.value.value:
            yield from without(context, call, [given])
        else:
            start, end = context.positions.span(given)
            yield Edit(start, end, "p=1.0")
            if chance is not None:
                yield from without(context, call, [chance])
