"""The repository's own modules and files: found from whichever folder its user would have stood in."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...module_alias import Alias
from ...stub_modules import wraps_its_name
from .. import other_python
from ..imports import loaded_under
from ..places import expects_absence, failed_at, frames, is_users, other_folder
from ..stage import Stage

EVERYWHERE = re.compile(
    r"cannot import name|mutable default|'Namespace' object has no attribute|'module' object is not callable"
)
"""Errors that whatever stood in cannot have led to."""
_OF_DATA = re.compile(
    r"^(data(sets?)?|images?|imgs?|photos?|train(ing)?|test(ing)?|val(id(ation)?)?|inputs?|raw)([_-]?(data|images?|imgs|set|\d+))*$|data(set)?s?$",
    re.I,
)
"""Folders that are made where they are not here, and in which no code lies."""
_COMPILED = (".pyx", ".c", ".cc", ".cpp", ".cu")
"""Endings of what an extension is built of."""
_SHADOWING = "shadowing"
"""Learned: installed packages that have the name of one of the repository's, which was meant."""
_DEEPEST = 4
"""Folders below the root in which a module is looked for."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    for name in loaded_under(stage.learned.get(_SHADOWING, ())):
        del sys.modules[name]
    finder = _Finder(stage)
    sys.meta_path.append(finder)
    stage.wrap(os, "chdir", _at_home(stage))
    if "module" in stage.learned:
        stage.note("packages", f"run as python -m {stage.as_module()}")
    if "directory" in stage.learned:
        stage.note("packages", f"run in the folder {os.path.relpath(stage.directory(), stage.root)}")
    yield
    sys.meta_path.remove(finder)


def _at_home(stage: Stage) -> Callable[..., None]:
    """The script goes where its author's copy of the repository lay: it is here, and so is what the path names in it."""

    def change(original: Callable[..., None], path: Any) -> None:
        try:
            original(path)
        except FileNotFoundError:
            parts = re.split(r"[/\\]+", str(path)) if isinstance(path, str | os.PathLike) else []
            names = [part for part in parts if part not in ("", ".", "..")]
            frame = next(frames(), None)
            copes = frame is None or not is_users(frame.f_code.co_filename, stage.root) or expects_absence(frame)
            if not names or copes or _OF_DATA.search(names[-1]):
                raise
            within = (os.path.join(stage.root, *names[first:]) for first in range(len(names)))
            folder = next(filter(os.path.isdir, within), stage.root)
            stage.note(
                "packages", f"{path} is not here; the script went on in the folder {os.path.relpath(folder, stage.root)}"
            )
            original(folder)

    return change


def lesson(stage: Stage, error: BaseException) -> bool:
    """Another module of the same name was found first; a file of a package ran as a script; or the folder was another."""
    text = str(error)
    if isinstance(error, ImportError) and re.search("relative import with no known parent|beyond top-level package", text):
        module, above = _as_module(stage, error)
        return all(map(str.isidentifier, module.split("."))) and stage.learn("module", [module, above])
    if isinstance(error, ImportError):
        return _other_of_that_name(stage, error)
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        folder = None if "directory" in stage.learned else other_folder(stage.root, stage.request.script, error.filename)
        return folder is not None and stage.learn("directory", folder)
    return False


def remedy(stage: Stage, error: BaseException) -> str | None:
    """An error of the repository's own code, to which nothing that stood in can have led; or of another Python's."""
    if (other := other_python.said_of(error, stage.root)) is not None:
        return other
    passed = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    where = failed_at(error, stage.root)
    if where is None or isinstance(error, SystemExit | OSError):
        return None
    stood_in = any(item.edge not in ("device", "packages", "processes", "screens", "time") for item in stage.standins)
    untouched = is_users(passed[-1].f_code.co_filename, stage.root) and not stood_in
    own = re.match(r"module '([\w.]+)' has no attribute", str(error))
    own_module = own is not None and is_users(file_of(sys.modules.get(own[1], sys)), stage.root)
    sought = _looked_for(stage, error)
    missing = sought if isinstance(error, ModuleNotFoundError) else None
    if not (untouched or own_module or missing or isinstance(error, NameError | SyntaxError) or EVERYWHERE.search(str(error))):
        return None
    mend = (sought and _left_out(stage, sought)) or (f"{missing} is not in this copy: add it" if missing else "mend it")
    return _own_fault(where, _unbuilt(stage, error) or mend)


def missing_module(stage: Stage, where: str, module: str) -> str:
    """What to do about a script of the repository that needs a module of its own package which the copy does not hold."""
    path = module.replace(".", "/")
    return _own_fault(where, _left_out(stage, path) or f"{path} is not in this copy: add it")


def _own_fault(where: str, mend: str) -> str:
    return (
        f"the repository's own code fails at {where}, and would without Headrace: {mend}, or take another script with --entry"
    )


def _looked_for(stage: Stage, error: BaseException) -> str | None:
    """The module that an import looked for in the repository's own package, as a path without an ending."""
    above, _, name = (error.name or "" if isinstance(error, ImportError) else "").rpartition(".")
    package = sys.modules.get(above)
    if package is None or not is_users(file_of(package), stage.root):
        return None
    return os.path.relpath(os.path.join(os.path.dirname(file_of(package)), name), stage.root)


def _unbuilt(stage: Stage, error: BaseException) -> str | None:
    """What to do about an extension of a package of the repository's of which only the source is here."""
    found = re.match(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'", str(error))
    package = sys.modules.get(found[2]) if found is not None else None
    if found is None or package is None or not is_users(file_of(package), stage.root):
        return None
    beside = Path(file_of(package)).parent / found[1]
    source = next(filter(os.path.isfile, (f"{beside}{ending}" for ending in _COMPILED)), None)
    return f"{os.path.relpath(source, stage.root)} is not compiled: build it" if source is not None else None


def _left_out(stage: Stage, missing: str) -> str | None:
    """What to do about a module of the repository's own package that is not here because git was told to leave it out."""
    ignored = Path(stage.root, ".gitignore")
    lines = ignored.read_text(encoding="utf-8", errors="replace").splitlines() if ignored.is_file() else []
    for number, line in enumerate(lines, start=1):
        pattern = line.strip().strip("/").removeprefix("**/")
        name = missing if "/" in pattern else os.path.basename(missing)
        if (
            pattern
            and not line.startswith(("#", "!"))
            and any(fnmatch.fnmatchcase(f"{name}{end}", pattern) for end in ("", ".py"))
        ):
            kept_out = f"and .gitignore:{number} ({line.strip()}) keeps it out of git"
            return f"{missing} is not in this copy, {kept_out}; where you have it, git add -f {missing}"
    return None


def _other_of_that_name(stage: Stage, error: ImportError) -> bool:
    """`utils` was the script's own file, and the package of that name was meant; or the other way round; or `datasets` is
    installed, too, and has no such module."""
    found = re.match(r"No module named '(?P<of>\w+)(?P<below>[.\w]*)'|cannot import name .* from '(\w+)[.\w]*'", str(error))
    if found is None:
        return False
    name = found["of"] or found[3]
    loaded = sys.modules.get(name)
    known = stage.learned.get("import_first", [])
    if loaded is None:
        return False
    own = os.path.dirname(file_of(loaded))
    own = os.path.dirname(own) if hasattr(loaded, "__path__") else own
    others = [folder for folder in folders_of(stage.root, name) if folder not in (*known, own)]
    if not is_users(file_of(loaded), stage.root):
        sought = f"{name}{found['below'] or ''}".replace(".", os.sep) if found["of"] else ""
        others = [folder for folder in others if sought and os.path.exists(os.path.join(folder, f"{sought}.py"))]
        if others:
            stage.add(_SHADOWING, name)
    return bool(others) and stage.learn("import_first", [*known, others[0]])


def file_of(module: types.ModuleType) -> str:
    """The file of a module; of a package without one, the one that it would have."""
    file = getattr(module, "__file__", None)
    return str(file) if file else os.path.join(next(iter(getattr(module, "__path__", ())), ""), "__init__.py")


def _as_module(stage: Stage, error: ImportError) -> list[str]:
    """The name by which `python -m` takes the script, and the folder above its packages, in which that is done."""
    path = Path(stage.root, stage.request.script)
    above = path.parent
    while above != Path(stage.root) and ("beyond" in str(error) or above == path.parent or (above / "__init__.py").exists()):
        above = above.parent
    return [".".join([*path.parent.relative_to(above).parts, path.stem]), str(above)]


def folders_of(root: str, name: str) -> list[str]:
    """The folders of a repository that hold a module or a package of that name, the nearest to the root first."""
    found = []
    for folder, below, files in os.walk(root):
        depth = folder[len(root) :].count(os.sep)
        below[:] = sorted(item for item in below if not item.startswith(".")) if depth < _DEEPEST else []
        package = name in below and any(Path(folder, name).rglob("*.py"))
        module = f"{name}.py" in files and not wraps_its_name(Path(folder, f"{name}.py"))
        if (package or module) and is_users(os.path.join(folder, f"{name}.py"), root):
            found.append((depth, folder))
    return [folder for _, folder in sorted(found)]


class _Finder(importlib.abc.MetaPathFinder):
    """Asked last: a module that is nowhere on the import path and lies in the repository, below the script's folder first."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or "." in fullname:
            return None
        package = self._package_that_imports()
        own = Path(self.stage.root, self.stage.request.script).parent
        for folder in sorted(folders_of(self.stage.root, fullname), key=lambda found: not Path(found).is_relative_to(own)):
            if package is not None and folder in (os.path.realpath(item) for item in sys.modules[package].__path__):
                self.stage.note("packages", f"modules of {package} were found by their own package, as Python 2 did")
                return importlib.machinery.ModuleSpec(fullname, Alias(f"{package}.{fullname}"))
            spec = importlib.machinery.PathFinder.find_spec(fullname, [folder])
            if spec is not None:
                where = os.path.relpath(folder, self.stage.root)
                self.stage.note("packages", f"{'the repository' if where == '.' else where} was put on the import path")
                sys.path.append(folder)
                return spec
        return None

    def _package_that_imports(self) -> str | None:
        frame = next((frame for frame in frames() if not frame.f_code.co_filename.startswith("<frozen importlib")), None)
        package = frame.f_globals.get("__package__") if frame is not None else None
        return package if package and hasattr(sys.modules.get(package), "__path__") else None
