"""PS201: an evaluation loop calls the model eagerly."""

from collections.abc import Iterator

from ..rewriting.evaluation_edits import by_name, propose_step
from ..rewriting.graph_mode import groups, is_trained, propose
from ..rewriting.placement import filled_in_rounds, taken_in_rounds
from ..rewriting.rule import Context, Fix, Rule, diff

_SCRIPT = diff("""\
+import headrace
import torch
from torch.utils.data import DataLoader

from model import Net


def main():
    model = Net()
    model.load_state_dict(torch.load("net.pth"))
    model.eval()
+    graph = headrace.compile(model)
    correct = 0
    with torch.no_grad():
        for images, labels in DataLoader(data):
-            outputs = model(images)  # logits
+            outputs = graph(images)  # logits
            correct += (outputs.argmax(1) == labels).sum().item()
    print(correct)


if __name__ == "__main__":
    main()
""")
_FUNCTION = diff("""\
+import headrace
import torch


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
+    graph = headrace.compile(net)
    hits = 0
    for batch in loader:
        images, target = batch
-        hits += (net(images).argmax(1) == target).sum()
+        hits += (graph(images).argmax(1) == target).sum()
    return hits
""")


class EvaluationLoop(Rule):
    """What it does: makes one graph of the model before an evaluation loop, and calls the graph in the loop.

    Why: the same network runs over and over on batches of one shape; as a graph it runs on the fastest backend that gives
    the same answers.

    Example: `outputs = model(images)` becomes `outputs = graph(images)`, after `graph = headrace.compile(model)`.

    Fix safety: safe; unsafe where nothing puts the model in evaluation mode, and it has layers that know one. The graph is
    checked against the model, and follows it when its weights change. Models that the same script trains get an evaluation
    step instead (PS203).
    """

    safety = "safe"
    VALID = ("import torch\n\nfor images, labels in loader:\n    loss = model(images).sum()\n    loss.backward()\n",)
    INVALID = (_SCRIPT, _FUNCTION)

    def check(self, context: Context) -> Iterator[Fix]:
        for group in groups(context):
            if not group.evaluates or is_trained(context, group):
                continue
            site = next(item for item in group.sites if item.fact.kind == "evaluate").fact
            rounds = filled_in_rounds(context.module, group) or taken_in_rounds(context.module, group)
            bring = propose_step if by_name(group) or rounds else propose
            yield bring(context, group, site, self.code, "evaluation loop")
