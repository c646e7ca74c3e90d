"""Files of JSON: names of classes as most are, or what a script takes out of one: its keys, and the records below them."""

from __future__ import annotations

import ast
import itertools
import json
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ....reading.source import NOTEBOOK, read_source
from .. import hints
from ..places import is_users
from ..stage import Stage
from . import imagenet_names, splits

LEARNED = "json"
"""Learned: what was asked of files that were made, by their names: their keys, their splits, the fields of their records."""
_ROOT, _PARTS = "", "parts"
"""Whose records they are: those of the file itself, and those of its splits, which are all alike; else those of a key."""
_CONTAINER = re.compile(r"^(data_?)?(splits?|subsets?|partitions?)$", re.I)
_RECORDS = re.compile(
    r"^(all_?)?(images?|samples?|items?|records?|annotations?|anns?|entries|examples?|files?|rows?|data(set)?|instances?|photos?|"
    r"categories)(_?list)?$",
    re.I,
)
_PARALLEL = re.compile(r"^(labels?|targets?|y)$", re.I)
"""A list that holds the class of each image where another one holds these; else the names of the classes."""
_BY_NUMBER = re.compile(r"^(id|idx|index|num\w*|int)_?(to|2)_?\w+$", re.I)
_FILE_OF_NAMES = re.compile(r"class|label|categor|name|synset", re.I)
_LIST_OF_NAMES = re.compile(r"simple|(labels|names|classes)\.json$", re.I)
_NOT_A_RECORD = re.compile(r"string indices must be integers|'str' object has no attribute '(get|items|keys|values)'")
_APART = re.compile(r"(not enough|too many) values to unpack")
_READS = re.compile(r"load|read|json|parse", re.I)
_UNKNOWN = object()


class Maker(Protocol):
    """What makes data in the way the sources say, as far as a file of JSON needs it."""

    stage: Stage
    names: list[str]
    classes: int
    ending: str
    may_be_imagenet: bool

    def records(self, names: list[str], *, text: bool = False) -> Iterator[dict[str, Any]]: ...

    def tell_guess(self) -> None: ...


def contents(maker: Maker, path: str) -> bytes:
    """What a file holds: what was asked of one of its name, else the names of the classes by their numbers."""
    name = os.path.basename(path)
    maker.tell_guess()
    value = _Contents(maker, maker.stage.learned.get(LEARNED, {}).get(name, {})).value(name)
    maker.stage.json[path] = value = json.loads(json.dumps(value))
    return json.dumps(value).encode()


class _Contents:
    """The parts of one file, made as they were asked for."""

    def __init__(self, maker: Maker, asked: dict[str, Any]) -> None:
        self.maker = maker
        self.asked = asked
        self.fields: dict[str, Any] = asked.get("fields", {})

    def value(self, file: str) -> Any:
        known = imagenet_names.of(file) if self.maker.may_be_imagenet else None
        names = [item.name for item in known] if known else self.maker.names
        if self.asked.get("list"):
            return names if _FILE_OF_NAMES.search(file) and _ROOT not in self.fields else self.rows(_ROOT)
        if keys := self.asked.get("keys"):
            return {key: self.of(key) for key in keys}
        numbered = {str(number): name for number, name in enumerate(names)}
        if "class_index" in file:
            synsets = [item.synset for item in known] if known else imagenet_names.made_up(len(numbered))
            return {number: [synset, name] for synset, (number, name) in zip(synsets, numbered.items(), strict=True)}
        if known and _LIST_OF_NAMES.search(file):
            return names
        if re.search(r"(class|label|cat)\w*(_to_|2)\w*(idx|index|id)", file, re.I):
            return {name: int(number) for number, name in numbered.items()}
        return numbered

    def of(self, key: str) -> Any:
        maker = self.maker
        if splits.SPLIT.match(key):
            return self.rows(_PARTS)
        if _CONTAINER.match(key):
            return dict.fromkeys(self.asked.get("splits") or splits.named(maker.stage), self.rows(_PARTS))
        if hints.COUNT.match(key):
            return maker.classes
        if hints.TO_NUMBER.match(key):
            return {name: number for number, name in enumerate(maker.names)}
        if _BY_NUMBER.match(key):
            return {str(number): name for number, name in enumerate(maker.names)}
        beside = any(_RECORDS.match(other) and other != key for other in self.asked["keys"])
        if _PARALLEL.match(key) and beside and key not in self.fields:
            return [row["label"] for row in maker.records(["label"])]
        return self.rows(key) if key in self.fields or (_RECORDS.match(key) and not _names(key, beside)) else maker.names

    def rows(self, owner: str) -> list[Any]:
        """Records with the fields that were asked for; else names of images, or their numbers."""
        maker, asked = self.maker, self.fields.get(owner)
        if asked is None:
            by_name = (row["image"] for row in maker.records(["image"]))
            return splits.images(maker.stage, maker.ending) if owner == _PARTS else list(by_name)
        names: list[str] = asked["names"]
        if owner.lower().startswith("categor"):
            numbered = enumerate(maker.names)
            return [{name: number if name.endswith("id") else label for name in names} for number, label in numbered]
        text = hints.numbers_names(maker.stage.root, maker.stage.request.script)
        rows = maker.records(names, text=text)
        return [list(row.values()) for row in rows] if asked["apart"] else list(rows)


def _names(key: str, beside: bool) -> bool:
    """Whether a key is one of the names of the classes, not of records."""
    return hints.NAMES.match(key) is not None and not beside


def _known(key: str) -> bool:
    """Whether something says what stands under a key."""
    patterns = (splits.SPLIT, _CONTAINER, hints.COUNT, hints.TO_NUMBER, _BY_NUMBER, _RECORDS, _PARALLEL, hints.NAMES)
    return any(pattern.match(key) for pattern in patterns)


def lesson(stage: Stage, error: BaseException) -> bool:
    """What the next attempt's files of JSON should hold that this attempt's did not."""
    frames, instruction = _frames_of_users(stage, error)
    if not frames or not stage.json:
        return False
    frame = frames[0]
    nodes = _nodes(_text(stage, frame))
    expression = _running(nodes, frame, instruction)
    scopes: list[Mapping[str, Any]] = [*(each.f_locals for each in frames), frame.f_globals]
    scopes.insert(0, _inlined(nodes, expression, scopes))
    if isinstance(error, KeyError) and error.args:
        return _of_key(stage, error.args[0], _taken_from(expression, scopes))
    if isinstance(error, TypeError | AttributeError) and _NOT_A_RECORD.search(str(error)):
        taken = getattr(expression, "value", None)
        fields = _fields(nodes, frame, taken.id) if isinstance(taken, ast.Name) else []
        key = _value(expression.slice, scopes) if isinstance(expression, ast.Subscript) and not fields else None
        fields = [key, *_told_keys(nodes)] if isinstance(key, str) else fields
        return bool(fields) and _of_records(stage, _taken_from(expression, scopes), fields, apart=False)
    if isinstance(error, ValueError) and _APART.search(str(error)) and isinstance(expression, ast.Tuple):
        names = [item.id for item in expression.elts if isinstance(item, ast.Name)]
        taken = _unpacked(nodes, expression, scopes)
        return len(names) == len(expression.elts) and _of_records(stage, taken, names, apart=True)
    return False


def _of_key(stage: Stage, key: object, taken_from: Any) -> bool:
    """A key that the file, its table of splits or one of its records has not."""
    last = next(reversed(stage.json))
    for path, value in stage.json.items():
        root = path == last if taken_from is _UNKNOWN else _same(taken_from, value)
        asked = _asked(stage, path)
        if root and isinstance(key, int) and isinstance(value, dict):  # no key of JSON is a number
            return _learn(stage, path, {**asked, "list": True})
        if not isinstance(key, str):
            continue
        if root and isinstance(value, dict):
            keys = asked.get("keys", [])
            return _known(key) and key not in keys and _learn(stage, path, {**asked, "keys": [*keys, key]})
        owner = _owner(value, taken_from)
        if owner is not None and isinstance(taken_from, dict) and owner in asked.get("fields", {}):
            fields = asked["fields"]
            names = [*fields[owner]["names"], key]
            return _learn(stage, path, {**asked, "fields": {**fields, owner: {"names": names, "apart": False}}})
        container = next((name for name in value if _CONTAINER.match(name)), None) if isinstance(value, dict) else None
        # A script may have made something else of each split, under its name.
        if container is not None and isinstance(taken_from, dict) and taken_from.keys() == value[container].keys():
            return _learn(stage, path, {**asked, "splits": [*value[container], key]})
    return False


def _of_records(stage: Stage, taken: Any, names: list[str], *, apart: bool) -> bool:
    """The script takes a record apart, or each of a list of them, where there was a name, or the key of a table."""
    for path, value in stage.json.items():
        asked = _asked(stage, path)
        owner = _owner(value, taken)
        fields = {"names": list(dict.fromkeys(names)), "apart": apart}
        if owner is not None:
            return _learn(stage, path, {**asked, "fields": {**asked.get("fields", {}), owner: fields}})
        of_table = taken is _UNKNOWN or _same(taken, value) or (isinstance(taken, str) and taken in value)
        if isinstance(value, dict) and not asked.get("keys") and of_table:
            return _learn(stage, path, {**asked, "list": True, "fields": {_ROOT: fields}})
    return False


def _lists(value: Any) -> Iterator[tuple[str, list[Any]]]:
    """The lists of records in a file, and whose they are."""
    if isinstance(value, list):
        yield _ROOT, value
    for key, part in value.items() if isinstance(value, dict) else ():
        inner = part.values() if _CONTAINER.match(key) and isinstance(part, dict) else [part]
        owner = _PARTS if _CONTAINER.match(key) or splits.SPLIT.match(key) else key
        yield from ((owner, item) for item in inner if isinstance(item, list))


def _owner(value: Any, taken: Any) -> str | None:
    """Whose records a list of the script's holds, or whose one of them is."""
    return next((owner for owner, rows in _lists(value) if any(_same(taken, row) for row in (rows, *rows))), None)


def _same(one: Any, other: Any) -> bool:
    """Whether a value of the script's is one that was made: it may be anything, and compare as it likes."""
    return type(one) in (dict, list, str) and type(one) is type(other) and json.dumps(other) == _dumped(one)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return ""


def _asked(stage: Stage, path: str) -> dict[str, Any]:
    return dict(stage.learned.get(LEARNED, {}).get(os.path.basename(path), {}))


def _learn(stage: Stage, path: str, asked: dict[str, Any]) -> bool:
    return stage.learn(LEARNED, {**stage.learned.get(LEARNED, {}), os.path.basename(path): asked})


def _frames_of_users(stage: Stage, error: BaseException) -> tuple[list[types.FrameType], int]:
    """The user's frame in which an error arose, after it those around a comprehension, and its running instruction."""
    trace, frames, instruction = error.__traceback__, [], 0
    while trace is not None:
        frames.append(trace.tb_frame)
        instruction = trace.tb_lasti
        trace = trace.tb_next
    inside = itertools.takewhile(lambda pair: pair[0].f_code.co_name.startswith("<"), itertools.pairwise(reversed(frames)))
    scopes = [*frames[-1:], *(outer for _, outer in inside)]
    return (scopes if scopes and is_users(scopes[0].f_code.co_filename, stage.root) else []), instruction


def _told_keys(nodes: list[ast.AST]) -> Iterator[str]:
    """The fields of records that transforms are told: `Resized(keys=["image"])`, `ToTensord(keys=["image", "label"])`."""
    for node in nodes:
        match node:
            case ast.keyword(arg="keys", value=ast.List(elts=items) | ast.Tuple(elts=items)):
                yield from (item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))


def _text(stage: Stage, frame: types.FrameType) -> str:
    path = frame.f_code.co_filename
    if path.endswith(NOTEBOOK):
        return read_source(Path(stage.root), os.path.relpath(path, stage.root)).text or ""
    return "".join(linecache.getlines(path))


def _running(nodes: list[ast.AST], frame: types.FrameType, instruction: int) -> ast.expr | None:
    """The expression that a running instruction belongs to."""
    first, last, start, end = list(frame.f_code.co_positions())[instruction // 2]
    for node in nodes:
        if isinstance(node, ast.expr) and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (
            first, last, start, end
        ):  # fmt: skip
            return node
    return None


def _nodes(text: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return []


def _inlined(nodes: list[ast.AST], running: ast.expr | None, scopes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What comprehensions around an expression bound, as it is of their first row.

    Since Python 3.12 they run in the frame around them, which has forgotten it when their error is seen.
    """
    found: dict[str, Any] = {}
    for node in nodes if sys.version_info >= (3, 12) else ():
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and any(part is running for part in ast.walk(node)):
            for part in node.generators:
                match part.target, part.iter:
                    case (ast.Tuple(elts=[_, target]), ast.Call(func=ast.Attribute(value=rows, attr="items"))):
                        table = _value(rows, [found, *scopes])
                        taken = list(table.values()) if type(table) is dict else None
                    case (ast.Tuple(elts=[_, target]), ast.Call(func=ast.Name(id="enumerate")) as rows) | (target, rows):
                        taken = _value(rows, [found, *scopes])
                if isinstance(target, ast.Name) and type(taken) in (list, tuple, dict) and taken:
                    found[target.id] = next(iter(taken))
    return found


def _taken_from(expression: ast.expr | None, scopes: list[Mapping[str, Any]]) -> Any:
    """The object whose part an expression asks for; `_UNKNOWN` where a function just read it, None where nobody knows."""
    return _value(expression.value, scopes) if isinstance(expression, ast.Subscript | ast.Attribute) else None


def _unpacked(nodes: list[ast.AST], target: ast.Tuple, scopes: list[Mapping[str, Any]]) -> Any:
    """What is taken apart into the names of a tuple: a value, or each of several."""
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension) and target in ast.walk(node.target):
            return _value(node.iter, scopes)
        if isinstance(node, ast.Assign) and target in node.targets:
            return _value(node.value, scopes)
    return None


def _value(expression: ast.expr, scopes: list[Mapping[str, Any]]) -> Any:
    """What is bound to a name, without running any of the user's code; None where nobody knows.

    Of a call it is what the call reads, or goes through: `enumerate(rows)`.
    """
    if isinstance(expression, ast.Name):
        return next((names[expression.id] for names in scopes if expression.id in names), None)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, scopes), "__dict__", {}).get(expression.attr)
    if isinstance(expression, ast.Subscript):
        table = _value(expression.value, scopes)
        key = expression.slice.value if isinstance(expression.slice, ast.Constant) else _value(expression.slice, scopes)
        if type(table) is dict and isinstance(key, str):
            return table.get(key)
        if type(table) is list and type(key) is int and -len(table) <= key < len(table):
            return table[key]
    if isinstance(expression, ast.Call):
        through = _value(expression.args[0], scopes) if expression.args else None
        return _UNKNOWN if _READS.search(ast.unparse(expression.func)) else through
    return None


def _fields(nodes: list[ast.AST], frame: types.FrameType, name: str) -> list[str]:
    """By which keys the running function takes a variable apart: `item["path"]`, `item.get("label")`."""
    inside = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)
        and getattr(node, "lineno", 0) <= frame.f_lineno <= (getattr(node, "end_lineno", None) or frame.f_lineno)
    ]
    found: list[tuple[int, str]] = []
    for node in ast.walk(inside[-1]) if inside else ():
        match node:
            case ast.Subscript(value=ast.Name(id=own), slice=ast.Constant(value=str(key))) if own == name:
                found.append((node.lineno, key))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr="get"), args=[ast.Constant(value=str(key)), *_]):
                found += [(node.lineno, key)] if own == name else []
    return list(dict.fromkeys(key for _, key in sorted(found)))
