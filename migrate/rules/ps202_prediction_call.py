"""PS202: prediction code calls the model eagerly."""

from collections.abc import Iterator

from ..rewriting.evaluation_edits import evaluation_edits
from ..rewriting.graph_mode import groups, is_trained, propose
from ..rewriting.placement import RejectedError, outlives_calls, runs_per_input
from ..rewriting.rule import Context, Fix, Rule, at_call, diff

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


class PredictionCall(Rule):
    """What it does: makes one graph where the model is made ready, and calls the graph on the images to classify.

    Why: a service or a batch job calls the same network again and again; as a graph it runs on the fastest backend that gives
    the same answers.

    Example: `scores = model(image)` becomes `scores = graph(image)`, after `graph = headrace.compile(model)`.

    Fix safety: safe; unsafe where nothing puts the model in evaluation mode. A function that gets its model as a parameter, or
    from a function with a cache, and classifies one input, gets `headrace.evaluation_step(model)`, which the model keeps, and
    which compiles once enough inputs came. Where the function makes the model itself at each call, the rule only remarks.
    """

    safety = "safe"
    VALID = ("import torch\n\nmodel = torch.nn.Linear(2, 2)\nprint(model)\n",)
    INVALID = (_SERVICE, _CLASS)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if group.evaluates or is_trained(context, group):
                continue
            site = group.first.fact
            if runs_per_input(context, group) and outlives_calls(context, group):
                try:
                    edits = evaluation_edits(context, group)
                except RejectedError as reason:
                    yield at_call(site, self.code, f"the prediction stays eager: {reason}", severity="warning")
                else:
                    yield at_call(site, self.code, f"the prediction calls {group.model} eagerly, one input at a time", edits)
            else:
                yield propose(context, group, site, self.code, "prediction")
