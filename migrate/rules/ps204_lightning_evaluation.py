"""PS204: a LightningModule evaluates its network eagerly."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside
from ..reading.scopes import dotted
from ..rewriting.graph_mode import bound_elsewhere, import_edits
from ..rewriting.rule import Context, Fix, Rule, diff
from ..survey.lightning_module import network

_TRAINS = frozenset(["__init__", "training_step", "configure_model", "configure_optimizers", "on_fit_start"])
_EXAMPLE = diff("""\
import pytorch_lightning as pl
+import headrace
import torch
import torchvision.models as models


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.criterion = torch.nn.CrossEntropyLoss()
        self.model = models.resnet18(num_classes=10)

    def forward(self, batch):
        images, labels = batch
-        predictions = self.model(images)
+        predictions = headrace.evaluation_step(self.model)(images)
        return self.criterion(predictions, labels)

    def training_step(self, batch, index):
        return self.forward(batch)

    def test_step(self, batch, index):
        self.log("loss", self.forward(batch))


pl.Trainer().test(Classifier(), loader)
""")


class LightningEvaluation(Rule):
    """What it does: calls the network of a LightningModule through its evaluation step.

    Why: the Trainer holds the loops, and the module's steps serve training and evaluation. The evaluation step is the network
    itself where gradients are wanted, and a graph where the Trainer validates, tests or predicts for long enough.

    Example: `self.model(images)` becomes `headrace.evaluation_step(self.model)(images)`.

    Fix safety: safe. The graph is checked against the network and follows it when its weights change; the module's attributes,
    state dict and checkpoints stay as they are. Modules that are the network themselves are left alone.
    """

    safety = "safe"
    VALID = (_EXAMPLE[1],)
    INVALID = (_EXAMPLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for model in context.index.table.classes.values():
            attribute = network(model) if model.lightning and model.module is module else None
            if attribute is None or bound_elsewhere(module):
                continue
            for call in _calls(model.node, f"self.{attribute}"):
                start, end = context.positions.span(call.func)
                edits = [Edit(start, end, f"headrace.evaluation_step(self.{attribute})"), *import_edits(context)]
                yield self.fix(context, call, f"{model.node.name} evaluates self.{attribute} eagerly", edits, severity="note")


def _calls(owner: ast.ClassDef, name: str) -> Iterator[ast.Call]:
    """The calls of the network on images alone, where more than training may reach them."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name not in _TRAINS:
            for call in inside(method, ast.Call):
                if dotted(call.func) == name and len(call.args) == 1 and not call.keywords:
                    yield call
