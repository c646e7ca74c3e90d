"""Compute once what depends on weights and constants alone, and store the result.

Position-bias tables gathered from parameters, standardized or normalized weights, interpolated position embeddings, attention
masks: a module computes them at every call. What is random, depends on an input or its batch size, or would make the graph much
larger than the tensors that it is made of stays computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from ..base.passes import Pass
from ..capture.graph_obstacles import memory_of, written
from ..capture.rewrite import ProgramEditor

_MOST_BYTES = 64 << 20  # of one stored result that is larger than what it was made of
_MOST_GROWTH = 1.0  # results that are no larger than their sources are always stored


def fold_constants(program: ExportedProgram) -> ExportedProgram:
    """The program with stored results. This pass runs first, so that the others see plain weights."""
    editor = ProgramEditor(program)
    changing = {base for _, base in written(editor.graph)}  # stored, such a tensor would keep what a call writes to it
    known: dict[Node, Any] = {}
    sizes: dict[Node, int] = {}  # bytes of the weights and constants that a known value was made of
    for node in list(editor.graph.nodes):
        if node.op == "placeholder":
            value = editor.tensor(node)
            if value is not None:
                known[node], sizes[node] = value, _bytes(value)
        elif _is_pure(node) and memory_of(node) not in changing and all(source in known for source in node.all_input_nodes):
            values = _computed(node, known)
            if values is not None:
                known[node] = values
                sizes[node] = sum(sizes[source] for source in node.all_input_nodes)
    number = itertools.count()
    folded = [_store(editor, node, known, sizes, number) for node in list(known) if node.op == "call_function"]
    return editor.finish() if any(folded) else program


def _store(editor: ProgramEditor, node: Node, known: dict[Node, Any], sizes: dict[Node, int], number: Iterator[int]) -> bool:
    """Put a stored tensor where its value leaves what is known; whether that was done."""
    value = known[node]
    leaves = isinstance(value, torch.Tensor) and any(user not in known for user in node.users)
    if not leaves or _only_rearranged(node) or _bytes(value) > max(_MOST_BYTES, _MOST_GROWTH * sizes[node]):
        return False
    stored = editor.add_parameter(f"constant_{next(number)}", value.contiguous())
    node.replace_all_uses_with(stored, delete_user_cb=lambda user: user not in known)
    return True


def _only_rearranged(node: Node) -> bool:
    """Whether nothing but views of one weight was taken: storing it would only double the weight."""
    while node.op == "call_function":
        if not getattr(node.target, "is_view", False) or len(node.all_input_nodes) != 1:
            return False
        (node,) = node.all_input_nodes
    return True


def _is_pure(node: Node) -> bool:
    """An operator that gives the same for the same arguments, writes nothing, and has no symbolic size among them."""
    if node.op != "call_function":
        return False
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags or target.namespace != "aten":
        return False
    return not any(isinstance(item.meta.get("val"), torch.SymInt | torch.SymFloat) for item in node.all_input_nodes)


def _computed(node: Node, known: dict[Node, Any]) -> Any:
    """The node's value; None when it fails, or is neither a tensor nor a tuple of them."""
    args, kwargs = (map_arg(part, lambda source: known[source]) for part in (node.args, node.kwargs))
    try:
        with torch.no_grad():
            value = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - what cannot be computed ahead stays in the graph, where it is computed as before
        return None
    parts = value if isinstance(value, tuple | list) else (value,)
    return value if all(isinstance(part, torch.Tensor) for part in parts) else None


def _bytes(value: torch.Tensor) -> int:
    return value.numel() * value.element_size()


PASS = Pass("fold_constants", fold_constants)
