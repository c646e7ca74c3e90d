"""Do something right after a library was imported, whenever that is; and compile the user's sources through one function."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .places import is_users

Action = Callable[[types.ModuleType], None]
Compile = Callable[[bytes, str], types.CodeType]


def loaded_under(names: Iterable[str]) -> list[str]:
    """The modules that are loaded by any of these names, and those below them.

    Mostly there are none, and then the others are not gone through: that copies the page of each one's name in a fork.
    """
    loaded = {name for name in names if name in sys.modules}
    return [name for name in list(sys.modules) if name.partition(".")[0] in loaded] if loaded else []


class Imports:
    """The actions that wait for a module to be imported; those of a module that is there already are done at once."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Action]] = {}

    def when_imported(self, name: str, action: Action) -> None:
        if name in sys.modules and not getattr(getattr(sys.modules[name], "__spec__", None), "_initializing", False):
            action(sys.modules[name])
        else:
            self.waiting.setdefault(name, []).append(action)

    def done(self, module: types.ModuleType) -> None:
        for action in self.waiting.pop(module.__name__, ()):
            action(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds as the finders after it do, and wraps the loaders of the user's modules and of those that somebody waits for."""

    def __init__(self, imports: Imports, root: str, compile_source: Compile) -> None:
        self._imports = imports
        self._root = root
        self._compile = compile_source
        self._busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._busy:
            return None
        self._busy.add(fullname)
        try:
            spec = _found(self, fullname, path, target, self._root)
        finally:
            self._busy.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        if type(spec.loader) is importlib.machinery.SourceFileLoader and is_users(spec.origin or "", self._root):
            spec.loader = UserLoader(spec.loader.name, spec.loader.path, self._compile)
        if fullname in self._imports.waiting:
            spec.loader = _Announcing(spec.loader, self._imports)  # type: ignore[assignment]
        return spec


def _found(
    own: Finder, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None, root: str
) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        find = None if finder is own else getattr(finder, "find_spec", None)
        spec = find(fullname, path, target) if find is not None else None
        if spec is not None and not _is_records(spec, root):
            return spec  # type: ignore[no-any-return]
    return None


def _is_records(spec: importlib.machinery.ModuleSpec, root: str) -> bool:
    """Whether it is a folder of the user's in which a library keeps its records (`wandb/`), which Python takes for the library
    where that is not installed."""
    places = list(spec.submodule_search_locations or ()) if spec.loader is None else []
    own = [place for place in places if is_users(os.path.realpath(place), root)]
    return bool(own) and len(own) == len(places) and not any(_modules(place) for place in own)


def _modules(folder: str) -> bool:
    return any(name.endswith((".py", ".so", ".pyc")) for _, _, files in os.walk(folder) for name in files)


class UserLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module of the user's as the rehearsal wants it."""

    def __init__(self, name: str, path: str, compile_source: Compile) -> None:
        super().__init__(name, path)
        self._compile = compile_source

    def get_code(self, fullname: str) -> types.CodeType:
        return self._compile(self.get_data(self.path), self.path)


class _Announcing:
    """A loader that tells when its module has been run; all else is the real loader's."""

    def __init__(self, loader: Any, imports: Imports) -> None:
        self._loader = loader
        self._imports = imports

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        # What the module finds of itself afterwards (`__loader__`, resources) is the real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._imports.done(sys.modules.get(module.__name__, module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


@contextlib.contextmanager
def watched_imports(imports: Imports, root: str, compile_source: Compile) -> Iterator[None]:
    finder = Finder(imports, root, compile_source)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
