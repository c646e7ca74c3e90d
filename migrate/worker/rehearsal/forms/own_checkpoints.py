"""What the repository itself saves in its checkpoints: `torch.save({"net": net.state_dict(), "classes": CLASSES}, path)`.

A checkpoint that is not here, and that the script checks before it takes anything from it, holds what one of them does.
"""

from __future__ import annotations

import ast
import contextlib
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import hints
from ..places import of_kind
from ..stage import Stage

_SAVED = "saved_table"
"""Learned: which of the tables that the repository saves a checkpoint holds that stands in."""
_DEEPEST = 4
"""Names that stand for one another, and are followed."""
_MADE_OF: Mapping[str, Callable[[Any], Any]] = {
    "list": list, "tuple": tuple, "sorted": sorted, "dict": dict, "str": str, "int": int, "float": float, "len": len,
}  # fmt: skip


def lesson(stage: Stage, error: BaseException, frames: Sequence[types.FrameType], kind: type) -> bool:
    """Whether a script gave up with a checkpoint at hand that stands in, of this `kind`: the next attempt's is as it would be
    saved, by the table that has most of the words that the error says."""
    at_hand = any(True for frame in frames for _ in of_kind(frame.f_locals, kind))
    tables = _tables(stage) if at_hand else []
    if not tables:
        return False
    said = set(re.findall(r"\w+", str(error)))
    best = max(range(len(tables)), key=lambda number: (len(said & tables[number].keys()), -number))
    return stage.learn(_SAVED, best)


def held(stage: Stage) -> Mapping[str, Any]:
    """What the checkpoint holds, as it is saved: values, and None for what only a run could say."""
    number, tables = stage.learned.get(_SAVED), _tables(stage) if _SAVED in stage.learned else []
    if number is None or number >= len(tables):
        return {}
    return {key: _value(stage, node) for key, node in tables[number].items()}


def _tables(stage: Stage) -> list[dict[str, ast.expr]]:
    """The tables that are saved, those of the script before others, each with the expressions of its values."""
    script = hints.path_of(stage.root, stage.request.script)
    found = []
    for tree in hints.sources(stage.root, script):
        for node in hints.nodes(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="save"), args=[saved, *_]):
                    table = saved if isinstance(saved, ast.Dict) else _bound(tree, saved, node.lineno)
                    items = zip(table.keys, table.values, strict=True) if table is not None else ()
                    texts = {str(key.value): value for key, value in items if isinstance(key, ast.Constant)}
                    found += [texts] if texts else []
    return found


def _bound(tree: ast.Module, saved: ast.expr, line: int) -> ast.Dict | None:
    """The table that is bound to a name last before a line."""
    tables = [
        node.value
        for node in hints.nodes(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and node.lineno < line
        if isinstance(saved, ast.Name) and any(isinstance(to, ast.Name) and to.id == saved.id for to in node.targets)
    ]
    return max(tables, key=lambda table: table.lineno, default=None)


def _value(stage: Stage, node: ast.expr, names: tuple[str, ...] = ()) -> Any:
    """What an expression comes to, through names and what makes lists of them; None where that is not written there."""
    with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError):
        return ast.literal_eval(node)
    match node:
        case ast.Call(func=ast.Name(id=name), args=[of], keywords=[]) if name in _MADE_OF:
            known = _value(stage, of, names)
            with contextlib.suppress(ValueError, TypeError):
                return _MADE_OF[name](known) if known is not None else None
        case ast.Name(id=name) | ast.Attribute(attr=name) if name not in names and len(names) < _DEEPEST:
            every = (_value(stage, value, (*names, name)) for value in hints.bound_to(stage.root, stage.request.script, name))
            return next((value for value in every if value not in (None, "")), None)
    return None
