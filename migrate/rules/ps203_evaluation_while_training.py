"""PS203: a model is evaluated by the script that trains it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from ..finding import Finding
from ..graph_mode import groups, is_trained
from ..rule import Context, Fix, Rule

_EVALUATION = """\
import torch

net = Net()
net.eval()
with torch.no_grad():
    for images, labels in loader:
        outputs = net(images)
"""
_TRAINING = """\
import torch


def train(model):
    for images, labels in loader:
        criterion(model(images), labels).backward()


def validate(model):
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            outputs = model(images)
"""


class EvaluationWhileTraining(Rule):
    """What it does: says that an evaluation loop was left eager, because the same script trains the model.

    Why: the weights change between two evaluations, so a graph would be made again at each epoch for one pass over the
    validation data.

    Example: `outputs = model(images)` in the `validate` of a training script stays as it is.

    Fix safety: there is no fix; evaluate in a script of its own to have the graph there.
    """

    code = "PS203"
    name = "evaluation-while-training"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (_EVALUATION,)
    INVALID = ((_TRAINING, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if is_trained(context, group):
                site = group.first.fact
                what = "evaluation loop" if group.evaluates else "prediction"
                message = f"the {what} stays eager: this script trains {group.model}, so its weights change between calls"
                yield Fix(Finding(site.path, site.call_line, site.call_column, self.code, message, "note", "manual"))
