"""Functions that nobody calls here: what takes an image, in a file that only defines how one is classified, is called once.

So it is with a module that another program imports, with the tasks of a queue whose workers run elsewhere, and with a class
whose object classifies: it is made, has its model loaded where it has a method for that, and is asked. What an installed
command calls, of a file that does not call it itself, is called as the command would.
"""

from __future__ import annotations

import abc
import contextlib
import inspect
import itertools
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ....survey.entry_points import called_by_commands
from .. import making
from ..making import Maker
from ..places import is_users
from ..requests import ADDRESS, ENCODED, forms, jpeg, members_of, size, spoken_of
from ..stage import Stage
from .arguments import guess

_CALLED = "functions"
_MOST = 4
_SAYS_SO = re.compile(r"predict|classif|infer|recogni|detect|diagnos|analy[sz]e|process", re.I)
_AROUND = re.compile(r"pre(?!dict)|post", re.I)
"""What is done before and after."""
_LOADS = re.compile(r"(load|init|set_?up|build)(_|$)", re.I)
_IMAGE = re.compile(r"image|img|pic(ture)?(_|$)|photo|file|(^|_)(path|url)$", re.I)
_ADDRESS = re.compile(r"(^|_)(url|uri|link)$", re.I)
_PATH = re.compile(r"path|file(_?name)?$|_name$", re.I)
_BYTES = re.compile(r"bytes|content|buffer|(^|_)data$", re.I)
_MANY = re.compile(r"(?:\w+\.)*(?:list|sequence|iterable|collection)\[(.+)\]", re.I)
_NAMED = re.compile(r"(?:\w+\.)*tuple\[str, ([^,]+)\]", re.I)
"""Annotations of several images, and of one with the name of its file."""


@dataclass(frozen=True)
class _Asked:
    """What is called with an image: its name, the parameter, its source, and the call."""

    name: str
    parameter: inspect.Parameter
    source: str
    call: Callable[[Any], Any]
    keys: Sequence[str] = ()
    """Of a request, which is a table: under which names it holds the image."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    command = called_by_commands(Path(stage.root)).get(stage.request.script)
    if command is not None:
        stage.at_end(lambda: sys.exit(operator.attrgetter(command)(sys.modules["__main__"])()))
    if stage.learned.get(_CALLED):
        stage.at_end(lambda: _call(stage))
    yield


def in_vain(stage: Stage) -> bool:
    """A script that called no model, and has functions that take an image, is run once more and these are called."""
    return bool(_taking_images(stage)) and stage.learn(_CALLED, True)


def _taking_images(stage: Stage) -> list[_Asked]:
    """The script's own functions, and those of the repository that it imports, that take an image and what the script has;
    then the methods of its classes that say that they classify one."""
    known = [
        (name, value)
        for name, value in list(vars(sys.modules["__main__"]).items())
        if not name.startswith("_") and is_users(_file_of(value), stage.root)
    ]
    found = []
    for name, value in known:
        needed = _arguments(value) if isinstance(value, types.FunctionType) else None
        if needed is not None:
            found.append(_Asked(name, needed[0], _source(value), partial(_ask, value, needed[1:])))
    found.sort(key=lambda asked: (_SAYS_SO.search(asked.name) is None, _AROUND.match(asked.name) is not None))
    methods = (_of_class(stage, name, value) for name, value in known if isinstance(value, type) and _is_plain(stage, value))
    return [*found, *itertools.chain.from_iterable(methods)][:_MOST]


def _ask(function: types.FunctionType, others: Sequence[inspect.Parameter], image: Any) -> Any:
    return function(image, *[function.__globals__[item.name] for item in others])


def _ask_object(stage: Stage, kind: type, method: str, image: Any) -> Any:
    known = (value for value in list(vars(sys.modules["__main__"]).values()) if type(value) is kind)
    own = next(known, None)
    return getattr(_made(stage, kind) if own is None else own, method)(image)


def _file_of(value: object) -> str:
    with contextlib.suppress(TypeError, OSError):
        if isinstance(value, types.FunctionType | type):
            return inspect.getfile(value)
    return ""


def _is_plain(stage: Stage, kind: type) -> bool:
    """Whether a class is the user's alone: no model, no data set, no error."""
    own = (base in (object, abc.ABC) or is_users(_file_of(base), stage.root) for base in kind.__mro__)
    return all(own) and not inspect.isabstract(kind)


def _of_class(stage: Stage, name: str, kind: type) -> list[_Asked]:
    """The methods of a class that classify an image."""
    found = []
    for method, value in vars(kind).items():
        plain = isinstance(value, types.FunctionType) and not method.startswith("_") and _SAYS_SO.search(method)
        needed = _arguments(value, bound=True) if plain else None
        call = partial(_ask_object, stage, kind, method)
        if needed is not None and len(needed) == 1:
            found.append(_Asked(f"{name}.{method}", needed[0], _source(value), call))
        elif plain and (request := _request(kind, value)) is not None:
            found.append(_Asked(f"{name}.{method}", request[0], _source(kind), call, request[1]))
    return sorted(found, key=lambda asked: _AROUND.match(asked.name.rpartition(".")[2]) is not None)


def _request(kind: type, function: types.FunctionType) -> tuple[inspect.Parameter, list[str]] | None:
    """The one argument that a method must be told, where that is a table out of which the class takes an image."""
    every = list(inspect.signature(function).parameters.values())[1:]
    needed = [item for item in every if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
    if len(needed) != 1 or inspect.iscoroutinefunction(function):
        return None
    methods = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
    taking = [value for value in methods if needed[0].name in inspect.signature(value).parameters]
    keys = [key for value in taking for key in members_of(value, needed[0].name, Mapping)]
    return (needed[0], list(dict.fromkeys(keys))) if keys else None


def _made(stage: Stage, kind: type) -> Any:
    """An object of a class, with what its constructor must be told guessed, whose model is loaded."""
    maker, given = Maker(stage), {}
    for item in inspect.signature(kind).parameters.values():
        if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD:
            given[item.name] = guess(item.name, "", maker)
            stage.note("functions", f"{kind.__name__}({item.name}={given[item.name]!r}) was guessed")
    made = kind(**given)
    for method, value in vars(kind).items():
        if isinstance(value, types.FunctionType) and _LOADS.match(method) and len(inspect.signature(value).parameters) == 1:
            getattr(made, method)()
    return made


def _source(value: types.FunctionType | type) -> str:
    with contextlib.suppress(OSError, TypeError):
        return inspect.getsource(value)
    return ""


def _arguments(function: types.FunctionType, *, bound: bool = False) -> list[inspect.Parameter] | None:
    """What a function must be told: an image first, then what its file has by the same names; None for other functions."""
    if inspect.iscoroutinefunction(function):
        return None
    with contextlib.suppress(TypeError, ValueError):
        every = list(inspect.signature(function).parameters.values())[bound:]
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [item for item in every if item.default is item.empty and item.kind in plain]
        if needed and _IMAGE.search(needed[0].name) and all(item.name in function.__globals__ for item in needed[1:]):
            return needed
    return None


def _call(stage: Stage) -> None:
    found = _taking_images(stage)
    for number, asked in enumerate(found):
        stage.note("functions", f"{asked.name} was called with a made image, for nothing here calls it")
        try:
            answer = _answer(stage, asked)
        except Exception:
            if number == len(found) - 1:
                raise
            continue  # another one may be what is meant
        sys.stdout.write(f"{asked.name}: {answer!s:.2000}\n")
        return


def _answer(stage: Stage, asked: _Asked) -> Any:
    """What is answered to the image in the form that the source or the parameter speaks of, else in another of which it
    does. The first error is raised where none is taken."""
    spoken = spoken_of(asked.source)
    others = [form for form in forms(stage, asked.source) if form.name in spoken]
    makers: list[Callable[[], Any]] = [form.make for form in others if form.name in ENCODED]
    makers += [lambda: _image(stage, asked.parameter), *(form.make for form in others if form.name not in ENCODED)]
    first: Exception | None = None
    for make in makers:
        try:
            image = make()
            return asked.call(dict.fromkeys(asked.keys, image) if asked.keys else image)
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises for a form that it does not take
            first = first or error
    assert first is not None
    raise first


def _image(stage: Stage, parameter: inspect.Parameter) -> Any:
    """An image as a parameter's annotation or its name asks for it."""
    annotated = parameter.annotation is not parameter.empty
    return _as_told(stage, parameter.name, inspect.formatannotation(parameter.annotation).strip("'\"") if annotated else "")


def _as_told(stage: Stage, name: str, told: str) -> Any:
    """An image as the address, the path, the bytes or the object that an annotation or a name asks for; one in a list, or
    together with the name of a file, where that is annotated."""
    if (many := _MANY.fullmatch(told)) is not None:
        return [_as_told(stage, name, many[1])]
    if (named := _NAMED.fullmatch(told)) is not None:
        return "image.jpg", _as_told(stage, name, named[1])
    if _ADDRESS.search(name):
        return ADDRESS
    if "bytes" in told or (not told and _BYTES.search(name)):
        return jpeg(stage)
    if "Image" in told or (not told and not _PATH.search(name)):
        return making.handed("image.jpg", size(stage))
    path = stage.made / "image.jpg"
    Maker(stage).file(str(path))
    return path if "Path" in told else str(path)
