"""PS303: a training loop was not understood well enough to be rewritten."""

from collections.abc import Iterator

from ..rewriting.rule import Context, Fix, Rule, at_call
from ..rewriting.training_edits import training_calls

_PLAIN = """\
import torch

for images, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""
_TWICE = """\
import torch

for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.first_step(zero_grad=True)
    criterion(model(images), labels).backward()
    optimizer.second_step(zero_grad=True)
"""
_PARALLEL = """\
import torch
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model)
for images, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""


class TrainingLeftEager(Rule):
    """What it does: says that a training loop was left eager, and why.

    Why: a loop is rewritten whole or not at all; where it back-propagates twice, exchanges gradients between processes, or
    hands its loss to code of its own, one call could not stand for the step.

    Example: a loop with two `backward()` of one batch, as sharpness-aware minimization has, stays as it is.

    Fix safety: there is no fix; write a `headrace.Graph` with `add_optimizer`, or call `headrace.training_step`, by hand.
    """

    safety = "manual"
    VALID = (_PLAIN,)
    INVALID = ((_TWICE, None), (_PARALLEL, None))

    def check(self, context: Context) -> Iterator[Fix]:
        for call in training_calls(context):
            if call.rejected is not None:
                fact = call.site.fact
                yield at_call(fact, self.code, f"the training loop of {fact.model} stays eager: {call.rejected}")
