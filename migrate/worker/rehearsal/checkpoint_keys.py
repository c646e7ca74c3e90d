"""What a script looks for in a checkpoint that is not here, read off the frames in which it gave up."""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import hints
from .places import of_kind
from .stage import Stage
from .weights import COUNT, GivenState, StandInState

_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)")
_LOADING = "load_from_checkpoint"


def missed_key(frame: types.FrameType) -> str | None:
    """The key that a frame looked for last, before its running line, in a state that stands in."""
    states = {name for name, _ in of_kind(frame.f_locals, StandInState)}
    asked: list[tuple[int, str]] = []
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))) if states else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=str(key)), *_]):
                    pass
                case ast.Compare(left=ast.Constant(value=str(key)), comparators=[ast.Name(id=name)]):
                    pass
                case _:
                    continue
            if name in states and frame.f_code.co_firstlineno <= node.lineno <= frame.f_lineno:
                asked.append((node.lineno, key))
    return max(asked)[1] if asked else None


def named_value(frames: Sequence[types.FrameType]) -> tuple[str, Any] | None:
    """A key of a state that stands in, and what the script expects there, in the innermost frame that tells.

    That is `kept.get("arch") != "small"` or `args.arch == kept["arch"]` last before it gave up, or the first of the names with
    which it compares what it took from there: `arch == "small"`, `arch in ("small", "large")`, `MODELS[arch]`.
    Of several names it is the one that stands in the checkpoint's path: `runs/resnet34/best.pth`.
    """
    for frame in reversed(frames):
        states: dict[str, StandInState | GivenState] = dict(of_kind(frame.f_locals, StandInState, GivenState))
        with contextlib.suppress(SyntaxError):
            tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)) if states else "")
            lines = range(frame.f_code.co_firstlineno, _last(frame) + 1)
            nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt) and node.lineno in lines]
            nodes.sort(key=lambda node: node.lineno)
            for node in reversed(nodes):
                found = _expected(node, states, frame) if node.lineno <= frame.f_lineno else None
                if found is not None and StandInState.stated.get(found[0]) != found[1]:
                    return found
            offered: dict[tuple[str, str], list[str]] = {}
            for of, names in (_compared(node, frame) for node in nodes):
                for held in _held(of, states, nodes, frame) if names else ():
                    offered.setdefault(held, []).extend(names)
            for (key, path), names in offered.items():
                return key, max((name for name in names if name.lower() in path.lower()), key=len, default=names[0])
    return None


def stated_value(stage: Stage, frames: Sequence[types.FrameType]) -> tuple[str, Any] | None:
    """The key of the part of a state that stands in which the innermost frame has that has one, and what the sources bind to
    that name."""
    states = [state for frame in reversed(frames) for _, state in of_kind(frame.f_locals, StandInState)]
    keys = [state.key for state in states if state.key is not None]
    value = hints.stated(stage.root, stage.request.script, keys[0]) if keys else None
    return (keys[0], value) if value is not None else None


def has_what_is_taken(value: object, said: str) -> bool:
    """Whether a text or a number can be what the script takes something from: not a settings object with `.model`, say."""
    asked = re.search(r"what has (?:\.(\w+)|\[)", said)
    return asked is None or (asked[1] is not None and hasattr(value, asked[1]))


def wanted_arguments(stage: Stage, error: BaseException, frames: Sequence[types.FrameType]) -> dict[str, Any]:
    """The arguments that a model is made with, which Lightning takes from its checkpoint, and what the sources bind to them.

    Empty where one of them is bound to no number and no text, or where no state that stands in was to hold them.
    """
    asked = _MISSING.search(str(error)) if isinstance(error, TypeError) else None
    stood_in = any(True for frame in frames for _ in of_kind(frame.f_locals, StandInState))
    if asked is None or not stood_in or not any(_LOADING in frame.f_code.co_name for frame in frames):
        return {}
    names = re.findall(r"'(\w+)'", asked[1])
    found = {name: _argument(stage, name) for name in names}
    return found if None not in found.values() else {}


def _argument(stage: Stage, name: str) -> Any:
    stated = hints.stated(stage.root, stage.request.script, name)
    return len(StandInState.classes) if stated is None and COUNT.search(name) and StandInState.classes else stated


def _expected(node: ast.AST, states: Mapping[str, StandInState | GivenState], frame: types.FrameType) -> tuple[str, Any] | None:
    """A key of a state, and the constant, or what the script has by a name, with which what is there is compared."""
    if not isinstance(node, ast.Compare):
        return None
    for asked, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
        match asked:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=key), *_]):
                pass
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
                pass
            case _:
                continue
        named = isinstance(node.ops[0], ast.Eq | ast.NotEq) or isinstance(other, ast.Constant)
        value = _value(other, frame) if name in states and named else None
        if isinstance(key, str) and isinstance(value, str | int):
            return key, value
    return None


def _held(
    of: ast.AST, states: Mapping[str, StandInState | GivenState], nodes: Sequence[ast.AST], frame: types.FrameType
) -> Iterator[tuple[str, str]]:
    """The keys under which a checkpoint that stands in has what is compared, and its path: of what the script took from there,
    or found nothing for (`arch = arch or kept.get("arch")`)."""
    for name in (item.id for item in ast.walk(of) if isinstance(item, ast.Name)):
        state = states.get(name)
        if isinstance(state, StandInState) and state.key is not None:
            yield state.key, state.path
        if frame.f_locals.get(name, name) is None:
            bound = [node.value for node in nodes if isinstance(node, ast.Assign) and _is_name(node.targets[0], name)]
            for part in (part for value in bound for part in ast.walk(value)):
                match part:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=kept), attr="get"), args=[ast.Constant(value=key), *_]):
                        if isinstance(known := states.get(kept), StandInState) and isinstance(key, str):
                            yield key, known.path


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _value(node: ast.expr, frame: types.FrameType) -> Any:
    """A constant, or what a frame has by a name: `"small"`, `arch`, `args.arch`; None for any other expression."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return frame.f_locals.get(name, frame.f_globals.get(name))
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return getattr(frame.f_locals.get(name, frame.f_globals.get(name)), "__dict__", {}).get(attribute)
    return None


def _last(frame: types.FrameType) -> int:
    return max(line for _, _, line in frame.f_code.co_lines() if line is not None)


def _compared(node: ast.AST, frame: types.FrameType) -> tuple[ast.AST, list[str]]:
    """What is compared with names, and these."""
    match node:
        case ast.Compare(left=left, comparators=[ast.Constant(value=str(name))]):
            return left, [name]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=table)]):
            return left, _names(frame, table)
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[ast.List() | ast.Tuple() | ast.Set() as listed]):
            return left, [item.value for item in listed.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        case ast.Subscript(value=ast.Name(id=table), slice=asked):
            return asked, _names(frame, table)
        case ast.Match(subject=subject, cases=cases):
            patterns = [case.pattern.value for case in cases if isinstance(case.pattern, ast.MatchValue)]
            return subject, [item.value for item in patterns if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return ast.Constant(None), []


def _names(frame: types.FrameType, table: str) -> list[str]:
    """The names in a table or list that a frame knows by its name; none in a state that stands in."""
    found = frame.f_locals.get(table, frame.f_globals.get(table))
    known = isinstance(found, dict | list | tuple | set | frozenset) and not isinstance(found, StandInState)
    return [item for item in found if isinstance(item, str)] if known and found is not None else []
