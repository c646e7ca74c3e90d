"""Functions that nobody calls here: what takes an image, in a file that only defines how one is classified, is called once.

So it is with a module that another program imports, and with the tasks of a queue whose workers run elsewhere.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from ..making import Maker, photo
from ..places import is_users
from ..requests import ADDRESS
from ..stage import Stage
from .servers import jpeg

_CALLED = "functions"
_MOST = 4
_SAYS_SO = re.compile(r"predict|classif|infer|recogni|detect|diagnos|analy[sz]e|process", re.I)
_IMAGE = re.compile(r"image|img|pic(ture)?(_|$)|photo|file|(^|_)(path|url)$", re.I)
_ADDRESS = re.compile(r"(^|_)(url|uri|link)$", re.I)
_PATH = re.compile(r"path|file(_?name)?$|_name$", re.I)
_BYTES = re.compile(r"bytes|content|buffer|(^|_)data$", re.I)
_SIZE = (256, 256)


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    if stage.learned.get(_CALLED):
        stage.at_end(lambda: _call(stage))
    yield


def in_vain(stage: Stage) -> bool:
    """A script that called no model, and has functions that take an image, is run once more and these are called."""
    return bool(_taking_images(stage)) and stage.learn(_CALLED, True)


def _taking_images(stage: Stage) -> list[types.FunctionType]:
    """The script's own functions, and those of the repository that it imports, that take an image and what the script has."""
    known = vars(sys.modules["__main__"])
    found = []
    for name, value in list(known.items()):
        own = isinstance(value, types.FunctionType) and is_users(value.__code__.co_filename, stage.root)
        if own and not name.startswith("_") and not inspect.iscoroutinefunction(value) and _arguments(value) is not None:
            found.append(value)
    return sorted(found, key=lambda function: _SAYS_SO.search(function.__name__) is None)[:_MOST]


def _arguments(function: types.FunctionType) -> list[inspect.Parameter] | None:
    """What a function must be told: an image first, then what its file has by the same names; None for other functions."""
    with contextlib.suppress(TypeError, ValueError):
        every = inspect.signature(function).parameters.values()
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [item for item in every if item.default is item.empty and item.kind in plain]
        if needed and _IMAGE.search(needed[0].name) and all(item.name in function.__globals__ for item in needed[1:]):
            return needed
    return None


def _call(stage: Stage) -> None:
    functions = _taking_images(stage)
    for number, function in enumerate(functions):
        needed = _arguments(function)
        assert needed is not None
        stage.note("functions", f"{function.__name__} was called with a made image, for nothing here calls it")
        try:
            answer = function(_image(stage, needed[0]), *[function.__globals__[item.name] for item in needed[1:]])
        except Exception:
            if number == len(functions) - 1:
                raise
            continue  # another one may be what is meant
        sys.stdout.write(f"{function.__name__}: {answer!s:.2000}\n")
        return


def _image(stage: Stage, parameter: inspect.Parameter) -> Any:
    """An image as the address, the path, the bytes or the object that a parameter's annotation or its name asks for."""
    if _ADDRESS.search(parameter.name):
        return ADDRESS
    told = inspect.formatannotation(parameter.annotation) if parameter.annotation is not parameter.empty else ""
    if "bytes" in told or (not told and _BYTES.search(parameter.name)):
        return jpeg().read()
    if "Image" in told or (not told and not _PATH.search(parameter.name)):
        return photo("image.jpg", _SIZE)
    path = stage.made / "image.jpg"
    Maker(stage).file(str(path))
    return path if "Path" in told else str(path)
