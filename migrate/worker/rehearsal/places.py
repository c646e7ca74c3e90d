"""Which line of the user's is running: found on the stack, below the root of the repository."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WORKER = os.path.dirname(os.path.dirname(_OWN)) + os.sep
_BETWEEN = (
    os.path.join(_WORKER, "live", "calls.py"),
    os.path.join(_WORKER, "live", "transform.py"),
    os.path.join(os.path.dirname(os.path.dirname(_WORKER)), "proving", "trace_journal.py"),
)
"""What opens images and checkpoints for the script where it is followed what the script does to them."""
_STAGE = os.path.join(_OWN, "stage.py")
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_TICK = 0.02  # seconds: the clock of file systems is coarser than time.time()

HEADRACE = tuple(f"{Path(file).parents[3]}{os.sep}" for file in (os.path.abspath(__file__), os.path.realpath(__file__)))
"""The folder of this package, as it is imported and where it really is: an environment may hold a link to it."""


def is_users(path: str, root: str) -> bool:
    """Whether a source file is the repository's own."""
    return path.startswith(root.rstrip(os.sep) + os.sep) and not is_installed(path[len(root) :])


def made_since(path: Any, began: float) -> bool:
    """Whether a folder was made after a time: by another process, which runs the same code meanwhile, where not by this one."""
    try:
        return os.path.isdir(path) and os.stat(path).st_ctime >= began - _TICK
    except OSError:
        return False


def is_installed(path: str) -> bool:
    """Whether a source file lies in an environment."""
    return any(part in os.sep + path for part in _INSTALLED)


def is_headraces(path: str) -> bool:
    """Whether a source file is one of this package; a checkout may hold its environment."""
    return any(path.startswith(folder) and not is_installed(path[len(folder) :]) for folder in HEADRACE)


def frames() -> Iterator[types.FrameType]:
    """The frames of this thread from the innermost outwards, without those of the rehearsal itself."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN) and frame.f_code.co_filename not in _BETWEEN:
            yield frame
        frame = frame.f_back


def of_kind(names: Mapping[str, Any], *kinds: type[T]) -> Iterator[tuple[str, T]]:
    """Of variables by name those whose values are of one of the classes. `isinstance` would ask a lazy value what it is, which
    wakes it: Django's settings then import the project's."""
    return ((name, value) for name, value in list(names.items()) if issubclass(type(value), kinds))


def shape_of(value: object) -> Any:
    """The shape of a tensor or an array; None of anything else, which is not asked."""
    return getattr(value, "shape", None) if hasattr(type(value), "shape") else None


def imported_by_library() -> bool:
    """Whether the import that is running is one of an installed library's, not of the user's code."""
    importing = (frame for frame in frames() if not frame.f_code.co_filename.startswith(("<frozen importlib", _WORKER)))
    frame = next((frame for frame in importing if "importlib" not in frame.f_code.co_filename), None)
    return frame is not None and is_installed(frame.f_code.co_filename)


def asked_by_us(between: str) -> bool:
    """Whether a function of Python's that is running was called by Headrace itself, not by the script; `between` is the file
    with what stands in for such functions."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        passes = name in (between, _STAGE) or (name.startswith(("<frozen", _STANDARD)) and not is_installed(name))
        if not passes:
            return name.startswith(_WORKER)
        frame = frame.f_back
    return False


def user_frame(root: str) -> types.FrameType | None:
    """The innermost frame of the user's."""
    return next((frame for frame in frames() if is_users(frame.f_code.co_filename, root)), None)


def user_place(root: str) -> str | None:
    """`file:line` of the innermost frame of the user's, relative to the repository."""
    frame = user_frame(root)
    return None if frame is None else f"{os.path.relpath(frame.f_code.co_filename, root)}:{frame.f_lineno}"


def called_by_user(root: str) -> bool:
    """Whether the nearest caller outside of the rehearsal is the user's own code."""
    frame = next(frames(), None)
    return frame is not None and is_users(frame.f_code.co_filename, root)


def failed_at(error: BaseException, root: str) -> str | None:
    """`file:line` of the innermost frame of the user's in a traceback."""
    places = [
        f"{os.path.relpath(frame.filename, root)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users(frame.filename, root)
    ]
    return places[-1] if places else None


def other_folder(root: str, script: str, path: str) -> str | None:
    """The folder of the repository in which a relative path exists that does not where the script runs; None for no such."""
    if os.path.isabs(path) or not path.strip("./") or os.path.lexists(path):
        return None
    beside = os.path.dirname(os.path.join(root, script))
    for folder in (root, beside, os.path.dirname(beside)):
        if os.path.join(folder, "").startswith(os.path.join(root, "")) and os.path.lexists(os.path.join(folder, path)):
            return folder
    return None


def kept_at(root: str, path: str, script: str, made: Callable[[str], bool]) -> str | None:
    """The file of the repository that a missing path means where its author has it, under another name or elsewhere: one that
    the path ends in, with the folder that holds it, or without where other paths in the text of `script` tell that folder.

    That folder itself is not here, or was `made`.
    """
    inside = os.path.relpath(path, root) if os.path.isabs(path) and path.startswith(os.path.join(root, "")) else path
    names = [name for name in re.split(r"[/\\]+", inside) if name not in ("", ".", "..")]
    most = len(names) if os.path.isabs(inside) or inside[1:2] == ":" else 2  # of a path beside the script, the first folder
    for first in range(1, min(most, len(names))):
        above, found = names[first - 1], os.path.join(root, *names[first:])
        folder = os.path.join(root, above)
        if not os.path.isfile(found) or (os.path.lexists(folder) and not made(folder)):
            continue
        if len(names) - first > 1 or _is_own(root, above, script):
            return found
    return None


def _is_own(root: str, name: str, script: str) -> bool:
    """Whether a folder's name is the repository's for its author: other paths in the script lead by it to what is here."""
    others = re.findall(rf"(?<![\w.-]){re.escape(name)}[/\\]+([\w.-]+(?:[/\\]+[\w.-]+)+)", script)
    return any(os.path.isfile(os.path.join(root, *re.split(r"[/\\]+", other))) for other in others)


def expects_absence(frame: types.FrameType) -> bool:
    """Whether the line that is running stands in a `try` whose handler takes a missing file: the script copes without."""
    return any(first <= frame.f_lineno <= last for first, last in _coping(frame.f_code.co_filename))


@functools.lru_cache(maxsize=64)
def _coping(path: str) -> tuple[tuple[int, int], ...]:
    """The first and the last lines of such a file's `try` bodies; it is asked of them at every file that is missing."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ()
    found = []
    tried_again = {part for node in ast.walk(tree) if isinstance(node, ast.While) for part in node.body if _tries_again(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node not in tried_again:
            caught = " ".join(ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers)
            reraises = all(any(isinstance(part, ast.Raise) for part in ast.walk(handler)) for handler in node.handlers)
            if any(word in caught for word in ("FileNotFound", "OSError", "IOError", "Exception")) and not reraises:
                found.append((node.body[0].lineno, node.body[-1].end_lineno or 0))
    return tuple(found)


def _tries_again(statement: ast.stmt) -> bool:
    """Whether a statement of a `while` loop is a `try` that its handlers have run once more: it is left only by success."""
    leaves = (ast.Raise, ast.Return, ast.Break)
    return isinstance(statement, ast.Try) and not any(
        isinstance(part, leaves) for handler in statement.handlers for part in ast.walk(handler)
    )
