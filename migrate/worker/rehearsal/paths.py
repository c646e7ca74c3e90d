"""Paths that are not here: made when they are opened or listed, in the repository, or redirected where they lie elsewhere."""

from __future__ import annotations

import builtins
import errno
import glob
import io
import linecache
import os
import re
import shutil
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .forms.bare_folders import is_bare, waits_for_data
from .forms.begun_names import lacking
from .forms.examples import example_of
from .making import IMAGES, Maker, ending_of
from .places import (
    HEADRACE,
    asked_by_us,
    expects_absence,
    frames,
    is_headraces,
    is_installed,
    is_users,
    kept_at,
    made_since,
    other_folder,
    user_frame,
    user_place,
)
from .settings import configurations
from .stage import Stage

_LIBRARIES = tuple(
    folder + os.sep
    for folder in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {sys.prefix, sys.base_prefix}
)
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/run/", "/lib/", "/lib32/", "/lib64/", "/libx32/")
_USERS = ("/usr/src/", "/run/media/", "/dev/shm/")  # noqa: S108
"""Folders among the system's that hold what users put there: containers' applications, disks, files in memory."""
_PROBES = ("genericpath", "posixpath", "pathlib")
"""Modules and packages of Python by which people ask whether a path is there: pathlib is a package since 3.13."""
_MOST_WRITTEN = 1_000
"""So many files that a script writes are not left to its next attempt."""
_LINES_TO_GIVE_UP = 3  # from `if not os.path.exists(root):` to the error that is raised
_NAMED = re.compile(rf"image_\d{{4}}(\.jpg)?({'|'.join(map(re.escape, IMAGES))})")
_OF_FILES = ("chmod", "utime", "listxattr", "getxattr", "setxattr")
"""What `shutil.copy` and `copy2` ask of a file beside its contents."""


class Paths:
    """Answers for missing files and folders; what is there is never touched."""

    def __init__(self, stage: Stage, maker: Maker) -> None:
        self.stage = stage
        self.maker = maker
        self._written, self._ours = 0, os.path.abspath(stage.made) + os.sep  # before the script may change its folder
        self.probed: dict[str, str] = {}
        """Missing paths that the user's code asked for with `exists` and the like, and where."""
        self.as_file: set[str] = set()
        """Those without an ending that it took for a file's: `os.path.isfile("models/best")`."""
        self._missed: dict[types.CodeType, tuple[int, str]] = {}
        self.bare: dict[str, str] = {}
        """Folders that the user's code listed, and where, in which only data is missing: git keeps them for it."""
        self._busy = False

    def install(self) -> None:
        stage = self.stage
        for owner in (builtins, io):
            stage.wrap(owner, "open", self._open)
        for name in ("listdir", "scandir"):
            stage.wrap(os, name, self._list)
        for name in ("stat", "lstat", "access"):
            stage.wrap(os, name, self._stat)
        for name in ("mkdir", "makedirs"):
            stage.wrap(os, name, self._mkdir)
        for name in ("remove", "unlink", "rmdir", "rename", "replace"):
            stage.wrap(os, name, self._change)
        for owner, name in [(shutil, "rmtree"), *((os, name) for name in _OF_FILES if hasattr(os, name))]:
            stage.wrap(owner, name, lambda original, path, *args, **named: original(self._changed(path), *args, **named))
        for name in ("glob", "iglob"):
            stage.wrap(glob, name, self._glob)
        for name in ("glob", "rglob"):
            stage.wrap(Path, name, self._path_glob)
        for path in stage.learned.get("wanted", ()):
            self.want(path)

    def want(self, path: str) -> None:
        """Make a path that an earlier attempt could not go on without."""
        if self.may_want(path, is_bare):
            where = self.stage.learned["wanted"].get(path)
            target = self._target(path)
            busy, self._busy = self._busy, True  # what is written into a folder is not looked for there
            if self.maker.can(path):
                self.maker.file(target, path)
            elif not os.path.splitext(path)[1]:
                self.maker.folder(target)
            self._busy = busy
            self.stage.note("data", self._named(path), where)

    def found(self, path: str) -> str:
        """Where a path really is: itself, what was made for it elsewhere, or what the repository has in another folder."""
        made = self._found_made(path)
        return made if made != path else self._kept(path) or path

    def _found_made(self, path: str) -> str:
        busy, self._busy = self._busy, True
        other = self._elsewhere(path)
        redirected = not os.path.lexists(path) and os.path.lexists(other)
        self._busy = busy
        return other if redirected else path

    def _kept(self, path: str) -> str | None:
        """The file of the repository that the user's code means by a path of its author's machine."""
        busy, self._busy = self._busy, True
        frame = user_frame(self.stage.root)
        script = "".join(linecache.getlines(frame.f_code.co_filename)) if frame is not None else ""
        missing = not busy and not os.path.lexists(path)
        asked = missing and self._is_users(os.path.abspath(path))
        kept = kept_at(self.stage.root, path, script, self.stage.has_made) if asked else None
        self._busy = busy
        what = f"{path} is not here; {os.path.relpath(kept, self.stage.root)} was read" if kept is not None else ""
        if what and all(item.what != what for item in self.stage.standins):
            self.stage.note("packages", what)
        return kept

    def opened(self, path: str) -> str:
        """Where a path really is, made where it is not here: what a library opens that knows nothing of stand-ins."""
        self._enter(path, 2)
        found = self.found(path)
        busy, self._busy = self._busy, True
        there = os.path.lexists(found)
        self._busy = busy
        return found if there else self.make(path) or path

    def home(self, path: str) -> str:
        """The folder itself where it can be made, else the place that stands in for it."""
        return path if os.path.isdir(path) and os.access(path, os.W_OK) else self._target(path)

    def may_want(self, path: str, lacks: Callable[[str], bool] = waits_for_data) -> bool:
        """Whether a path is one of the script's world: neither the system's nor what is here already; a folder that `lacks`
        data is not."""
        full = os.path.abspath(path)
        busy, self._busy = self._busy, True
        empty = os.path.isdir(path) and not os.listdir(path)
        there = os.path.exists(self.found(path)) and not (empty or lacks(path))
        self._busy = busy
        return not there and not self._is_others(full) and full != self.stage.root

    def make(self, path: str) -> str | None:
        """Make a missing file and say where it is; None where it is not to be made, or nobody knows what it should hold."""
        if not self._may_make(path) or not self.maker.can(path) or configurations.has_another(self.stage, path):
            return None
        target = self._target(path)
        return target if self._made(path, lambda: self.maker.file(target, path)) else None

    def make_folder(self, path: str) -> str | None:
        if not self._may_make(path):
            return None
        target = self._target(path)
        self._made(path, lambda: self.maker.folder(target))
        return target

    def _made(self, path: str, action: Callable[[], Any]) -> bool:
        self._busy = True
        try:
            done = action() is not False
        finally:
            self._busy = False
        if done and example_of(path) is None:  # which is noted for itself
            self.stage.note("data", self._named(path))
        return done

    def _named(self, path: str) -> str:
        path = os.path.abspath(path)
        return os.path.relpath(path, self.stage.root) if path.startswith(self.stage.root + os.sep) else path

    def _elsewhere(self, path: str) -> str:
        return str(self.stage.outside) + os.path.abspath(path)

    def _target(self, path: str) -> str:
        """The path itself where it can be written, else a place below the folder for what is made."""
        above = os.path.abspath(path)
        busy, self._busy = self._busy, True  # what is asked here is asked of the real file system
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        inside = os.path.abspath(path).startswith(self.stage.root + os.sep) and os.access(above, os.W_OK)
        self._busy = busy
        return path if inside else self._elsewhere(path)

    def _may_make(self, path: str) -> bool:
        """What the user's code opens, itself or through a library, but not what libraries look for when they are imported."""
        missing = "directory" in self.stage.learned or not self._lies_elsewhere(path)
        return missing and self._is_users(os.path.abspath(path))

    def _is_users(self, full: str) -> bool:
        """Whether the user's code asks for a path that may be one of its world, and does not cope without."""
        if full.startswith(str(self.stage.made)) or self._is_others(full):
            return False
        for frame in frames():
            name = frame.f_code.co_filename
            if is_users(name, self.stage.root):
                return not expects_absence(frame) or full in self.stage.learned.get("wanted", ())
            if is_headraces(name) or name.startswith("<frozen importlib"):
                return False
        return False

    def _is_others(self, full: str) -> bool:
        """Whether a path lies among the files of the machine, of Python or of this package: the closest folder decides, as a
        repository may lie in `/usr/src/app` where Python is `/usr`'s."""
        if is_installed(full) or os.sep + ".cache" + os.sep in full:
            return True
        mine = (*_USERS, self.stage.root.rstrip(os.sep) + os.sep)
        return _closest(full, (*_SYSTEM, *_LIBRARIES, *HEADRACE)) > _closest(full, mine)

    def _lies_elsewhere(self, path: str) -> bool:
        """Whether another folder of the repository has that path: its user runs the script from there."""
        busy, self._busy = self._busy, True
        try:
            return other_folder(self.stage.root, self.stage.request.script, path) is not None
        finally:
            self._busy = busy

    def _open(self, original: Callable[..., Any], file: Any, mode: Any = "r", *args: Any, **named: Any) -> Any:
        self._enter(file, 2)
        self._note_written(file, mode)
        try:
            return original(file, mode, *args, **named)
        except FileNotFoundError:
            if self._busy or not isinstance(file, str | bytes | os.PathLike):  # tensorboard's writer gives bytes
                raise
            path = os.fsdecode(file)
            if isinstance(mode, str) and set(mode) & set("wax"):
                return original(self.for_output(path), mode, *args, **named)
            if not os.path.splitext(path)[1] and "b" not in mode:
                self.maker.texts.add(os.path.basename(path))
            other = self.found(path) if self.found(path) != path else self.make(path)
            if other is None:
                raise
            return original(other, mode, *args, **named)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES) or not (isinstance(mode, str) and set(mode) & set("wax")):
                raise
            return original(self.for_output(os.fsdecode(file)), mode, *args, **named)

    def _note_written(self, file: Any, mode: Any) -> None:
        """Have the next attempt not find what this one writes: the first did not either, nor does the run that repeats it."""
        writes = isinstance(mode, str) and set(mode) & set("wxa") and isinstance(file, str | os.PathLike)
        path = os.path.abspath(os.fsdecode(file)) if writes else ""
        if writes and not os.path.lexists(path):
            self._note_new(path)

    def _note_new(self, path: str) -> None:
        """Remember a file, or a folder, that the script itself makes in the repository."""
        if self._busy or self._written >= _MOST_WRITTEN or path.startswith(self._ours):
            return
        if path.startswith(self.stage.root + os.sep) and user_place(self.stage.root):
            self._written += 1
            self.stage.keep(path)

    def for_output(self, path: str) -> str:
        """A path to write to: its folder is made, as the user will have made it once."""
        target = self._target(path)
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        return target

    def _enter(self, path: Any, levels: int) -> None:
        """Remember that the script looked into the folder of a class: at a file in it, two levels down, or at its list.

        And that it opened an image of a folder without such folders.
        """
        known = all(self.stage.entered.values()) and all(self.stage.made_flat.values())  # so it is where none was made
        if not known and not self._busy and isinstance(path, str | os.PathLike) and not asked_by_us(__file__):
            above = os.path.normpath(self.found(os.fsdecode(path)))
            beside = os.path.abspath(os.path.dirname(above))
            if levels == 2 and beside in self.stage.made_flat:  # a file, not the list of a folder
                self.stage.made_flat[beside] = True
            for _ in range(levels):
                above = os.path.dirname(above)
            for folder in self.stage.entered:
                if os.path.normpath(folder) == above:
                    self.stage.entered[folder] = True

    def _list(self, original: Callable[..., Any], path: Any = ".", *args: Any) -> Any:
        self._enter(path, 1)
        self._note_bare(path)
        try:
            return original(path, *args)
        except FileNotFoundError:
            if self._busy or not isinstance(path, str | os.PathLike):
                raise
            text = os.fsdecode(path)
            other = self.found(text) if self.found(text) != text else self.make_folder(text)
            if other is None:
                raise
            return original(type(path)(other) if isinstance(path, str) else Path(other), *args)

    def _stat(self, original: Callable[..., Any], path: Any, *args: Any, **named: Any) -> Any:
        try:
            answer = original(path, *args, **named)
            if answer is not False or self._busy:
                return answer
        except FileNotFoundError:
            if self._busy or not isinstance(path, str | os.PathLike):
                raise
            text = os.fsdecode(path)
            other = self.found(text)
            if not _there(original, other):
                if not self._like_wanted(text) and not self._is_named(text):
                    self._probe(text)
                    raise
                other = self.make(text) or (self.make_folder(text) if not os.path.splitext(text)[1] else None) or text
            return original(other, *args, **named)
        return answer

    def _like_wanted(self, path: str) -> bool:
        """Whether an earlier attempt could not go on without a path that differs in its number only, as folds and parts do."""
        shapes = {re.sub(r"\d+", "#", wanted) for wanted in self.stage.learned.get("wanted", ())}
        makes = self.maker.can(path) or not os.path.splitext(path)[1]
        return bool(shapes) and makes and re.sub(r"\d+", "#", os.path.abspath(path)) in shapes

    def _is_named(self, path: str) -> bool:
        """Whether a made table or list names an image so: it is there, as the images of a table are."""
        return self.stage.names_images and _NAMED.fullmatch(os.path.basename(path)) is not None

    def _probe(self, path: str) -> None:
        if path.startswith((self._ours, f"{self.stage.request.report}.")):
            return
        asked = ""
        for frame in frames():
            name = frame.f_code.co_filename
            if is_users(name, self.stage.root):
                where = f"{os.path.relpath(name, self.stage.root)}:{frame.f_lineno}"
                self.probed.pop(path, None)
                self.probed[path] = where
                if asked in ("isfile", "is_file") and not os.path.splitext(path)[1]:
                    self.as_file.add(path)
                return
            if frame.f_globals.get("__name__", "").partition(".")[0] not in _PROBES and "<frozen" not in name:
                self._missed[frame.f_code] = frame.f_lineno, path
                return
            asked = frame.f_code.co_name

    def missed_by(self, frame: types.FrameType) -> list[str]:
        """The path for which a library's function looked in the lines before it gave up; it need not say which."""
        line, path = self._missed.get(frame.f_code, (0, ""))
        return [path] if path and 0 <= frame.f_lineno - line <= _LINES_TO_GIVE_UP else []

    def _mkdir(self, original: Callable[..., Any], path: Any, *args: Any, **named: Any) -> Any:
        try:
            made = original(path, *args, **named)
            if original.__name__ == "mkdir" and isinstance(path, str | os.PathLike) and named.get("dir_fd") is None:
                self._note_new(os.path.abspath(os.fsdecode(path)))
            return made
        except FileExistsError:
            # What reading the sources led to is built beside this run, and takes the same seconds for the name of its folder.
            beside = self.stage.request.beside
            if self._busy or beside is None or not made_since(path, beside) or self.stage.has_made(path):
                raise
            self._note_new(os.path.abspath(os.fsdecode(path)))
        except OSError as error:
            above = os.path.dirname(self._elsewhere(os.fsdecode(path)))
            outside = error.errno in (errno.EROFS, errno.EACCES) or (error.errno == errno.ENOENT and os.path.isdir(above))
            if self._busy or not outside:
                raise
            return os.makedirs(self._elsewhere(os.fsdecode(path)), exist_ok=True)

    def _change(self, original: Callable[..., Any], path: Any, *others: Any, **named: Any) -> Any:
        """Remove or rename what the script wrote to a place that stands in for another."""
        if any(name.endswith("dir_fd") and value is not None for name, value in named.items()):
            return original(path, *others, **named)  # below an open folder, which is what it is
        named = {name: self._renamed(value) if name == "dst" else value for name, value in named.items()}
        return original(self._changed(path), *(self._renamed(other) for other in others), **named)

    def _changed(self, path: Any) -> Any:
        known = not self._busy and isinstance(path, str | os.PathLike) and not asked_by_us(__file__)
        text = os.fsdecode(path) if known else ""
        return self._found_made(text) if known and self._found_made(text) != text else path

    def _renamed(self, path: Any) -> Any:
        folder, name = os.path.split(os.fsdecode(path)) if isinstance(path, str | os.PathLike) else ("", "")
        place = self._changed(folder) if folder else folder
        return os.path.join(place, name) if place != folder else path

    def _glob(self, original: Callable[..., Any], pathname: Any, *args: Any, **named: Any) -> Any:
        if isinstance(pathname, str):
            folder, pattern = _split(os.path.join(named.get("root_dir") or "", pathname))
            self._for_pattern(folder, pattern)
            if not os.path.isdir(folder) and os.path.isdir(self._elsewhere(folder)):
                pathname = os.path.join(self._elsewhere(folder), pattern)
        return original(pathname, *args, **named)

    def _path_glob(self, original: Callable[..., Any], own: Path, pattern: Any, *args: Any, **named: Any) -> Iterator[Any]:
        self._for_pattern(str(own), str(pattern) if original.__name__ == "glob" else f"**/{pattern}")
        other = self.found(str(own))
        return original(own if other == str(own) else Path(other), pattern, *args, **named)  # type: ignore[no-any-return]

    def _note_bare(self, path: Any) -> None:
        """Remember a folder here that the script lists, in which there is no data."""
        if self._busy or not isinstance(path, str | os.PathLike):
            return
        walks = ("os.py", "<frozen os>", *_PROBES)
        frame = next((frame for frame in frames() if not frame.f_code.co_filename.endswith(walks)), None)
        if frame is not None and is_users(frame.f_code.co_filename, self.stage.root):
            full = os.path.abspath(os.fsdecode(path))
            busy, self._busy = self._busy, True
            if full.startswith(self.stage.root + os.sep) and waits_for_data(full):
                where = f"{os.path.relpath(frame.f_code.co_filename, self.stage.root)}:{frame.f_lineno}"
                self.bare.setdefault(full, where)
            self._busy = busy

    def _for_pattern(self, folder: str, pattern: str) -> None:
        if not pattern or self._busy:
            return
        self._note_bare(folder)
        if os.path.isdir(self.found(folder)):
            self._look(self.found(folder), pattern)
        elif self._may_make(folder):
            target = self._target(folder)
            self._made(folder, lambda: self.maker.matching(target, pattern))

    def _look(self, folder: str, pattern: str) -> None:
        """Note that the script looks in a made folder for images of an ending that none of them has; make such whose names
        begin as it asks for."""
        suffix, full = ending_of(pattern), os.path.abspath(folder)
        if self.stage.has_made(folder):
            busy, self._busy = self._busy, True
            for name in lacking(pattern, os.listdir(full)):
                self.maker.file(os.path.join(full, name))
            self._busy = busy
        if suffix is not None and self.stage.has_made(folder):
            self._busy = True
            found = any(name.endswith(suffix) for _, _, names in os.walk(full) for name in names)
            self._busy = False
            known = self.stage.looked.get(full, (suffix, "/" in pattern))
            self.stage.looked[full] = None if found else known


def _closest(path: str, folders: tuple[str, ...]) -> int:
    """The length of the longest of the folders that hold a path; 0 where none does."""
    return max((len(folder) for folder in folders if path.startswith(folder)), default=0)


def _there(stat: Callable[..., Any], path: str) -> bool:
    try:
        return stat(path) is not False if stat.__name__ != "access" else bool(stat(path, os.F_OK))
    except OSError:
        return False


def _split(pathname: str) -> tuple[str, str]:
    """The part of a pattern before its first wildcard, and the rest."""
    parts = pathname.split(os.sep)
    first = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return os.sep.join(parts[:first]) or ("." if not pathname.startswith(os.sep) else os.sep), os.sep.join(parts[first:])
