"""What `dotenv` reads, where that library is not installed: a script's settings in a file called .env."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Sequence
from typing import Any

from ..places import user_frame
from ..stage import Stage

_NAME = "dotenv"
_LINE = re.compile(r"""^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^#\n]*?)\s*(?:#.*)?$""")


def stand_in(stage: Stage) -> None:
    """Have `import dotenv` find what reads such files, as a last resort."""
    finder = _Finder(stage)
    sys.meta_path.append(finder)
    stage.on_exit(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    stage.on_exit(lambda: _forget(finder))


def values_of(path: str, encoding: str | None = "utf-8") -> dict[str, str]:
    """The variables that a file sets, without quotes and what stands behind them; none where it cannot be read.

    Its lines are those of python-dotenv's documentation; variables in values are left as they are.
    """
    try:
        with open(path, encoding=encoding or "utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    found = (_LINE.match(line) for line in lines)
    return {item[1]: item[2][1:-1] if item[2][:1] in ('"', "'") else item[2] for item in found if item is not None}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.made: types.ModuleType | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == _NAME else None

    def exec_module(self, module: types.ModuleType) -> None:
        self.made = module
        self._stage.note("libraries", "python-dotenv is not installed; files of settings are read as it reads them")
        vars(module).update(find_dotenv=self._find, dotenv_values=self._values, load_dotenv=self._load)

    def _find(self, filename: str = ".env", raise_error_if_not_found: bool = False, usecwd: bool = False) -> str:
        frame = user_frame(self._stage.root)
        folder = os.path.dirname(frame.f_code.co_filename) if frame is not None and not usecwd else os.getcwd()
        while True:
            path = os.path.join(folder, filename)
            if os.path.isfile(path):
                return path
            if os.path.dirname(folder) == folder:
                break
            folder = os.path.dirname(folder)
        if raise_error_if_not_found:
            raise OSError("File not found")
        return ""

    def _values(self, dotenv_path: Any = None, *_: Any, encoding: str | None = "utf-8", **__: Any) -> dict[str, str]:
        return values_of(os.fspath(dotenv_path or self._find()), encoding)

    def _load(
        self, dotenv_path: Any = None, stream: Any = None, verbose: bool = False, override: bool = False, **named: Any
    ) -> bool:
        values = self._values(dotenv_path, **named)
        for name, value in values.items():
            if override or name not in os.environ:
                os.environ[name] = value
                self._stage.on_exit(lambda name=name: os.environ.pop(name, None))  # type: ignore[misc]
        return bool(values)


def _forget(finder: _Finder) -> None:
    if finder.made is not None and sys.modules.get(_NAME) is finder.made:
        del sys.modules[_NAME]
