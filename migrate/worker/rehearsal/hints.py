"""What the repository's own sources say of its data: how many classes, their names, and the columns of its tables."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import json
import os
import re
import types
from collections.abc import Iterator
from pathlib import Path

from ...reading.bindings import last_name
from ...reading.notebooks.shown_classes import shown_classes
from ...reading.source import NOTEBOOK, read_source
from .places import is_users

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_SETTING = re.compile(r"""^\s*["']?(\w+)["']?\s*[:=]\s*(\d+)\s*,?\s*(?:#.*)?$""", re.M)
"""A line of such a file that says a number: `num_classes: 8`, `"num_classes": 8,`."""
_MOST_CHARACTERS = 1_000_000
COUNT = re.compile(
    r"^(num|n|nb|number)_?(of_?)?(class|classes|labels|cls|outputs?)$|^(class|classes|cls)_?(num|count|number)$", re.I
)
NAMES = re.compile(
    r"^(class(es)?|labels?|categor(y|ies)|cls)(_?(names?|list|labels|map))?$|^(id|idx)_?(to|2)_?(class|label|name)e?s?$", re.I
)
_LOOSE = re.compile(r"^labels?$", re.I)
TO_NUMBER = re.compile(r"^\w*(class|label|categor|cat|name|species|breed)\w*?_?(to|2)_?(idx|index|id|num\w*|int)$", re.I)
_ENDING = re.compile(r"\.(jpe?g|png|bmp|tiff?|webp|p[gp]m|gif)", re.I)
_TABLES = frozenset(["read_csv", "read_table", "read_excel", "read_feather", "read_parquet", "DictReader"])
_OF_NUMBERS = frozenset(["genfromtxt", "loadtxt", "recfromcsv"])
_BY_LINES = _OF_NUMBERS | {"reader", "DictReader"}
"""What of Python's csv module and of NumPy takes a table's lines apart. How pandas does is seen when it reads."""
_SIDES = 8, 256
"""Of images whose pixels stand in tables, a column each."""
LARGEST = 1024
"""Side of an image whose pixels stand in one column."""
_IMAGE = re.compile(r"pixel|image|img|vector", re.I)
_SIGNS = (",", ";", "|", "\t", ", ", " ")
_MOST, _MOST_DEMANDED = 22_000, 40
_OF_SETS = frozenset(["difference", "issubset", "issuperset", "intersection", "symmetric_difference", "isin"])
_FILES, _BYTES = 100, 1_000_000
"""Of JSON, to look for tables of classes."""
CLASSES = 10
"""How many classes made data has where nothing says."""


@functools.cache
def sources(root: str, first: str) -> tuple[ast.Module, ...]:
    """The parsed files of the repository, that of the script before all others; of notebooks only that which is run."""
    return tuple(tree for _, tree in _read(root, first))


@functools.cache
def _read(root: str, first: str) -> tuple[tuple[str, ast.Module], ...]:
    own = read_source(Path(root), os.path.relpath(first, root)).tree if first.endswith(NOTEBOOK) else None
    paths = sorted(str(path) for path in Path(root).rglob("*.py") if is_users(str(path), root))[:500]
    found = [(first, own)] if own is not None else []
    for path in sorted(paths, key=lambda path: path != first):
        try:
            found.append((path, ast.parse(Path(path).read_bytes())))
        except (SyntaxError, ValueError, OSError):
            continue
    return tuple(found)


@functools.cache
def _reached(root: str, first: str) -> tuple[ast.Module, ...]:
    """The script and those files whose names it imports, or one of them does."""
    waiting, found = list(_read(root, first)), []
    words = {Path(first).stem}
    while taken := [(path, tree) for path, tree in waiting if words & {Path(path).stem, *_package(path)}]:
        waiting = [item for item in waiting if item not in taken]
        found += [tree for _, tree in taken]
        for _, tree in taken:
            for node in nodes(tree):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                modules += [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
                words |= {word for module in modules for word in module.split(".")}
    return tuple(found)


def _package(path: str) -> list[str]:
    """The name of the package of which a file is the face."""
    return [Path(path).parent.name] if Path(path).name == "__init__.py" else []


def bound_within(code: types.CodeType, name: str, *kinds: type[ast.stmt]) -> bool:
    """Whether the function of that code, or the script, gives the name a value in statements of these kinds, as loops, and
    nowhere else."""
    file = Path(code.co_filename)
    try:
        tree = read_source(file.parent, file.name).tree if file.suffix == NOTEBOOK else ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    if tree is None:
        return False
    first = code.co_firstlineno  # that of a decorator, where there is one
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == code.co_name)
    lines = ((node, {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}) for node in functions)
    scope: ast.AST = next((node for node, starts in lines if first in starts), tree)
    looped = {id(part) for node in ast.walk(scope) if isinstance(node, kinds) for part in ast.walk(node)}
    named = (part for part in ast.walk(scope) if isinstance(part, ast.Name) and part.id == name)
    bound = [part for part in named if isinstance(part.ctx, ast.Store)]
    return bool(bound) and all(id(part) in looped for part in bound)


def path_of(root: str, script: str) -> str:
    """The file of a script that is named as a path or as a module."""
    return os.path.join(root, script if script.endswith((".py", NOTEBOOK)) else script.replace(".", os.sep) + ".py")


@functools.cache
def adds_endings(root: str, script: str) -> bool:
    """Whether the sources put the ending of an image's file to a name, or take it off: their tables have names without it."""
    for tree in sources(root, path_of(root, script)):
        for node in nodes(tree):
            if isinstance(node, ast.JoinedStr | ast.BinOp) and any(
                isinstance(part, ast.Constant) and isinstance(part.value, str) and _ENDING.fullmatch(part.value)
                for part in ast.iter_child_nodes(node)
            ):
                return True
            if isinstance(node, ast.Attribute) and node.attr in ("stem", "splitext", "with_suffix"):
                return True
    return False


@functools.cache
def numbers_names(root: str, script: str) -> bool:
    """Whether the sources look up the number of a class by its name: `label_to_index[name]`, `CLASS_NAMES.index(name)`."""

    def named(node: ast.AST) -> str:
        return str(getattr(node, "id", getattr(node, "attr", "")))

    every = itertools.chain.from_iterable(map(nodes, sources(root, path_of(root, script))))
    return any(
        TO_NUMBER.match(named(node)) or (named(node) == "index" and NAMES.match(named(getattr(node, "value", node))))
        for node in every
    )


@functools.cache
def image_ending(root: str, script: str) -> str:
    """The ending by which the sources tell images from other files; .jpg where it is one of several, or none is told.

    What the script reaches comes before the repository's other files.
    """
    first = path_of(root, script)
    reached = _reached(root, first)
    for tree in sorted(sources(root, first), key=lambda tree: tree not in reached):
        found: set[str] = set()
        for node in nodes(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="endswith" | "glob" | "rglob" | "iglob"), args=[told, *_]):
                    pass
                case ast.Compare(
                    left=ast.Attribute(attr="suffix") | ast.Call(func=ast.Attribute(value=ast.Attribute(attr="suffix")))
                ):
                    told = node.comparators[0]
                case _:
                    continue
            texts = [part.value for part in ast.walk(told) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            found |= {ending[0].lower() for text in texts if (ending := _ENDING.search(text)) and text.endswith(ending[0])}
        found = found or {ending for node in nodes(tree) if isinstance(node, ast.ClassDef) for ending in _added(node)}
        if found:
            return min(found, key=lambda ending: (ending != ".jpg", ending != ".png", ending))
    return ".jpg"


def _added(kind: ast.ClassDef) -> Iterator[str]:
    """The endings that a data set puts to the names of its rows: `row["id"] + ".npy"`, `f"{name}.png"`."""
    if not any("Dataset" in text for text in (kind.name, *map(ast.unparse, kind.bases))):
        return
    for node in ast.walk(kind):
        match node:
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=str(text))):
                pass
            case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
                pass
            case _:
                continue
        if _ENDING.fullmatch(text) or text == ".npy":
            yield text.lower()


@functools.cache
def class_names(root: str, script: str) -> tuple[str, ...] | None:
    """A list of names that the sources call classes or labels, or number; the script's own first, what notebooks show last.

    Mere `labels` are those of a diagram, too, in files that the script does not reach.
    """
    first = path_of(root, script)
    for tree in sources(root, first):
        for name, value in _bound(tree):
            if _LOOSE.match(name) and tree not in _reached(root, first):
                continue
            numbered = _numbered(value) if isinstance(value, ast.Dict) else None
            if not NAMES.match(name) and not (numbered and TO_NUMBER.match(name)):
                continue
            written: list[ast.expr] = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
            items = numbered or written
            names = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if len(names) >= 2 and len(set(names)) == len(items):
                return tuple(names)
    return shown_classes(Path(root), os.path.relpath(first, root))


def _numbered(table: ast.Dict) -> list[ast.expr] | None:
    """The keys of a table from what is numbered from 0 on, in the order of their numbers: `{"cats": 0, "dogs": 1}`."""
    numbers = {
        value.value: key
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None and isinstance(value, ast.Constant) and type(value.value) is int
    }
    counted = sorted(numbers) == list(range(len(table.values)))
    return [numbers[number] for number in sorted(numbers)] if counted else None


@functools.cache
def mapped_names(root: str, count: int) -> tuple[str, ...] | None:
    """The names that a JSON file of the repository maps to something, where it maps as many as there are classes."""
    for path in sorted(Path(root).rglob("*.json"), key=lambda path: (len(path.parts), path))[:_FILES]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            table = json.loads(path.read_bytes()) if path.stat().st_size <= _BYTES else None
            if isinstance(table, dict) and len(table) == count:
                return tuple(sorted(table))
    return None


@functools.cache
def class_count(root: str, script: str) -> int | None:
    """How many classes the sources state: a number bound to such a name, the script's own before others; names before the
    numbers of others."""
    own, *others = sources(root, path_of(root, script)) or (ast.Module([], []),)
    if (number := next(_counts(own), None)) is not None:
        return number
    names = class_names(root, script)
    return len(names) if names is not None else next(itertools.chain.from_iterable(map(_counts, others)), None)


@functools.cache
def configured_count(root: str, argv: tuple[str, ...]) -> int | None:
    """How many classes the configuration files state that a command line names."""
    for word in argv:
        path = os.path.join(root, word.partition("=")[2] or word)
        if path.lower().endswith(_CONFIGURATIONS) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                stated = _SETTING.findall(file.read(_MOST_CHARACTERS))
            found = [int(number) for name, number in stated if COUNT.match(name) and 2 <= int(number) <= _MOST]
            if found:
                return found[0]
    return None


def _counts(tree: ast.Module) -> Iterator[int]:
    for name, value in _bound(tree):
        number = value.value if isinstance(value, ast.Constant) else None
        if COUNT.match(name) and isinstance(number, int) and 2 <= number <= _MOST:
            yield number


def stated(root: str, script: str, name: str) -> str | float | None:
    """The text or number that the sources bind to a name, the script's own before others."""
    constants = (value.value for value in bound_to(root, script, name) if isinstance(value, ast.Constant))
    return next((item for item in constants if isinstance(item, str | int | float) and item != ""), None)


def bound_to(root: str, script: str, name: str) -> Iterator[ast.expr]:
    """What the sources bind to a name, the script's own before others."""
    for tree in sources(root, path_of(root, script)):
        yield from (value for bound, value in _bound(tree) if bound == name)


@functools.cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """What `ast.walk` finds in a file: each is walked through once, whatever is asked of it."""
    return tuple(ast.walk(tree))


@functools.cache
def _bound(tree: ast.Module) -> tuple[tuple[str, ast.expr], ...]:
    """Names and what is bound to them: assignments, keywords, defaults of parameters and of command-line options."""
    return tuple(_bindings(tree))


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name | ast.Attribute):
                    yield target.id if isinstance(target, ast.Name) else target.attr, node.value
        elif isinstance(node, ast.Call):
            yield from ((item.arg, item.value) for item in node.keywords if item.arg is not None)
            flags = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            default = next((item.value for item in node.keywords if item.arg == "default"), None)
            if default is not None:
                yield from ((flag.lstrip("-").replace("-", "_"), default) for flag in flags)
        elif isinstance(node, ast.FunctionDef):
            names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
            yield from zip(reversed(names), reversed(node.args.defaults), strict=False)


def columns(root: str, script: str) -> tuple[list[str], int]:
    """The names by which the sources that read tables take columns, in their order, those that they demand of a table after
    them, and how many are taken by number. A column that a file writes before it reads it is none of the file's table."""
    names: dict[str, None] = {}
    demanded: dict[str, None] = {}
    highest = 0
    for tree in sources(root, path_of(root, script)):
        if not _names_in(tree) & _TABLES:
            continue
        demanded |= dict.fromkeys(_demanded(tree))
        taken: dict[str, tuple[int, bool]] = {}
        after = {id(target): node.end_lineno for node in nodes(tree) if isinstance(node, ast.Assign) for target in node.targets}
        for node in nodes(tree):
            if not isinstance(node, ast.Subscript):
                continue
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            parts = [item for part in parts for item in (part.elts if isinstance(part, ast.List) else [part])]
            for part in parts:
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and is_table(node.value):
                    place = after.get(id(node)) or node.lineno, id(node) in after
                    taken[part.value] = min(place, taken.get(part.value, place))
            last = parts[-1] if isinstance(node.slice, ast.Tuple) else None
            by_number = isinstance(node.value, ast.Attribute) and node.value.attr in ("iloc", "values")
            if by_number and isinstance(last, ast.Constant) and isinstance(last.value, int):
                highest = max(highest, last.value + 1)
        names |= {name: None for name, (_, is_written) in taken.items() if not is_written}
    return list(names | demanded), highest


def _demanded(tree: ast.Module) -> Iterator[str]:
    """The names of a collection that is held against a table's columns: `REQUIRED - set(table.columns)`, `[name for name in
    NEEDED if name not in table.columns]`."""
    if "columns" not in _names_in(tree):
        return
    bound = dict(_bound(tree))
    later = {id(node.orelse[0]) for node in nodes(tree) if isinstance(node, ast.If) and len(node.orelse) == 1}
    for node in nodes(tree):
        if isinstance(node, ast.If) and id(node) not in later:
            yield from _without_which_it_raises(node)
        match node:
            case ast.Call(func=ast.Attribute(attr=method)) if method in _OF_SETS:
                held: ast.AST = node
            case ast.BinOp() | ast.Compare() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                held = node
            case ast.For():
                held = node.iter
            case _:
                continue
        if not any(isinstance(part, ast.Attribute) and part.attr == "columns" for part in ast.walk(node)):
            continue
        for part in ast.walk(held):
            collection = bound.get(part.id) if isinstance(part, ast.Name) else part
            if isinstance(collection, ast.Call) and collection.args:  # frozenset({...})
                collection = collection.args[0]
            if isinstance(collection, ast.Set | ast.List | ast.Tuple) and len(collection.elts) <= _MOST_DEMANDED:
                yield from _texts(collection)


def _without_which_it_raises(node: ast.If) -> Iterator[str]:
    """The column that `if "a" not in table.columns: raise` wants, and the first of `if "a" in table.columns: ... elif "b" in
    table.columns: ... else: raise`; of several, one of which will do, the first too."""
    last = node
    while len(last.orelse) == 1 and isinstance(last.orelse[0], ast.If):
        last = last.orelse[0]
    for part in ast.walk(node.test):
        match part:
            case ast.Compare(left=ast.Constant(value=str() as name), ops=[ast.In() | ast.NotIn() as how], comparators=[table]):
                gives_up = node.body if isinstance(how, ast.NotIn) else last.orelse
                if any(isinstance(item, ast.Raise) for item in gives_up) and "columns" in ast.unparse(table):
                    yield name
                    if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
                        return


def pixel_count(root: str, script: str, largest: int = _SIDES[1]) -> int | None:
    """How many numbers the sources that read tables make an image of: 784 of `reshape(-1, 1, 28, 28)`."""
    for tree in sources(root, path_of(root, script)):
        if not _names_in(tree) & (_TABLES | _OF_NUMBERS):
            continue
        for node in nodes(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("reshape", "view"):
                parts = [item for arg in node.args for item in (arg.elts if isinstance(arg, ast.Tuple | ast.List) else [arg])]
                sides = [item.value for item in parts if isinstance(item, ast.Constant) and isinstance(item.value, int)]
                square = next((a for a, b in itertools.pairwise(sides) if a == b and _SIDES[0] <= a <= largest), None)
                if square is not None:
                    return square * square * (3 if 3 in sides else 1)
    return None


@functools.cache
def sign_between_numbers(root: str, script: str) -> str:
    """What stands between the numbers of an image that are one text, by how the sources that read tables take it apart."""
    for tree in sources(root, path_of(root, script)):
        for node in nodes(tree) if _names_in(tree) & _TABLES else ():
            match node:
                case ast.Call(func=ast.Attribute(attr="fromstring"), keywords=given):
                    told = next((item.value for item in given if item.arg == "sep"), None)
                case ast.Call(func=ast.Attribute(value=of, attr="split"), args=[told, *_]) if _IMAGE.search(ast.unparse(of)):
                    pass
                case _:
                    continue
            if isinstance(told, ast.Constant) and isinstance(told.value, str) and told.value in _SIGNS:
                return told.value
    return " "


@functools.cache
def sign_between_cells(root: str, script: str) -> str | None:
    """The one sign at which the sources take lines of tables apart: `csv.reader(file, delimiter=";")`; None for no such."""
    for tree in sources(root, path_of(root, script)):
        calls = (node for node in nodes(tree) if isinstance(node, ast.Call) and last_name(node.func) in _BY_LINES)
        told = [item.value for call in calls for item in call.keywords if item.arg == "delimiter"]
        signs = {item.value for item in told if isinstance(item, ast.Constant) and item.value in _SIGNS[:4]}
        if signs:
            return signs.pop() if len(signs) == 1 else None
    return None


def _names_in(tree: ast.Module) -> set[str]:
    taken = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}
    return taken | {node.id for node in nodes(tree) if isinstance(node, ast.Name)}


def is_keyed(root: str, script: str, path: str) -> bool:
    """Whether what is read from a file of that name is asked for by keys: `batch["data"]`."""
    for tree in sources(root, path_of(root, script)):
        bound = {to for to, value in _bound(tree) if any(text.endswith(os.path.basename(path)) for text in _texts(value))}
        asked = (node for node in nodes(tree) if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name))
        keys = (getattr(node.slice, "value", None) for node in asked if last_name(node.value) in bound)
        if any(isinstance(key, str | bytes) for key in keys):
            return True
    return False


def _texts(value: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def is_table(node: ast.expr) -> bool:
    """Not `os.environ["X"]`, `checkpoint["model"]` or `config["x"]`, which are taken by name too."""
    text = ast.unparse(node).lower()
    words = ("environ", "checkpoint", "ckpt", "state", "config", "cfg", "args", "batch", "metric", "history", "model", "param",
             "transform", "loader", "sample", "option", "result")  # fmt: skip
    return not any(word in text for word in words)
