"""Which stored weights a piece of code reads: seen where files are opened, since any library may do the reading."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD = 4096
_SYSTEM = ("/usr/share/", "/etc/", "/proc/", "/sys/", "/dev/")
"""Folders of the machine's own binary files, such as those of time zones."""
_NOT_WEIGHTS = frozenset(
    [
        ".pyc",
        ".so",
        ".pyd",
        ".dll",
        ".png",
        ".jpg",
        ".jpeg",
        ".bmp",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".ttf",
        ".gz",
        ".whl",
        ".mo",
    ]
)
_unique = dict.fromkeys  # the code in the block may do anything to the names of builtins
_listeners: list[list[str]] = []
_hooked: list[bool] = []


@contextlib.contextmanager
def stored_weights_read() -> Iterator[list[Path]]:
    """A list that holds, after the block, the files of stored weights that were opened for reading in it.

    Weights are binary: pickles, zip archives, safetensors, HDF5, numpy's. Code, images and text are none. Of the libraries that
    read past Python's own `open`, safetensors' is seen.
    """
    if not _hooked:  # a hook cannot be taken off again
        sys.addaudithook(_hear)
        _hooked.append(True)
    opened: list[str] = []
    found: list[Path] = []
    _listeners.append(opened)
    try:
        with _safetensors_seen(), _programs_seen():
            yield found
    finally:
        _listeners.remove(opened)
        found += [path for path in map(Path, _unique(opened)) if _holds_weights(path)]


@contextlib.contextmanager
def _safetensors_seen() -> Iterator[None]:
    """Within it, what is opened with safetensors is heard of, for its own code opens files where no audit event tells."""
    try:
        library: Any = importlib.import_module("safetensors")
    except ImportError:
        yield
        return
    plain = library.safe_open

    def safe_open(filename: Any, *args: Any, **named: Any) -> Any:
        _hear("open", (os.fspath(filename), "r"))
        return plain(filename, *args, **named)

    homes = [library, *filter(None, [sys.modules.get("safetensors.torch")])]
    for home in homes:
        home.safe_open = safe_open
    try:
        yield
    finally:
        for home in homes:
            home.safe_open = plain


@contextlib.contextmanager
def _programs_seen() -> Iterator[None]:
    """Within it, TorchScript that is opened is heard of, for torch opens its file where no audit event tells."""
    library: Any = getattr(sys.modules.get("torch"), "jit", None)
    if library is None:
        yield
        return
    plain = library.load

    def load(file: Any, *args: Any, **named: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            _hear("open", (os.fspath(file), "r"))
        return plain(file, *args, **named)

    library.load = load
    try:
        yield
    finally:
        library.load = plain


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _listeners:
        return
    path, mode = arguments[0], arguments[1]
    if isinstance(path, str | bytes) and not (isinstance(mode, str) and set(mode) & set("wax+")):
        for opened in _listeners:
            opened.append(os.path.abspath(os.fsdecode(path)))


def _is_systems(path: str) -> bool:
    return path.startswith(_SYSTEM) and not path.startswith("/dev/shm/")  # noqa: S108 - users keep files in memory there


def _holds_weights(path: Path) -> bool:
    if path.suffix.lower() in _NOT_WEIGHTS or _is_systems(str(path)) or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return b"\0" in head or head.startswith((b"\x80", b"PK"))
