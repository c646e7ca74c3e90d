"""PS204: a LightningModule evaluates its network eagerly."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.graph_mode import bound_elsewhere, import_edits
from ..rewriting.rule import Context, Fix, Rule, diff
from ..survey.lightning_module import evaluation_calls, is_scripted, networks

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


_PARTS = diff("""\
import pytorch_lightning as pl
+import headrace
import torch
import torchvision.models as models


class Head(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = torch.nn.Linear(1000, classes)

    def forward(self, x):
        return self.fc(x)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.criterion = torch.nn.CrossEntropyLoss()
        self.backbone = models.resnet18()
        self.top = Head(10)

    def training_step(self, batch, index):
        images, labels = batch
        return self.criterion(self.top(self.backbone(images)), labels)

    def validation_step(self, batch, index):
        images, labels = batch
-        features = self.backbone(images)
+        features = headrace.evaluation_step(self.backbone)(images)
-        self.log("loss", self.criterion(self.top(features), labels))
+        self.log("loss", self.criterion(headrace.evaluation_step(self.top)(features), labels))


pl.Trainer().fit(Classifier(), loader)
""")


class LightningEvaluation(Rule):
    """What it does: calls the network of a LightningModule through its evaluation step.

    Why: the Trainer holds the loops, and the module's steps serve training and evaluation. The evaluation step is the network
    itself where gradients are wanted, and a graph where the Trainer validates, tests or predicts for long enough.

    Example: `self.model(images)` becomes `headrace.evaluation_step(self.model)(images)`.

    Fix safety: safe. The graph is checked against the network and follows it when its weights change; the module's attributes,
    state dict and checkpoints stay as they are. Of a network in parts, such as a body and a head that the steps call one after
    the other, each gets its own. Modules that are the network themselves are left alone, and so is a `forward` of which
    TorchScript is made.
    """

    safety = "safe"
    VALID = (_EXAMPLE[1], _PARTS[1], _EXAMPLE[0] + "torch.jit.script(Classifier())\n")
    INVALID = (_EXAMPLE, _PARTS)

    def check(self, context: Context) -> Iterator[Fix]:
        module, table = context.module, context.index.table
        models = [model for model in table.classes.values() if model.lightning and model.module is module]
        scripted = bool(models) and is_scripted(context.index.repository)
        for model in models if not bound_elsewhere(module) else ():
            for called in networks(model, table):
                for call in evaluation_calls(model.node, called, scripted=scripted):
                    if isinstance(module.parents[call], ast.Expr):
                        continue  # what it gives is thrown away
                    start, end = context.positions.span(call.func)
                    edits = [Edit(start, end, f"headrace.evaluation_step({called})"), *import_edits(context)]
                    yield self.fix(context, call, f"{model.node.name} evaluates {called} eagerly", edits, severity="note")
