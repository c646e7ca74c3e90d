"""PS205: a network evaluates itself eagerly, in its own methods."""

from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.graph_mode import check_calls, check_not_eager, import_edits
from ..rewriting.graph_names import Group
from ..rewriting.placement import RejectedError
from ..rewriting.rule import Context, Fix, Rule, at_call, diff

_STEPS = diff("""\
+import headrace
import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    def forward(self, images):
        return self.layers(images)

    def training_step(self, batch):
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def validation_step(self, batch):
        images, labels = batch
-        out = self(images)  # logits
+        out = headrace.evaluation_step(self)(images)  # logits
        return (out.argmax(1) == labels).sum()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return sum(model.validation_step(batch) for batch in loader)
""")
_LOOP = diff("""\
+import headrace
import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(784, 10)

    def forward(self, x):
        return self.score(x.flatten(1))

    def score(self, x):
        return self.layer(x)

    def test_loop(self, dataloader):
        correct = 0
        with torch.no_grad():
            for images, labels in dataloader:
-                correct += (self.forward(images).argmax(1) == labels).sum().item()
+                correct += (headrace.evaluation_step(self)(images).argmax(1) == labels).sum().item()
        return correct
""")
_TRAINED = """\
import torch


class Network(torch.nn.Module):
    def forward(self, x):
        return self.validated(x)

    def validated(self, x):
        return self(x) if x.ndim == 1 else x

    def train_loop(self, loader, optimizer):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(self(images), labels)
            loss.backward()
            optimizer.step()
"""


class OwnEvaluation(Rule):
    """What it does: calls a network through its evaluation step, in the methods by which it validates, tests and predicts.

    Why: networks that bring such methods, as `validation_step` in many courses, are evaluated by them over and over, between
    epochs of training too. The evaluation step is the network itself where it is in training mode or gradients are wanted, and
    a graph where it is evaluated for long enough.

    Example: `out = self(images)` becomes `out = headrace.evaluation_step(self)(images)`.

    Fix safety: safe. The graph is checked against the network and follows it when its weights change; the network's attributes,
    state dict and checkpoints stay as they are. What `forward` itself calls is left alone, and so are training steps.
    """

    safety = "safe"
    VALID = (_TRAINED,)
    INVALID = (_STEPS, _LOOP)

    def check(self, context: Context) -> Iterator[Fix]:
        for site in context.index.own:
            if site.module is not context.module or site.fact.kind == "train":
                continue
            group, what = Group((site,)), f"{site.fact.function or 'the network'} calls {site.fact.model}"
            try:
                check_not_eager(context, group)
                check_calls(site.module, group, falls_back=True)
            except RejectedError as reason:
                yield at_call(site.fact, self.code, f"{what} eagerly, and it stays so: {reason}", severity="warning")
                continue
            start, end = context.positions.span(site.call.func)
            edits = [Edit(start, end, f"headrace.evaluation_step({site.fact.model})"), *import_edits(context)]
            yield at_call(site.fact, self.code, f"{what} eagerly", edits)
