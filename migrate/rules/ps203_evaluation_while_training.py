"""PS203: a model is evaluated by the script that trains it."""

from collections.abc import Iterator

from ..rewriting.evaluation_edits import evaluation_edits
from ..rewriting.graph_mode import groups, is_trained, training_script
from ..rewriting.placement import RejectedError
from ..rewriting.rule import Context, Fix, Rule, at_call, diff

_EVALUATION = """\
import torch

net = Net()
net.eval()
with torch.no_grad():
    for images, labels in loader:
        outputs = net(images)
"""
_TRAINING = diff("""\
+import headrace
import torch


def train(model):
    for images, labels in loader:
        criterion(model(images), labels).backward()


def validate(model):
    model.eval()
    with torch.no_grad():
+        eval_step = headrace.evaluation_step(model)
        for images, labels in loader:
-            outputs = model(images)
+            outputs = eval_step(images)
""")


class EvaluationWhileTraining(Rule):
    """What it does: makes an evaluation step of a model that the same script trains, and calls it in the evaluation loop.

    Why: the weights change between two evaluations, so a graph has to be compiled again for each, which takes seconds to
    minutes. The step measures both and compiles where the evaluation is long enough to gain by it; `main.py --evaluate` on a
    large data set is, the validation of a small one after each epoch may not be and then stays eager.

    Example: `outputs = model(images)` becomes `outputs = eval_step(images)`, after
    `eval_step = headrace.evaluation_step(model)`.

    Fix safety: safe. The graph is checked against the model and follows it when its weights change; a model that is in training
    mode, or whose gradients are wanted, is called as it is. An evaluation that runs once, as the test after the last epoch,
    gets a plain graph (PS201).
    """

    safety = "safe"
    VALID = (_EVALUATION,)
    INVALID = (_TRAINING,)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if is_trained(context, group):
                site = group.first.fact
                what = "evaluation loop" if group.evaluates else "prediction"
                try:
                    edits = evaluation_edits(context, group)
                except RejectedError as reason:
                    yield at_call(site, self.code, f"the {what} stays eager: {reason}")
                else:
                    script = training_script(context, group)
                    also = "and this script also trains" if script is None else f"and {script}, which runs it, also trains"
                    message = f"the {what} calls {group.model} eagerly, {also}"
                    yield at_call(site, self.code, message, edits)
