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
_LAST = """\
import torch


def main():
    net = Net()
    for epoch in range(10):
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        for images, labels in test_loader:
            hits += (net(images).argmax(1) == labels).sum()


main()
"""


class EvaluationWhileTraining(Rule):
    """What it does: says that an evaluation loop was left eager, because the same script trains the model.

    Why: the weights change between two evaluations. A graph would notice that and compute the same, but it would be captured
    and compiled again at each epoch, which takes seconds to minutes, for one pass over the validation data. An evaluation
    that runs once, as the test after the last epoch, gets its graph (PS201).

    Example: `outputs = model(images)` in the `validate` of a training script stays as it is.

    Fix safety: there is no fix; evaluate in a script of its own, or once after training, to have the graph there.
    """

    code = "PS203"
    name = "evaluation-while-training"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    VALID = (_EVALUATION, _LAST)
    INVALID = ((_TRAINING, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if is_trained(context, group):
                site = group.first.fact
                what = "evaluation loop" if group.evaluates else "prediction"
                message = f"the {what} stays eager: this script trains {group.model}, so its weights change between calls"
                yield Fix(Finding(site.path, site.call_line, site.call_column, self.code, message, "note", "manual"))
