"""PS305: a script trains by DataParallel."""

from collections.abc import Iterable, Iterator

from ..rewriting.parallel.training import REPLICATED, parallel_trainings
from ..rewriting.rule import Context, Fix, Rule, diff
from ..survey.loops import CallSite

_SCRIPT = diff("""\
+import headrace
import torch
from torch import nn

from data import train_loader
from net import Net


def main():
+    headrace.parallel.same_start("cuda" if torch.cuda.is_available() else "cpu")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net().to(device)
-    if torch.cuda.device_count() > 1:
-        model = nn.DataParallel(model)
+    if headrace.parallel.world_size() > 1:
+        placement = headrace.parallel.world(next(model.parameters()).device.type)
+        model = headrace.parallel.to_global(model, placement, own_statistics=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
+    train_step = headrace.training_step(model, criterion, optimizer, batches="whole")
    for images, labels in train_loader:
        images, labels = images.to(device), labels.to(device)
-        optimizer.zero_grad()
-        outputs = model(images)
-        loss = criterion(outputs, labels)
-        loss.backward()
-        optimizer.step()
+        loss, outputs = train_step(images, labels)


if __name__ == "__main__":
    main()
""")


class DataParallelTraining(Rule):
    """What it does: makes a script that trains by nn.DataParallel a program over global tensors, for torchrun (`--parallel`).

    Why: DataParallel copies the model to every GPU at each step and computes the loss on one; ranks keep theirs, and the step
    is captured with its collectives.

    Example: `model = nn.DataParallel(model)` becomes `model = headrace.parallel.to_global(model, placement)`, its loop a
    training step that takes the whole batch, of which rank 0's is dealt out, and `torch.save(...)` is done by rank 0.

    Fix safety: safe. Each rank normalizes its own rows of a batch, as each replica did; a last batch whose rows cannot be
    dealt out evenly is computed whole on every rank. Every rank runs the whole script, with the random numbers of rank 0, so
    it prints what it prints once for each rank. A script that is not understood whole is left as it was (PS306).
    """

    safety = "safe"
    option = "parallel"
    VALID = (_SCRIPT[1], "import torch\n\nmodel = torch.nn.DataParallel(model)\n")
    INVALID = (_SCRIPT,)

    def check(self, context: Context) -> Iterator[Fix]:
        for found in parallel_trainings(context):
            if found.kind == REPLICATED and found.rejected is None:
                message = "the model is trained by DataParallel, which copies it to every GPU at each step"
                yield self.fix(context, found.call, message, found.edits, severity="note")

    def claims(self, context: Context) -> Iterable[CallSite]:
        return [site for found in parallel_trainings(context) if found.kind == REPLICATED for site in found.sites]
