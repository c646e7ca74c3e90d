"""PS106: mixed precision by apex."""

from collections.abc import Iterator

from ..reading.names import has_fallback, importing, uses
from ..rewriting.rule import Context, Fix, Repair

_INSTEAD = {
    "apex.amp.initialize": 'make scaler = torch.amp.GradScaler("cuda"), and run the model in `with torch.autocast("cuda"):`',
    "apex.amp.scale_loss": "write scaler.scale(loss).backward(), and later scaler.step(optimizer) and scaler.update()",
    "apex.amp.master_params": "write scaler.unscale_(optimizer), and take the parameters of the model",
    "apex.parallel.convert_syncbn_model": "write torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
}

_BEFORE_1 = """\
import torch
from apex import amp

model, optimizer = amp.initialize(model, optimizer, opt_level='O1')
with amp.scale_loss(loss, optimizer) as scaled:
    scaled.backward()
"""


class ApexAmp(Repair):
    """What it does: says where a script needs apex for mixed precision.

    Why: apex is no package of the index and unmaintained; torch has had the same as torch.amp since 1.6.

    Example: `with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()` is `scaler.scale(loss).backward()` with
    `torch.amp.GradScaler`, and the forward pass goes into `with torch.autocast("cuda"):`.

    Fix safety: there is no fix: apex patches every call, torch.amp marks a region, and which one is meant only the author
    knows.
    """

    safety = "manual"
    VALID = ("import torch\n\nwith torch.autocast('cuda'):\n    pass\n",)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node, _ in [*importing(module, "apex.amp"), *importing(module, "apex")]:
            if not has_fallback(module, node):
                message = "apex has to be compiled and is unmaintained; use torch.amp"
                yield self.fix(context, node, message)
        for name, advice in _INSTEAD.items():
            for use in uses(module, name):
                yield self.fix(context, use, f"{name}: {advice}")
