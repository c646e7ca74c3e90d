"""PS301: a training loop runs its steps eagerly."""

from collections.abc import Iterator

from ..rewriting.rule import Context, Fix, Rule, at_call, diff
from ..rewriting.training_edits import training_calls

_SCRIPT = diff("""\
+import headrace
import torch
import torch.nn as nn

from model import Net


def train(model, loader, criterion, optimizer, device):
    model.train()
    total_loss, correct = 0.0, 0
+    train_step = headrace.training_step(model, criterion, optimizer)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
-        optimizer.zero_grad()
-        outputs = model(images)
-        loss = criterion(outputs, labels)
-        loss.backward()
-        optimizer.step()
+        loss, outputs = train_step(images, labels)

        total_loss += loss.item()  # of the batch
        correct += (outputs.argmax(1) == labels).sum().item()
    return total_loss, correct
""")
_IMAGENET = diff("""\
+import headrace
import torch


def train(train_loader, model, criterion, optimizer, epoch, args):
+    train_step = headrace.training_step(model, criterion, optimizer, clip_grad_norm=args.clip)
    for i, (images, target) in enumerate(train_loader):
        # compute output
-        output = model(images)
-        loss = criterion(output, target)
+        loss, output = train_step(images, target)

        # measure accuracy and record loss
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))

        # compute gradient and do SGD step
-        optimizer.zero_grad()
-        loss.backward()
-        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
-        optimizer.step()

        batch_time.update(time.time() - end)
""")


class TrainingStep(Rule):
    """What it does: makes a training graph of model, criterion and optimizer before a training loop, and calls it in the loop.

    Why: forward, backward and update run as one captured step, without autograd's and the optimizer's Python.

    Example: `optimizer.zero_grad()`, `outputs = model(images)`, `loss = criterion(outputs, labels)`, `loss.backward()` and
    `optimizer.step()` become `loss, outputs = train_step(images, labels)`, after
    `train_step = headrace.training_step(model, criterion, optimizer)`.

    Fix safety: safe. Every step computes what the statements did, in their order; the captured one is compared with eager when
    it is made, and used where it is faster. Loss and outputs come back without history, so statistics stay as they are.
    Loops whose update is more than zero_grad, clipping and step keep it (PS302).
    """

    safety = "safe"
    VALID = (_SCRIPT[1],)
    INVALID = (_SCRIPT, _IMAGENET)

    def check(self, context: Context) -> Iterator[Fix]:
        for call in training_calls(context):
            if call.rejected is None and call.whole is not None:
                fact = call.site.fact
                yield at_call(fact, self.code, f"the training loop runs the steps of {fact.model} eagerly", call.edits)
