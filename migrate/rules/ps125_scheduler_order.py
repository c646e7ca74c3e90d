"""PS125: a learning-rate scheduler that steps before the epoch's training."""

import ast
import re
from collections.abc import Iterator

from ..reading.nodes import inside
from ..rewriting.rule import Context, Fix, Repair

_SCHEDULER = re.compile(r"(sched\w*|lr_?\w*)\.step$", re.I)

_BEFORE_1 = """\
import torch

scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for epoch in range(3):
    scheduler.step()
    train(model, loader, epoch)
"""


class SchedulerOrder(Repair):
    """What it does: says where a loop over epochs calls `scheduler.step()` before the training of that epoch.

    Why: since torch 1.1 the scheduler steps after the optimizer; before it, the first learning rate is skipped.

    Example: `for epoch in range(n): scheduler.step(); train(...)` is `for epoch in range(n): train(...);
    scheduler.step()`.

    Fix safety: there is no fix: moving the line changes the learning rates that a published result was trained with.
    """

    safety = "manual"
    VALID = ("import torch\n\nfor epoch in range(3):\n    train(epoch)\n    scheduler.step()\n",)
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        for loop in context.module.of_kind(ast.For):
            for index, statement in enumerate(loop.body):
                call = statement.value if isinstance(statement, ast.Expr) else None
                if not isinstance(call, ast.Call) or not _SCHEDULER.search(ast.unparse(call.func)):
                    continue
                if any(_trains(item) for item in loop.body[:index]) or not any(
                    _trains(item) for item in loop.body[index + 1 :]
                ):
                    continue
                message = (
                    "the scheduler steps before the epoch is trained, which skips the first learning rate since torch 1.1; "
                    "call step() after the training"
                )
                yield self.fix(context, statement, message)


def _trains(statement: ast.stmt) -> bool:
    calls = list(inside(statement, ast.Call))
    return any(re.search(r"train|optim\w*\.step$|backward", ast.unparse(call.func), re.I) for call in calls) and not any(
        re.search(r"\.train$", ast.unparse(call.func)) for call in calls[:1] if isinstance(statement, ast.Expr)
    )
