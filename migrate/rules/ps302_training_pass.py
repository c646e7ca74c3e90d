"""PS302: a training loop whose update is its own runs forward and backward eagerly."""

from collections.abc import Iterator

from ..rewriting.rule import Context, Fix, Rule, at_call, diff
from ..rewriting.training_edits import training_calls

_AMP = diff("""\
+import headrace
import torch


def train(model, loader, criterion, optimizer, scaler, ema):
+    train_step = headrace.training_step(model, criterion, optimizer, update=False, grad_scaler=scaler)
    for images, target in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
-            output = model(images)
-            loss = criterion(output, target)
-        scaler.scale(loss).backward()
+            loss, output = train_step(images, target)
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        ema.update(model)
""")
_ACCUMULATION = diff("""\
+import headrace
import torch

+train_step = headrace.training_step(
+    net,
+    lambda logits, lam, a, b: (lam * criterion(logits, a) + (1 - lam) * criterion(logits, b)) / args.accumulate,
+    optimizer,
+    update=False,
+)
for step, (images, target) in enumerate(loader):
    images, a, b, lam = mixup(images.cuda(), target.cuda())
-    logits = net(images)
-    loss = lam * criterion(logits, a) + (1 - lam) * criterion(logits, b)
-    loss = loss / args.accumulate
-    loss.backward()
+    loss, logits = train_step(images, lam, a, b)
    if (step + 1) % args.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
    meter.update(loss.item() * args.accumulate)
""")


class TrainingPass(Rule):
    """What it does: makes a training graph of forward, loss and backward, and leaves the update as it is written.

    Why: the two passes are most of a step; scaling, unscaling, accumulation, clipping of every kind and EMA stay your own
    statements, in your order.

    Example: `outputs = model(images)`, `loss = criterion(outputs, labels)` and `scaler.scale(loss).backward()` become
    `loss, outputs = train_step(images, labels)`, after
    `train_step = headrace.training_step(model, criterion, optimizer, update=False, grad_scaler=scaler)`.

    Fix safety: safe. Gradients are added to `.grad` as before; a `zero_grad()` between loss and backward moves before the call.
    Where one forward pass serves training and evaluation, the call stands beside it, under the condition of backward().
    A loss that is more than one call of a criterion is handed over as the expression that it is.
    """

    safety = "safe"
    VALID = (_AMP[1],)
    INVALID = (_AMP, _ACCUMULATION)

    def check(self, context: Context) -> Iterator[Fix]:
        for call in training_calls(context):
            if call.rejected is None and call.whole is None:
                fact = call.site.fact
                message = f"the training loop runs forward and backward of {fact.model} eagerly"
                yield at_call(fact, self.code, message, call.edits)
