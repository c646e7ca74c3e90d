"""Libraries that are not installed: experiment trackers and counters do nothing, apex is torch's own, others import only."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....stub_modules import AbsentLibrary, AbsentName, install_stub
from ...places import imported_by_library, is_installed, is_users
from ...settings.environment import holding
from ...silent import Silent, kept_in_files, run_at_once
from ...stage import Stage
from . import handled_imports, image_extension, old_pillow, open_mmlab, own_distribution
from .finders import TENSORBOARD, Finder, FirstFinder, OtherName, StandInModule
from .library_names import ENVIRONMENT, OWNS, RECORDS, SILENT, USED
from .remedies import distribution, idle, remedy

__all__ = ["ENVIRONMENT", "idle", "lesson", "remedy", "stand_in"]


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    finders = list(sys.meta_path)
    last = next(reversed(sys.modules))  # to go through all of them copies the page of each name in a fork
    finder = Finder(stage)
    if importlib.util.find_spec("tensorboard") is None:
        sys.meta_path.insert(0, FirstFinder(finder, [TENSORBOARD]))
    sys.meta_path.append(finder)
    sys.meta_path.insert(0, OtherName(stage))
    for name in stage.learned.get("absent", ()):
        if name in stage.learned.get("used", ()):
            continue
        # An installed library that asks for it does without it: pandas would take a stub of pytz for a version that it lacks.
        unless = None if name in stage.learned.get("within", ()) else imported_by_library
        if "." in name:  # a part of a namespace that several distributions share: google.genai
            sys.meta_path.append(AbsentLibrary(name, unless))
            stage.note("libraries", f"{distribution(name)} is not installed; it can be imported and not used")
        elif install_stub(ModuleNotFoundError(name, name=name), stage.root, unless):
            stage.note("libraries", f"{name} is not installed; it can be imported and not used")
    for part in stage.learned.get("gone", ()):
        if part not in stage.learned.get("used", ()):
            sys.meta_path.append(AbsentLibrary(part))
            _said_gone(stage, part)
    for part in stage.learned.get("refused", ()):
        used = part in stage.learned.get("used", ())
        sys.meta_path.insert(0, FirstFinder(finder, [part]) if used else AbsentLibrary(part))
        _said_gone(stage, part)
    for part in stage.learned.get("left_out", ()):
        sys.meta_path.append(AbsentLibrary(part))
        stage.note("packages", f"{part} is imported and not in this copy; it can be imported and not used")
    for part in stage.learned.get("gone_names", ()):
        module, _, name = part.rpartition(".")
        made = Silent(part) if part in stage.learned.get("used", ()) else AbsentName(part)
        stage.when_imported(module, lambda found, name=name, made=made: stage.patch(found, name, made))  # type: ignore[misc]
        _said_gone(stage, part)
    image_extension.stand_in(stage)
    old_pillow.stand_in(stage)
    open_mmlab.stand_in(stage)
    own_distribution.stand_in(stage)
    for name in ("pytorch_lightning", "lightning.pytorch"):
        stage.when_imported(name, lambda library: _old_lightning(stage, library))
    kept_in_files(stage)
    run_at_once(stage)
    with holding(ENVIRONMENT):
        yield
    sys.meta_path[:] = finders
    for name in list(itertools.takewhile(lambda name: name != last, reversed(sys.modules))):
        if isinstance(sys.modules[name], StandInModule | Silent):
            del sys.modules[name]


def lesson(stage: Stage, error: BaseException) -> bool:
    """A library that is missing may be one that this run does not need, or one whose results the model does not need."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    known = stage.learned.get("absent", [])
    part = re.search(USED, str(error))
    if name is not None and part is not None:
        used = stage.learned.get("used", [])
        full = f"{part[part.lastindex or 0]}."
        gone = [item for item in _gone_parts(stage) if full.startswith(f"{item}.") and _only_records(item)]
        name = next((item for item in known if "." in item and full.startswith(f"{item}.")), name)
        silent = [name] if name in known and name not in OWNS else gone
        return any(item not in used for item in silent) and stage.learn("used", [*used, *silent])
    shared = _of_namespace(error) or handled_imports.missed(stage, error)
    if shared is not None:
        return shared not in known and stage.learn("absent", [*known, shared])
    if isinstance(error, ImportError | AttributeError) and (name is None or "." in name):
        return _gone(stage, error)
    if name is None or name in known or part is not None or importlib.util.find_spec(name) is not None:
        return False
    passed = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(is_installed(path) for path in passed[-1:]):
        stage.learn("within", [*stage.learned.get("within", []), name])
    return stage.learn(
        "absent", [*known, name, *(other for other in _also_absent(stage, error) if other not in (*known, name))]
    )


def _only_records(part: str) -> bool:
    """Whether a part of a library gives nothing back: it is called like one that keeps records, or of a library that does."""
    return RECORDS.search(part) is not None or part.partition(".")[0] in SILENT


def _of_namespace(error: BaseException) -> str | None:
    """What an import lacks of a namespace that several distributions share, each with a part of its own; None for others."""
    found = re.match(r"cannot import name '(\w+)' from '([\w.]+)' \(unknown location\)", str(error))
    full = f"{found[2]}.{found[1]}" if found else getattr(error, "name", None) if "No module named" in str(error) else None
    above, _, _ = (full or "").rpartition(".")
    shared = sys.modules.get(above)
    folders = list(getattr(shared, "__path__", ())) if shared is not None and getattr(shared, "__file__", None) is None else []
    return full if folders and all(map(is_installed, folders)) else None


def _gone_parts(stage: Stage) -> list[str]:
    return [part for kind in ("gone", "gone_names", "refused") for part in stage.learned.get(kind, ())]


def _also_absent(stage: Stage, error: BaseException) -> list[str]:
    """What else the file that could not import is going to miss, so that one attempt tells it all."""
    own = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename, stage.root)]
    names: dict[str, None] = {}
    with contextlib.suppress(SyntaxError):
        tree = ast.parse("".join(linecache.getlines(own[-1].f_code.co_filename)) if own else "")
        for node in tree.body:
            if isinstance(node, ast.Import):
                names |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names[node.module.partition(".")[0]] = None
    return [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is None]


def _gone(stage: Stage, error: BaseException) -> bool:
    """A part of an installed library that other versions of the library have."""
    part = re.match(r"No module named '([\w.]+)'$", str(error))
    name = re.match(r"cannot import name '(?P<name>\w+)' from '(?P<of>[\w.]+)'", str(error)) or re.match(
        r"module '(?P<of>[\w.]+)' has no attribute '(?P<name>\w+)'", str(error)
    )
    full = part[1] if part else f"{name['of']}.{name['name']}" if name else ""
    if not full and (refused := _refused(stage, error)) is not None:
        return stage.add("refused", refused)
    if part is not None and _is_left_out(stage.root, full):
        return stage.add("left_out", full)
    library = sys.modules.get(full.partition(".")[0])
    if library is None or is_users(str(getattr(library, "__file__", None) or stage.root + "/"), stage.root):
        return False
    return stage.add("gone" if part else "gone_names", full)


def _refused(stage: Stage, error: BaseException) -> str | None:
    """The part of an installed library that the script imports and that refuses to be, for what it does not find on this
    machine: matplotlib's windows without Qt."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    at = max((at for at, frame in enumerate(frames) if is_users(frame.f_code.co_filename, stage.root)), default=-1)
    below = [frame for frame in frames[at + 1 :] if is_installed(frame.f_code.co_filename)]
    importing = all(frame.f_code.co_name == "<module>" for frame in (*below[:1], *frames[-1:]))
    name = str(below[0].f_globals.get("__name__", "")) if at >= 0 and below and importing else ""
    return name if type(error) is ImportError and "." in name else None


def _is_left_out(root: str, module: str) -> bool:
    """Whether a module is part of a package of the user's, and no file of the repository has its name: git ignores it, say."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    own = bool(folders) and all(is_users(os.path.join(folder, "__init__.py"), root) for folder in folders)
    last = module.rpartition(".")[2]
    return own and not any(next(Path(root).rglob(name), None) for name in (f"{last}.py", last))


def _said_gone(stage: Stage, part: str) -> None:
    used = part in stage.learned.get("used", ())
    does = "what the script takes from it does nothing here" if used else "it can be imported and not used"
    stage.note("libraries", f"{part} is not in the installed {part.partition('.')[0]}; {does}")


def _old_lightning(stage: Stage, library: Any) -> None:
    """`self.hparams = hparams`, as modules for Lightning were written when it had nothing else for that."""

    def assign(own: Any, value: Any) -> None:
        stage.note("libraries", "self.hparams was assigned, as older versions of Lightning allowed")
        own._set_hparams(value)

    for kind in (library.LightningModule, library.LightningDataModule):
        kept = kind.hparams
        if kept.fset is None:
            stage.patch(kind, "hparams", property(kept.fget, assign))
