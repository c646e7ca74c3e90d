"""Chat bots: a function of the user's that looks for a photo in a message is handed one, in place of a chat."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import re
import sys
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..places import is_users
from ..requests import ADDRESS, jpeg
from ..silent import Silent
from ..stage import Stage
from . import answered, at_its_class, file_of

LIBRARIES = ("aiogram", "discord", "pyrogram", "telebot", "telegram")
_LISTENS = (
    ("telegram.ext", "Application", "run_polling"), ("telegram.ext", "Updater", "start_polling"),
    ("telebot", "TeleBot", "polling"), ("telebot", "TeleBot", "infinity_polling"),
    ("aiogram", "Dispatcher", "start_polling"), ("discord", "Client", "run"), ("pyrogram", "Client", "run"),
)  # fmt: skip
"""What waits for messages, by the libraries' documentation, where they are installed."""
_FETCHES = re.compile(
    r"^(download_as_bytearray|download_file|download|download_to_drive|download_to_memory|read|save|to_file)$"
)
_OF_PHOTOS = re.compile(r"\.(photo|attachments|document)\b|get_file|download_(file|media|as_bytearray|to_drive)")
"""What a function says that takes a photo out of a message."""
_NAMES = {"content_type": "image/jpeg", "mime_type": "image/jpeg", "file_name": "image.jpg", "filename": "image.jpg"}
_PLACES = ("url", "proxy_url", "file_path")
_LISTS = ("photo", "attachments", "photos")


def stand_in(stage: Stage) -> None:
    """What waits for messages ends at once, and what a missing library would have fetched is a made image."""
    for module, kind, method in _LISTENS:
        stage.when_imported(module, lambda library, kind=kind, method=method: _ends(stage, library, kind, method))  # type: ignore[misc]

    def call(original: Any, self: Silent, *args: Any, **named: Any) -> Any:
        library, _, name = self._name.partition(".")
        if library in LIBRARIES and _FETCHES.match(name.rpartition(".")[2]):
            return _fetched(stage, *args, *named.values())
        return original(self, *args, **named)

    stage.wrap(Silent, "__call__", call)


def _ends(stage: Stage, library: Any, kind: str, method: str) -> None:
    owner = getattr(library, kind, None)
    if owner is not None and not isinstance(owner, Silent):
        stage.wrap(owner, method, lambda original, *args, **named: _Awaited())


def hosted(stage: Stage) -> list[Any]:
    """The functions of the user's that take a photo out of a message, those of the script first."""
    if not any(name in sys.modules for name in LIBRARIES):
        return []
    main = sys.modules["__main__"]
    own = [module for module in list(sys.modules.values()) if is_users(str(getattr(module, "__file__", None)), stage.root)]
    found: dict[types.FunctionType, None] = {}
    for module in (main, *own):
        for value in list(vars(module).values()):
            function = getattr(value, "callback", value)  # of discord's commands
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__ and _takes_photo(function):
                found[function] = None
    return list(found)


def _takes_photo(function: types.FunctionType) -> bool:
    try:
        return 1 <= _given(function) <= 2 and _OF_PHOTOS.search(inspect.getsource(function)) is not None
    except OSError:
        return False


def _given(function: types.FunctionType) -> int:
    taken = inspect.signature(function).parameters.values()
    return sum(item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD for item in taken)


def call(stage: Stage, function: Any) -> None:
    def ask() -> Any:
        given = [_Part(stage, "message"), _Part(stage, "context")][: _given(function)]
        made = at_its_class(stage, function, None, function, *given)
        return asyncio.run(made) if inspect.iscoroutine(made) else made

    where = os.path.relpath(file_of(stage, function), stage.root)
    answered(stage, f"{function.__name__} of {where}", [("photo", ask)])


class _Awaited:
    """Nothing, which may be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class _Bytes(bytes):
    """Bytes that may be awaited, and read as a file is."""

    def __await__(self) -> Generator[Any, None, _Bytes]:
        yield from ()
        return self

    def read(self) -> bytes:
        return bytes(self)


def _fetched(stage: Stage, *given: Any) -> _Bytes:
    """A made image: into the file, or at the path, that is given, if any, and as it is."""
    data = jpeg(stage)
    for target in given:
        if isinstance(target, io.IOBase):
            target.write(data)
            target.seek(0)
        elif isinstance(target, str | os.PathLike) and os.fspath(target) != ADDRESS:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).write_bytes(data)
    return _Bytes(data)


class _Part:
    """A part of a message: it has every part that is asked for, may be awaited, and its files hold a made image."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self._name = stage, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _LISTS:
            return [_Part(self._stage, name)]
        if name in _PLACES:
            return ADDRESS
        if name in ("text", "caption", "content"):
            return ""
        if (name == "bot" and self._name in ("author", "from_user")) or name == "is_bot":
            return False
        return _NAMES.get(name) or (1 if re.search(r"(^|_)id$|size$|^(width|height)$", name) else _Part(self._stage, name))

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _fetched(self._stage, *args, *named.values()) if _FETCHES.match(self._name) else self

    def __await__(self) -> Generator[Any, None, _Part]:
        yield from ()
        return self

    async def __aenter__(self) -> _Part:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None: ...
