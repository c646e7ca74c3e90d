"""What a user can do about a library that is missing, or that is another version than a script was written for."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from .....survey.submodules import missing_paths
from ... import other_python
from ...places import failed_at, is_users, of_kind
from ...silent import Silent
from ...stage import Stage
from ..packages import EVERYWHERE, file_of, missing_module
from .library_names import COMMON, DISTRIBUTIONS, HOSTS, OTHERS, OWNS, RECORDS, SILENT, USED

_KNOWN = SILENT | OWNS | COMMON | DISTRIBUTIONS.keys()


def remedy(stage: Stage, error: BaseException) -> str | None:
    if isinstance(error, Exception) and re.search(rf"\b{Silent.__name__}\b", str(error)):
        return _bring(stage.root, stage.learned.get("used", ()) or _silent(error))
    if (other := other_python.said_of(error, stage.root)) is not None:
        return other
    if isinstance(error, ImportError) and (lost := [item for item in stage.learned.get("left_out", ()) if item in str(error)]):
        return missing_module(stage, failed_at(error, stage.root) or stage.request.script, lost[0])
    part = re.search(rf"{USED}|module '([\w.]+)' has no attribute|cannot import name .* from '([\w.]+)'", str(error))
    lacks = part is not None and part[2] is not None
    name = error.name if isinstance(error, ModuleNotFoundError) and not lacks else part[part.lastindex or 0] if part else None
    library = _named(stage, error) or (name or "").partition(".")[0]
    loaded = sys.modules.get(library)
    if not library:
        return _what_stood_in(stage, error)
    if loaded is not None and is_users(file_of(loaded), stage.root):
        return None
    if part is not None and library not in stage.learned.get("absent", ()):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{version_said(stage.root, library)} has no {name}"
    return _bring(stage.root, [library])


def _silent(error: BaseException) -> list[str]:
    """The libraries that only watch and of which a script had something all the same: a model out of a tracker's store."""
    held = [item for frame, _ in traceback.walk_tb(error.__traceback__) for _, item in of_kind(frame.f_locals, Silent)]
    return list(dict.fromkeys(item.__dict__["_name"].partition(".")[0] for item in held))


def _bring(root: str, libraries: Sequence[str]) -> str:
    """What is to be done for libraries that are missing: they are installed, or are git submodules that are not checked out."""
    if other := sorted(OTHERS.intersection(libraries)):
        return _of_other(other[0])
    if libraries and HOSTS.issuperset(libraries):
        return f"{' and '.join(libraries)} is there only where the service runs notebooks, and cannot be installed"
    for library in libraries:
        if (own := _spelled_otherwise(root, library)) is not None:
            return f"{library} is not here, and {own} is: import it as it is spelled, since Python tells capitals apart"
    names = _to_install(root, [name for name in libraries if name not in HOSTS]) or "the libraries that are missing"
    install = f"install {names} into the environment in which headrace runs"
    fetch = "which is not checked out: git submodule update --init --recursive fetches it"
    paths = [path for _, path in missing_paths(Path(root))]
    for library in libraries:
        for path in paths:
            if _plain(library) in map(_plain, path.split("/")):
                return f"{library} is the git submodule {path}, {fetch}"
    return f"{install}, or, where it is of the git submodule {paths[0]}, {fetch}" if paths else install


def _spelled_otherwise(root: str, library: str) -> str | None:
    """The repository's own file that has the name of a module but for capitals: `model.py` of `from Model import net`."""
    files = (path for path in sorted(Path(root).rglob("*.py")) if path.stem != library and path.stem.lower() == library.lower())
    return next((path.relative_to(root).as_posix() for path in files if is_users(str(path), root)), None)


def _named(stage: Stage, error: BaseException) -> str | None:
    """A library that is not installed and that an error names: another one may not take what can only be imported."""
    words = re.split(r"[^\w.-]+", str(error))
    absent = stage.learned.get("absent", ())
    return next((item for item in absent if ("." in item and item in str(error)) or item in words), None)


def _of_other(library: str) -> str:
    return f"the script computes with {library}, and Headrace migrates PyTorch: --entry takes a script whose model is PyTorch's"


def _plain(name: str) -> str:
    """A name as it is imported and as its folder may be called."""
    return re.sub(r"[-_.]", "", name.lower())


def _what_stood_in(stage: Stage, error: BaseException) -> str | None:
    """An error that what a library would have given may explain: a configuration that it reads, say."""
    raised_in = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    told = isinstance(error, Exception) and not isinstance(error, NameError | SyntaxError | ImportError | OSError)
    own = told and any(is_users(path, stage.root) for path in raised_in)  # "no face was found"
    caused = own or isinstance(error, LookupError | TypeError | ValueError | AttributeError | ArithmeticError)
    of_other = not OTHERS.isdisjoint(stage.learned.get("used", ()))
    return idle(stage) if of_other or (caused and not EVERYWHERE.search(str(error))) else None


def idle(stage: Stage) -> str | None:
    """What would help a script that called no model: a library to which it may have handed one, and which stood in."""
    gave = [name for name in stage.learned.get("used", ()) if not RECORDS.search(name)]
    if other := sorted(OTHERS.intersection(gave)):
        return _of_other(other[0])
    return f"what {' and '.join(gave)} would have done stood in: {_bring(stage.root, gave)}" if gave else None


def _to_install(root: str, libraries: Sequence[str]) -> str:
    """Their distributions; of a name that only an import says, a package index may have a stranger's."""
    told = []
    for library in libraries:
        name = distribution(library)
        sure = (
            library.partition(".")[0] in _KNOWN
            or _stated(root, rf"""(?:^[\s-]*|["'])({_spelled(name)})(?![\w-])""") is not None
        )
        told.append(
            name if sure else f"{name} (nothing here says where from, and a package index may have another of that name)"
        )
    return " and ".join(told)


def version_said(root: str, library: str) -> str:
    """Which version of a library is installed, and which one the repository wants."""
    name = distribution(library)
    wanted = _required(root, name)
    if not _has_metadata(name):  # opencv-python-headless has cv2, too
        name = next(iter(importlib.metadata.packages_distributions().get(library, ())), name)
    installed = f"{name} {importlib.metadata.version(name)} is installed"
    return f"{installed}, where the repository asks for {wanted}; the installed one" if wanted else f"{installed}, which"


def _has_metadata(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


def distribution(library: str) -> str:
    """What a library is installed as; a part of it is one's own only where several share a namespace: google.genai."""
    whole = library.partition(".")[0]
    return DISTRIBUTIONS.get(library) or DISTRIBUTIONS.get(whole, whole if whole in _KNOWN else library).replace(".", "-")


def _required(root: str, name: str) -> str | None:
    """What the repository says of the version of a library: `timm==0.3.2`."""
    return _stated(root, rf"""^[\s"'-]*({_spelled(name)}\s*[=<>~!]=?[^"'#;\n]*)""")


def _spelled(name: str) -> str:
    return re.sub(r"[-_]", "[-_]", re.escape(name).replace(r"\-", "-"))


def _stated(root: str, text: str) -> str | None:
    """What a line of the repository's requirements says."""
    line = re.compile(text, re.I | re.M)
    for path in sorted(Path(root).glob("*.t*")) + sorted(Path(root).glob("*.y*ml")) + sorted(Path(root).glob("setup.*")):
        found = line.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
        if found is not None:
            return found[1].strip().rstrip(",")
    return None
