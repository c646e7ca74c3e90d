"""The loop over batches around the call of a model: which one it is, and which labels travel with the inputs there."""

import ast
import re

from ..reading.facts import LoopKind
from ..reading.nodes import arguments_of, inside, text_of
from ..reading.scopes import Function, Module, bound_names, dotted, last_name
from .gradients import always_gradless, hands_loss_on, learns, trains_anywhere

BatchLoop = ast.For | ast.AsyncFor


def enclosing_loop(module: Module, call: ast.Call, function: Function | None) -> BatchLoop | None:
    """The innermost for loop around a call whose variable leads to the call's arguments."""
    for loop in (node for node in module.ancestors(call, within=function) if isinstance(node, BatchLoop)):
        carried = bound_names(loop.target)
        for node in (node for statement in loop.body for node in inside(statement, ast.Assign)):
            if _mentions(node.value, carried):
                carried = carried.union(*map(bound_names, node.targets))
        if any(_mentions(argument, carried) for argument in arguments_of(call)):
            return loop
    return None


def purpose(
    module: Module, call: ast.Call, function: Function | None, loop: BatchLoop | None
) -> tuple[LoopKind, str | None, bool]:
    """What a model is called for in a loop, the labels there, and whether the same function or file trains it, too."""
    trained = learns(module, loop if loop is not None else function)
    targets = _targets(loop, call) if loop is not None else None
    if loop is None:
        trains = (trained and not always_gradless(module, call)) or hands_loss_on(module, function, call)
        return ("train" if trains else "predict"), None, trained or trains_anywhere(module)
    if trained and not always_gradless(module, call):
        return "train", targets, True
    return ("evaluate" if targets is not None else "predict"), targets, trains_anywhere(module)


def _targets(loop: BatchLoop, call: ast.Call) -> str | None:
    """The labels that travel with the inputs: another name of the batch that is compared or given to a loss."""
    batch: ast.AST = loop.target
    wrapped = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
    if wrapped and isinstance(batch, ast.Tuple) and len(batch.elts) == 2:
        batch = batch.elts[1]
    used = {node.id for argument in arguments_of(call) for node in inside(argument, ast.Name)}
    made = [node for statement in loop.body for node in inside(statement, ast.Assign)]
    for node in sorted(made, key=lambda item: -item.lineno):
        names_made = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if used & set(names_made) and node.lineno < call.lineno and not isinstance(node.value, ast.Subscript):
            used |= {inner.id for inner in inside(node.value, ast.Name)}
    names: list[str] = []
    if isinstance(batch, ast.Tuple | ast.List):
        names = [element.id for element in batch.elts if isinstance(element, ast.Name)]
    elif isinstance(batch, ast.Name):
        names = _unpacked(loop, batch.id)
        keyed = [node for statement in loop.body for node in inside(statement, ast.Subscript) if dotted(node.value) == batch.id]
        labels = [node for node in keyed if re.search(r"label|target|^class", text_of(node.slice) or "", re.I)]
        if not names and labels:
            return ast.unparse(labels[0])
    for name in names:
        if name not in used and name != "_" and not re.search(r"path|file|name|^idx|index", name, re.I):
            return name
    return None


def _unpacked(loop: BatchLoop, batch: str) -> list[str]:
    """Names that `images, target = batch`, `target = batch[-1]`, `batch["label"]` take out of one batch variable."""
    names: list[str] = []
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and _mentions(statement.value, {batch}):
            for target in statement.targets:
                if isinstance(target, ast.Tuple | ast.List):
                    names += [element.id for element in target.elts if isinstance(element, ast.Name)]
                elif isinstance(target, ast.Name) and isinstance(statement.value, ast.Subscript | ast.Call | ast.Attribute):
                    names.append(target.id)
    return names if len(names) > 1 else []


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(inner.id in names for inner in inside(node, ast.Name))
