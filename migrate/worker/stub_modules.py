"""Libraries that a user's file imports, that are not installed, and that building the model does not need.

Model files import counters of operations, experiment trackers and plotting at the top, for functions that building a model
never calls. Such a module is replaced by a stub whose every name cannot be used, with the error of the import.
"""

from __future__ import annotations

import builtins
import dis
import importlib.abc
import importlib.machinery
import linecache
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

_STAR = re.compile(r"\bimport\s*\*")
_ERRORS = re.compile(r"(^|\.)(errors?|exceptions?)\.[A-Z]\w*$|\w(Error|Exception)$")
"""Names of what is caught, or told a server with what then answers."""


def install_stub(error: ModuleNotFoundError, root: str | Path, unless: Callable[[], bool] | None = None) -> bool:
    """Let imports of the library whose absence is `error` pass from now on, `unless` says no; false where it is not a library.

    A missing file of the repository itself, a missing part of an installed library, and an error from inside a stub are
    no such absence.
    """
    name = (error.name or "").partition(".")[0]
    if (
        not name
        or isinstance(error, _UsedError)
        or name != error.name
        or name in sys.modules
        or name in sys.builtin_module_names
    ):
        return False
    if any(not wraps_its_name(path) for path in Path(root).rglob(f"{name}.py")) or (Path(root) / name).exists():
        return False
    if any(isinstance(finder, AbsentLibrary) and finder.name == name for finder in sys.meta_path):
        return False
    sys.meta_path.append(AbsentLibrary(name, unless))
    return True


def wraps_its_name(path: Path) -> bool:
    """Whether a file imports what has its own name: a library, for which it is not meant to be taken itself. False where it
    cannot be read, as a link to what is not here."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^[ \t]*(import|from)[ \t]+{re.escape(path.stem)}\b", text, re.MULTILINE) is not None


class _UsedError(ModuleNotFoundError):
    """A name of an absent library was used; it is shown by the name under which people know such errors."""


_UsedError.__name__ = _UsedError.__qualname__ = ModuleNotFoundError.__name__


class AbsentName:
    """Whatever was imported from an absent library."""

    def __init__(self, full: str) -> None:
        self.__dict__["full"] = full

    def _reject(self, *_args: Any, **_named: Any) -> NoReturn:
        library = self.__dict__["full"].partition(".")[0]
        loaded = sys.modules.get(library)
        if loaded is not None and not isinstance(loaded, _Module):
            raise _UsedError(f"{self.__dict__['full']} is not in the installed {library}", name=library)
        raise _UsedError(f"No module named {library!r}, of which {self.__dict__['full']} is used", name=library)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentName(f"{self.__dict__['full']}.{name}")

    __call__ = __getitem__ = __iter__ = __enter__ = __mro_entries__ = __setattr__ = __bool__ = __len__ = _reject


_names_of: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__


class _Names(dict[str, Any]):
    """What a stub holds, and whatever else is asked of it by name: `library.__dict__[args.arch](pretrained=True)`."""

    def __missing__(self, name: str) -> AbsentName:
        return AbsentName(f"{self['__name__']}.{name}")


class _Module(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__version__ = "0"  # older than any that an installed library would use

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return _Names(_names_of(self))

    def __getattr__(self, name: str) -> Any:
        if name == "__all__" and (needed := needed_of_all()) is not None:
            return needed
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        return exception(full) or AbsentName(full)


def exception(full: str) -> type[Exception] | None:
    """A class of exceptions that nothing raises, where the name of a library that is not here tells one."""
    return type(full.rpartition(".")[2], (Exception,), {}) if _ERRORS.search(full) else None


def needed_of_all() -> list[str] | None:
    """The names that a file which imports all of a stub, `from library import *`, uses and has from nowhere yet; None where it
    is not doing so."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None or not _STAR.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
        return None
    read, bound = set[str](), set(frame.f_globals) | set(dir(builtins))
    parts = [frame.f_code]
    for code in parts:
        parts += [item for item in code.co_consts if isinstance(item, types.CodeType)]
        for step in dis.get_instructions(code):
            kind = step.opname
            if kind in ("LOAD_NAME", "LOAD_GLOBAL"):
                read.add(step.argval)
            elif kind == "STORE_GLOBAL" or (kind == "STORE_NAME" and code is frame.f_code):
                bound.add(step.argval)
    return sorted(name for name in read - bound if not name.startswith("_"))


class AbsentLibrary(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for one library and its parts, after all other finders, `unless` says at the import that it is not to."""

    def __init__(self, name: str, unless: Callable[[], bool] | None = None) -> None:
        self.name = name
        self.unless = unless

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = fullname == self.name or fullname.startswith(f"{self.name}.")
        own = own and not (self.unless is not None and self.unless())
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if own else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass
