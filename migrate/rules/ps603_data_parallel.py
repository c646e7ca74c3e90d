"""PS603: a model in DataParallel that is evaluated."""

from collections.abc import Iterator

from ..rewriting.call_edits import calls_of
from ..rewriting.rule import Context, Fix, Rule

_BEFORE_1 = """\
import torch

model = torch.nn.DataParallel(load_model())
model.eval()
with torch.no_grad():
    for images, labels in loader:
        outputs = model(images)
"""


class DataParallel(Rule):
    """What it does: says that a model which goes into graph mode is wrapped in DataParallel.

    Why: a graph runs on one device; DataParallel copies the model to every GPU at each call, which one graph per GPU does
    without.

    Example: `model = torch.nn.DataParallel(model)` in an evaluation script.

    Fix safety: there is no fix: the keys of checkpoints that the script loads may carry the wrapper's `module.` prefix.
    """

    safety = "manual"
    VALID = ("import torch\n\nmodel = torch.nn.DataParallel(model)\n",)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        if not any(site.fact.kind != "train" for site in context.sites):
            return
        for name in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            for call in calls_of(context, name):
                message = "DataParallel copies the model at each call, and a graph runs on one device; leave DataParallel out"
                yield self.fix(context, call, message, severity="note")
