"""PS202: prediction code calls the model eagerly."""

from collections.abc import Iterator

from ..rewriting.evaluation_edits import by_name, propose_step
from ..rewriting.graph_mode import check_calls, groups, is_trained, propose
from ..rewriting.graph_names import Group
from ..rewriting.placement import (
    RejectedError,
    filled_in_rounds,
    made_in_rounds,
    outlives_calls,
    runs_per_input,
    taken_in_rounds,
)
from ..rewriting.rule import Context, Fix, Rule, diff

_SERVICE = diff("""\
+import headrace
import torch
from flask import Flask
from torchvision import models

app = Flask(__name__)
model = models.resnet18(num_classes=10)
model.eval()
+graph = headrace.compile(model)


@app.route("/predict")
def predict():
    with torch.no_grad():
-        scores = model.forward(read_image())
+        scores = graph(read_image())
    return str(scores.argmax())
""")
_CLASS = diff("""\
+import headrace
import torch


class Classifier:
    def __init__(self, path):
        self.model = torch.load(path)
        self.model.eval()
+        self.graph = headrace.compile(self.model)
        self.names = []

    @torch.inference_mode()
    def predict(self, image):
-        return self.model(image).argmax(1)
+        return self.graph(image).argmax(1)
""")
_ENSEMBLE = diff("""\
+import headrace
import torch


def predict(models, loader):
    found = []
    with torch.no_grad():
        for images in loader:
            total = 0
            for model in models:
-                total = total + model(images).softmax(1)
+                eval_step = headrace.evaluation_step(model)
+                total = total + eval_step(images).softmax(1)
            found.append(total / len(models))
    return found


def predict_one(models, image):
    with torch.no_grad():
-        return sum(model(image).softmax(1) for model in models).argmax(1)
+        return sum(headrace.evaluation_step(model)(image).softmax(1) for model in models).argmax(1)
""")


class PredictionCall(Rule):
    """What it does: makes one graph where the model is made ready, and calls the graph on the images to classify.

    Why: a service or a batch job calls the same network again and again; as a graph it runs on the fastest backend that gives
    the same answers.

    Example: `scores = model(image)` becomes `scores = graph(image)`, after `graph = headrace.compile(model)`.

    Fix safety: safe; unsafe where nothing puts the model in evaluation mode, and it has layers that know one. A function
    that gets its model as a parameter, or from a function with a cache, and classifies one input, gets
    `headrace.evaluation_step(model)`, which the model keeps, and which compiles once enough inputs came; so does one whose
    model is held by an object or a global that is set elsewhere, and a loop that takes a model in each round, as
    `model = models[kind]` and `for model in models` do.
    Where the function makes the model itself at each call, the rule only remarks.
    """

    safety = "safe"
    VALID = ("import torch\n\nmodel = torch.nn.Linear(2, 2)\nprint(model)\n",)
    INVALID = (_SERVICE, _CLASS, _ENSEMBLE)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if group.evaluates or is_trained(context, group):
                continue
            site = group.first.fact
            held, repeated = outlives_calls(context, group), runs_per_input(context, group)
            steps = (held and repeated) or (by_name(group) and (held or not repeated))
            steps |= not repeated and (made_in_rounds(context.module, group) or filled_in_rounds(context.module, group))
            steps |= taken_in_rounds(context.module, group)
            fix = (propose_step if steps else propose)(context, group, site, self.code, "prediction")
            if held and not steps and not fix.edits and not _unfit(context, group):
                fix = propose_step(context, group, site, self.code, "prediction")
            yield fix


def _unfit(context: Context, group: Group) -> bool:
    """Whether the calls themselves are none of a graph's, wherever that is made."""
    try:
        check_calls(context.module, group)
    except RejectedError:
        return True
    return False
