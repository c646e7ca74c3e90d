"""PS155: weights for torchvision's Inception and GoogLeNet without their auxiliary heads."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import keyword_of
from ..reading.scopes import dotted
from ..rewriting.call_edits import calls_of, is_spread, truth, without
from ..rewriting.rule import Context, Fix, Repair, diff

_HEADS = {"inception_v3": "AuxLogits", "googlenet": ""}
"""What a network has for an auxiliary head although nobody asked for one, where it is given weights."""

_VALID = """\
import torch
from torchvision import models

x = models.inception_v3(weights="IMAGENET1K_V1")
y = models.inception_v3(weights=None, aux_logits=False, init_weights=True)
z = models.googlenet(pretrained=False, aux_logits=False)
"""
_INCEPTION = diff("""\
import torch
from torchvision import models


class Net:
    def __init__(self):
-        self.body = models.inception_v3(weights="IMAGENET1K_V1", aux_logits=False)  # for 299 x 299
+        self.body = models.inception_v3(weights="IMAGENET1K_V1")  # for 299 x 299
+        self.body.aux_logits, self.body.AuxLogits = False, None
        self.body.fc = None


-net = models.googlenet(weights="DEFAULT", aux_logits=False)
+net = models.googlenet(weights="DEFAULT")
""")
_RETURNED = """\
import torch
import torchvision


def build():
    return torchvision.models.inception_v3(weights="IMAGENET1K_V1", aux_logits=False)
"""


class AuxiliaryHeads(Repair):
    """What it does: takes the auxiliary head off torchvision's Inception after it was made, not in its call.

    Why: since torchvision 0.13 `inception_v3` and `googlenet` raise ValueError where they are given weights and
    `aux_logits=False`; before, the weights were loaded and the head was dropped then.

    Example: `net = models.inception_v3(pretrained=True, aux_logits=False)` becomes `net = models.inception_v3(pretrained=True)`
    and `net.aux_logits, net.AuxLogits = False, None`.

    Fix safety: safe; it is the network that the call made. GoogLeNet with weights has no such heads unless they are asked for.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_INCEPTION, (_RETURNED, None))

    def check(self, context: Context) -> Iterator[Fix]:
        for name, head in _HEADS.items():
            for call in calls_of(context, f"torchvision.models.{name}"):
                gone = keyword_of(call, "aux_logits")
                if gone is None or truth(gone.value) is not False or is_spread(call) or not _has_weights(call):
                    continue
                edits = without(context, call, [gone])
                if head:
                    dropped = _dropped(context, call, head)
                    edits = [*edits, *dropped] if dropped else []
                message = f"{name} takes no aux_logits=False beside weights since torchvision 0.13; "
                message += f"set aux_logits to False and {head} to None afterwards" if head else "leave it out"
                yield self.fix(context, call, message, edits, severity="error")


def _has_weights(call: ast.Call) -> bool:
    """Whether the call certainly loads weights."""
    given = keyword_of(call, "weights")
    old = keyword_of(call, "pretrained")
    if given is not None:
        named = isinstance(given.value, ast.Constant) and given.value.value is not None
        return named or "Weights" in ast.unparse(given.value)  # Inception_V3_Weights.DEFAULT
    return old is not None and truth(old.value) is True


def _dropped(context: Context, call: ast.Call, head: str) -> list[Edit]:
    """The statement after the one that gives the network its name; none where it has none, or shares its line."""
    statement, positions = context.module.statement_of(call), context.positions
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        return []
    name = dotted(statement.targets[0])
    if name is None or not positions.starts_line(statement) or positions.continues(statement.end_lineno or statement.lineno):
        return []
    return [positions.insert_after(statement, f"{name}.aux_logits, {name}.{head} = False, None")]
