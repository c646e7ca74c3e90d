"""Find the class names that a repository states: a literal list, a file that a script reads, or neither."""

from __future__ import annotations

import ast
import contextlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..reading.nodes import inside
from ..reading.scopes import Module, dotted, last_name
from ..reading.source import head, walk
from ..slicing.interprocedural import Point

_NAMES = re.compile(
    r"(^|_)(class(es)?(_?(name|label|list|index|idx|map|dict|indict|indices|to_idx))?s?|label(_?name|_?map)?s?|categor(y|ies))$",
    re.I,
)
_SPLIT = re.compile(r"(^|_)(idx|index)_?to_?(class|label)|id2(class|label|name)|cifar\d*_classes|imagenet_classes", re.I)

_PREDICTION = re.compile(r"pred|argmax", re.I)
_HIGHEST = re.compile(r"pred|argmax|\bmax\(|topk", re.I)
_TWO = 2
"""So many names by index may be anything: `{0: "off", 1: "on"}`; and what `get` is given, with what it gives instead."""
_MOST_BYTES = 1_000_000
_OTHER = re.compile(r"colou?r|marker|style|path|file|url", re.I)
"""Tables that a prediction may be looked up in and that hold no names of classes."""


@dataclass(frozen=True)
class ClassNames:
    """`names` where they are literal; `point` computes them (a list, or a dict by index or by name) either way."""

    names: tuple[str, ...] | None
    point: Point
    path: str
    line: int


def find_class_names(modules: list[Module]) -> ClassNames | None:
    """The first statement of class names in the given files, literal ones before those that are read from a file."""
    candidates = [found for module in modules for found in _candidates(module)]
    literal = [found for found in candidates if found.names is not None]
    return next(iter(literal or candidates), None)


def all_class_names(modules: Iterable[Module]) -> Iterator[tuple[str, ...]]:
    """Every literal statement of class names in the given files."""
    for module in modules:
        yield from (found.names for found in _candidates(module) if found.names is not None)


def stored_names(root: Path, modules: Iterable[Module], width: int) -> Iterator[tuple[str, ...]]:
    """The names of so many classes in each JSON file that the sources name, by their index or each with it, such as a script
    that trains leaves: `json.dump(classes, open("classes.json", "w"))`; or under a key of it that says so: `id2label`."""
    texts = (node.value for module in modules for node in module.of_kind(ast.Constant) if isinstance(node.value, str))
    named = {posixpath.basename(text) for text in texts if text.endswith(".json")}
    for path in walk(root, (".json",)):
        if posixpath.basename(path) not in named:
            continue
        with contextlib.suppress(OSError, ValueError, RecursionError):
            stored = json.loads(head(root / path, _MOST_BYTES))
            table = stored if isinstance(stored, dict) else {}
            for part in (stored, *(value for key, value in table.items() if _NAMES.search(key) or _SPLIT.search(key))):
                names = _by_index(part)
                if len(names) == len(set(names)) == width:
                    yield names


def _by_index(stored: object) -> tuple[str, ...]:
    """The names that {"0": "ant"}, {"ant": 0} or ["ant"] states; none where it states something else."""
    pairs: list[tuple[object, object]] = list(enumerate(stored)) if isinstance(stored, list) else []
    if isinstance(stored, dict):
        pairs = [(key, value) if isinstance(value, str) else (value, key) for key, value in stored.items()]
    found = {int(str(at)): name for at, name in pairs if str(at).isascii() and str(at).isdigit() and isinstance(name, str)}
    whole = len(found) == len(pairs) and sorted(found) == list(range(len(pairs)))
    return tuple(found[at] for at in range(len(found))) if whole else ()


def looked_up_names(modules: Iterable[Module]) -> Iterator[tuple[str, ...]]:
    """Every literal table of names, whatever it is called, that holds three or more by index, or that a prediction is looked up
    in: `mapper = {0: "ant", 1: "bee", 2: "fly"}`, or `insects[prediction]` of a list, or of a text, whose signs they are."""
    modules = list(modules)
    looked_up = {
        _last(node.value)
        for module in modules
        for node in module.of_kind(ast.Subscript)
        if _PREDICTION.search(ast.unparse(node.slice)) or _is_prediction(module, node.slice)
    }
    for module in modules:
        for target, value in (pair for node in module.nodes for pair in _assigned(node)):
            name = _last(target)
            if (
                (name in looked_up or _is_by_index(value))
                and not _OTHER.search(name)
                and (names := _literal(value) or _signs(value)) is not None
            ):
                yield names
    yield from _enumerated(modules)


def _enumerated(modules: Sequence[Module]) -> Iterator[tuple[str, ...]]:
    """The members of each Enum that is asked for a prediction: the names of those that are numbered from 0 (`Kind(best)`), and
    the texts of those that are listed (`list(Kind)[best]`)."""
    asked: dict[ast.AST, None] = {}
    for module in modules:
        for node in module.nodes:
            match node:
                case ast.Subscript(value=ast.Call(func=ast.Name(id="list" | "tuple"), args=[kind]), slice=at):
                    pass
                case ast.Call(func=kind, args=[at], keywords=[]):
                    pass
                case _:
                    continue
            found = module.find_callee(kind)
            if found is not None and isinstance(found[1], ast.ClassDef) and _is_prediction(module, at):
                asked[found[1]] = None
    for definition in asked:
        assert isinstance(definition, ast.ClassDef)
        if not any(last_name(base).endswith("Enum") for base in definition.bases):
            continue
        members = [
            (name.id, value) for item in definition.body for name, value in _assigned(item) if isinstance(name, ast.Name)
        ]
        values = [value.value if isinstance(value, ast.Constant) else None for _, value in members]
        numbered = values == list(range(len(values)))
        names = _checked([name for name, _ in members] if numbered else values)
        if names is not None:
            yield names


def _is_prediction(module: Module, at: ast.expr) -> bool:
    """Whether an index is the place of a highest score, as far as it, or what its names are given, tells."""
    if _HIGHEST.search(ast.unparse(at)):
        return True
    names = {node.id for node in inside(at, ast.Name)}
    bound = (
        node
        for node in module.of_kind(ast.Assign)
        if names & {name.id for name in inside(node, ast.Name) if isinstance(name.ctx, ast.Store)}
    )
    return any(_HIGHEST.search(ast.unparse(node.value)) for node in bound)


def _signs(node: ast.expr) -> tuple[str, ...] | None:
    """Those of a text that has each but once: `alphabet = "abcdefghiklmnopqrstuvwxy"`."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return tuple(text) if len(text) > 1 and len(set(text)) == len(text) and not re.search(r"\s", text) else None


def _is_by_index(node: ast.expr) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else []
    return len(keys) > _TWO and all(isinstance(key, ast.Constant) and isinstance(key.value, int) for key in keys)


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return [(node.targets[0], node.value)]
    return [(node.target, node.value)] if isinstance(node, ast.AnnAssign) and node.value is not None else []


def _last(node: ast.expr) -> str:
    """The last part of a variable's or an attribute's name; empty for anything else."""
    return (dotted(node) or "").rpartition(".")[2]


def _candidates(module: Module) -> Iterator[ClassNames]:
    for node in module.nodes:
        if isinstance(node, ast.stmt):
            found = (_candidate(module, node, target, value) for target, value in _assigned(node))
            yield from (item for item in found if item is not None)


def _candidate(module: Module, node: ast.stmt, target: ast.expr, value: ast.expr) -> ClassNames | None:
    name = _last(target)
    if not (_NAMES.search(name) or _SPLIT.search(name)):
        return None
    names = _literal(value)
    if names is not None:
        return ClassNames(names, Point(module, None, module.tree.body[0], _constant(names)), module.path, node.lineno)
    if not isinstance(target, ast.Name) or not _reads_file(value):
        return None
    function = module.function_of(node)
    return ClassNames(None, Point(module, function, node, ast.Name(name, ast.Load()), after=True), module.path, node.lineno)


def _constant(names: tuple[str, ...]) -> ast.expr:
    return ast.parse(repr(list(names)), mode="eval").body


def _literal(node: ast.expr) -> tuple[str, ...] | None:
    """At least two strings in a list, a tuple, a dict by index (`0` or `"0"`) or to indices, or a split string; or
    `[str(d) for d in range(10)]`; or such for what may not be there, `checkpoint.get("classes", ["ant", "bee"])`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "get" and len(node.args) == _TWO:
        return _literal(node.args[1])
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return _literal(node.values[-1])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split" and len(node.args) < 2:
        text = node.func.value
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            separator = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            return _checked(text.value.split(separator if isinstance(separator, str) else None))
    if isinstance(node, ast.ListComp):
        return _digits(node)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, dict):
        indices = {
            int(key): item for key, item in value.items() if isinstance(key, int) or (isinstance(key, str) and key.isdecimal())
        }
        if value and len(indices) == len(value) and sorted(indices) == list(range(len(value))):
            return _checked([indices[index] for index in range(len(value))])
        if (
            value
            and all(isinstance(item, int) for item in value.values())
            and sorted(value.values()) == list(range(len(value)))
        ):
            return _checked(sorted(value, key=value.__getitem__))
        return None
    return _checked(list(value)) if isinstance(value, list | tuple) else None


def _checked(values: Sequence[object]) -> tuple[str, ...] | None:
    names = tuple(value for value in values if isinstance(value, str) and value)
    return names if len(names) == len(values) >= 2 and len(set(names)) > 1 else None


def _digits(node: ast.ListComp) -> tuple[str, ...] | None:
    """`[str(digit) for digit in range(10)]`, which is as literal as the list it makes."""
    generator = node.generators[0]
    element, source = node.elt, generator.iter
    plain = len(node.generators) == 1 and not generator.ifs and isinstance(generator.target, ast.Name)
    if not plain or not isinstance(element, ast.Call) or dotted(element.func) != "str" or len(element.args) != 1:
        return None
    if (
        dotted(element.args[0]) != dotted(generator.target)
        or not isinstance(source, ast.Call)
        or dotted(source.func) != "range"
    ):
        return None
    bounds = [item.value for item in source.args if isinstance(item, ast.Constant) and isinstance(item.value, int)]
    if len(bounds) != len(source.args) or not 1 <= len(bounds) <= 3 or len(range(*bounds)) > 100_000:
        return None
    return _checked([str(number) for number in range(*bounds)])


def _reads_file(node: ast.expr) -> bool:
    """`json.load(open(...))`, `[line.strip() for line in open(...)]`, and what reads the text of a file opened before."""
    return any(
        isinstance(inner, ast.Call)
        and (
            dotted(inner.func) in ("json.load", "json.loads", "open")
            or last_name(inner.func) in ("readlines", "read_text", "read")
        )
        for inner in ast.walk(node)
    )
