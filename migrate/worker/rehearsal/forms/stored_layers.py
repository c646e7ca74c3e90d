"""Layers that a script takes whole out of a checkpoint: `model.classifier = checkpoint["classifier"]`.

One that stands in has no layers, so the model keeps its own, which gives as many scores as there are classes.
"""

from __future__ import annotations

import ast
import copy
import re
import types
from collections.abc import Sequence
from typing import Any, TypeGuard

from ....reading.bindings import last_name
from .. import hints
from ..places import of_kind
from ..stage import Stage

_REFUSED = re.compile(r"cannot assign '.*' as child module '(\w+)'")
"""What torch says of anything else where a module was."""
_LAYERS = "stored_layers"
"""Learned: the names of the layers that are taken from a checkpoint."""


def lesson(stage: Stage, error: BaseException, frames: Sequence[types.FrameType], kind: type) -> bool:
    """Whether what came out of a checkpoint that stands in, of this `kind`, was no layer."""
    refused = _REFUSED.search(str(error)) if isinstance(error, TypeError) else None
    at_hand = any(True for frame in frames for _ in of_kind(frame.f_locals, kind))
    return refused is not None and at_hand and stage.add(_LAYERS, refused[1])


def stated_width(stage: Stage) -> int | None:
    """How many outputs such a layer has as the repository makes it: the last number of outputs of its networks and Sequentials,
    where all that have a written one have the same; None where no layer is taken from a checkpoint."""
    if not stage.learned.get(_LAYERS):
        return None
    found = set()
    for tree in hints.sources(stage.root, hints.path_of(stage.root, stage.request.script)):
        for node in hints.nodes(tree):
            if isinstance(node, ast.ClassDef) or (isinstance(node, ast.Call) and last_name(node.func) == "Sequential"):
                outputs = [item.args[1] for item in ast.walk(node) if _is_linear(item)]
                last = max(outputs, key=lambda item: (item.lineno, item.col_offset), default=None)
                found |= {last.value} if isinstance(last, ast.Constant) and isinstance(last.value, int) else set()
    return found.pop() if len(found) == 1 else None


def _is_linear(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name(node.func) == "Linear" and len(node.args) > 1


def install(stage: Stage, torch: Any, classes: int) -> None:
    """Let models keep such layers. Nothing is changed for scripts that take none."""
    names = stage.learned.get(_LAYERS, ())

    def put(original: Any, self: Any, name: str, value: Any) -> None:
        own = self.__dict__.get("_modules", {}).get(name) if name in names else None
        if own is not None and not isinstance(value, torch.nn.Module):
            stage.weights_stand_in(f"{type(self).__name__}.{name}")
            value = _as_wide(torch, own, classes)
        original(self, name, value)

    if names:
        stage.wrap(torch.nn.Module, "__setattr__", put)


def _as_wide(torch: Any, layer: Any, classes: int) -> Any:
    """The layer with that many outputs, where a Linear gives them."""
    linear = [(name, part) for name, part in layer.named_modules() if isinstance(part, torch.nn.Linear)]
    if not linear or not classes or linear[-1][1].out_features == classes:
        return layer
    name, last = linear[-1]
    head = torch.nn.Linear(last.in_features, classes, bias=last.bias is not None)
    if not name:
        return head
    layer = copy.deepcopy(layer)
    above, _, own = name.rpartition(".")
    setattr(layer.get_submodule(above), own, head)
    return layer
