"""Environment variables that a script looks for, that its user will have set, and without which it does not go on."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..places import frames, is_users
from ..stage import Stage, Unset
from .running_code import around

LEARNED = "environment"
"""Learned: variables that are to be set, and to what."""
_ASKING = (os.__file__, str(inspect.getsourcefile(Mapping)))
"""What stands between a script that asks for a variable and where it is looked up."""
_EXAMPLES = (".env", ".env.example", ".env.sample", ".env.template", ".env.dist", "env.example", "example.env", ".env.local")
_OF_ITS_OWN = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
"""A name that no error has by chance."""
_NAMES = (ast.Name, ast.Attribute)
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": ""}
_SET = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_NO_NUMBER = re.compile(r"(?:int|float)\(\) argument must be .*'NoneType'$")
_NUMBERS = re.compile(r"""\b(?:int|float)\(\s*(?:os\.)?(?:getenv|environ\.get)\(\s*['"](\w+)['"]\s*\)\s*\)""")
"""Variables of which a script makes numbers, and for which it has nothing else to take."""
_OF_A_CALL = re.compile(r"^https?:|^<.*>$|\byour[-_ ]|^$", re.I)
"""What stands in an example of settings for what everybody writes in."""


@contextlib.contextmanager
def holding(values: Mapping[str, str]) -> Iterator[None]:
    """Within it the variables have these values; after it, those that they had."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def stand_in(stage: Stage) -> None:
    """Set what earlier attempts could not go on without, and watch what is looked for in vain."""
    stage.wrap(os._Environ, "__getitem__", _noting(stage))
    for name, value in stage.learned.get(LEARNED, {}).items():
        said = "was taken from the example of its settings" if stated(stage.root, name) == value else "was guessed"
        stage.note("arguments", f"{name}={value} {said}")
        os.environ[name] = value
        stage.on_exit(functools.partial(os.environ.pop, name, None))


def wanted(stage: Stage, error: BaseException, own: Sequence[Any]) -> str | None:
    """The variable for whose want the script ended: one that the error names, or whose None was taken where it failed.

    `own` are the user's frames in the traceback, the outermost first.
    """
    known = stage.learned.get(LEARNED, {})
    unset = {name: found for name, found in stage.unset.items() if name not in known}
    if (named := _named(unset, str(error))) is None and isinstance(error, SystemExit) and error.code and own:
        tests = {part for node in around(own[-1]) for part in ast.walk(node.test)}
        tested = {part.attr if isinstance(part, ast.Attribute) else part.id for part in tests if isinstance(part, _NAMES)}
        return next((name for name, (bound, _) in unset.items() if bound in tested), None)
    if named is not None or "None" not in str(error):
        return named
    for frame in reversed(own):
        line = _statement(frame)
        scope = {**frame.f_globals, **frame.f_locals}
        for name, (bound, _) in unset.items():
            if bound is None:
                continue  # it was asked for with something else to take
            used = bound and re.search(rf"(?<![\w.]){re.escape(bound)}(?!\w)", line) and scope.get(bound, line) is None
            of_object = bound and re.search(rf"\.{re.escape(bound)}\b", line)
            if _has(line, name) or used or of_object:
                return name
    return None


def _named(unset: Mapping[str, Unset], message: str) -> str | None:
    """The first one that a message names, before those for which the script has something else to take: "KEY must be set where
    MODE=fast" asks for KEY."""
    named = [
        (bool(found.default), place, name) for name, found in unset.items() if (place := _place(message, name)) is not None
    ]
    return min(named)[2] if named else None


def usual(name: str) -> str | None:
    """What a variable says on a machine such as this one; None where only the script's user can know."""
    return _NO_GPU.get(name)


def told(name: str, error: BaseException) -> str | None:
    """What an error that names a variable says it should be: NAME=true, "set NAME to true", NAME "must be one of" words."""
    text = str(error)
    found = re.search(rf"(?<!\w){re.escape(name)}(?:\s*=\s*|[`'\"]? to (?:be )?)[`'\"]?([\w./-]*\w)", text)
    found = found or re.search(rf"(?<!\w){re.escape(name)}\b.{{0,40}}\bone of [\[({{]?['\"]?(\w+)", text)
    return None if found is None else found[1]


def as_number(name: str, guessed: str, error: BaseException, classes: int) -> str:
    """A guessed value where the script makes a number of it, as its error tells: what counts no classes and is none is 1."""
    if _NO_NUMBER.match(str(error)) is None:
        return guessed
    if re.search("class|label", name, re.I):
        return str(classes)
    return guessed if guessed.isdecimal() else "1"


def in_repository(root: str, guessed: str) -> str:
    """A guessed file where the repository has one of its name elsewhere, and one alone."""
    ending = os.path.splitext(guessed)[1]
    found = [path for path in Path(root).rglob(guessed) if path.is_file()] if ending and not os.path.exists(guessed) else []
    return os.path.relpath(found[0]) if len(found) == 1 else guessed


def with_it(name: str, error: BaseException, frame: Any) -> list[str]:
    """A variable of which a frame could not make a number, and the others of which its file makes some."""
    text = "".join(linecache.getlines(frame.f_code.co_filename)) if _NO_NUMBER.match(str(error)) else ""
    return list(dict.fromkeys([name, *(other for other in _NUMBERS.findall(text) if other not in os.environ)]))


def stated(root: str, name: str) -> str | None:
    """What the repository's example of its settings sets a variable to; None where it leaves that to its users."""
    for example in _EXAMPLES:
        path = Path(root, example)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        for line in lines:
            found = _SET.match(line)
            value = found[2].strip("\"'") if found is not None and found[1] == name else ""
            if not _OF_A_CALL.search(value):
                return value
    return None


def _noting(stage: Stage) -> Callable[..., Any]:
    """Notes each variable that the user's code asks for and that is not set."""

    def read(original: Any, self: Any, key: str) -> Any:
        try:
            return original(self, key)
        except KeyError:
            asking = list(_asking())
            user = next((frame for frame in asking if not _is_between(frame)), None)
            if user is not None and is_users(user.f_code.co_filename, stage.root):
                default = next((frame.f_locals["default"] for frame in asking if "default" in frame.f_locals), None)
                got_none = default is None and any(map(_is_between, asking))
                stage.unset[key] = Unset(_bound(user) if got_none else None, default)
            elif user is not None and isinstance(key, str) and _OF_ITS_OWN.fullmatch(key):
                stage.unset.setdefault(key, Unset(None, True))  # a library's counts where an error names it
            raise

    return read


def _asking() -> Iterator[Any]:
    """The frame that asks for a variable, after those of what it asks with."""
    for frame in frames():
        yield frame
        if not _is_between(frame):
            return


def _is_between(frame: Any) -> bool:
    file = frame.f_code.co_filename
    return file.startswith("<frozen") or file in _ASKING


def _bound(frame: Any) -> str:
    """The name, or the attribute, to which the running statement of a frame binds a value."""
    try:
        statement = ast.parse(_statement(frame).strip()).body[0]
    except (SyntaxError, IndexError):
        return ""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _statement(frame: Any) -> str:
    """The text of the innermost statement that is running in a frame."""
    lines = linecache.getlines(frame.f_code.co_filename)
    place, line = frame.f_lineno, "".join(lines[frame.f_lineno - 1 : frame.f_lineno])
    try:
        nodes = [
            node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.stmt) and not hasattr(node, "body")
        ]
    except SyntaxError:
        return line
    around = (node for node in nodes if node.lineno <= place <= (node.end_lineno or 0))
    node = next(around, None)
    return line if node is None else "".join(lines[node.lineno - 1 : node.end_lineno])


def _has(text: str, variable: str) -> bool:
    return _place(text, variable) is not None


def _place(text: str, variable: str) -> int | None:
    found = re.search(rf"(?<![A-Za-z0-9_]){re.escape(variable)}(?![A-Za-z0-9_])", text)
    return None if found is None else found.start()
