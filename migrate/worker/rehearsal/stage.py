"""What all edges of one rehearsal share: the request, what stood in for what, and what was learned from earlier attempts."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import json
import os
import shutil
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...proving.rehearsal_protocol import Rehearsal, RehearsalReport, StandIn, saved_by_training
from .imports import Imports
from .places import user_place

_MISSING = object()
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_HERE = "//repository"
"""What stands for the root in what was learned: no resolved path begins so."""
WHOLE = "whole_passes"
"""Learned: passes over a loader that call no model are not cut short, for they gather what the data holds."""
_FILLED = " filled"
"""What follows a path in the list of what was made where it is a folder of the user's."""


class Taken(BaseException):
    """A watcher has what it wanted; the script need not go on. No `except Exception` of the script's catches this."""


class Enough(BaseException):
    """The script has been run as far as was asked. No `except Exception` of the script's catches this."""


class Unset(NamedTuple):
    """A variable that was looked for in vain."""

    bound: str | None
    """The name to which its None is bound, "" where it is bound to none; None where the script has something else to take."""
    default: Any


class Stage:
    """One attempt at a script. Edges note what stood in, and learn what the next attempt should do otherwise."""

    def __init__(self, request: Rehearsal) -> None:
        self.request = request
        self.root = os.path.realpath(request.root)
        self.made = Path(request.made)
        self.imports = Imports()
        self.standins: dict[StandIn, None] = {}
        self._next_told = 1
        """How many of these there are when the report is written next, in case that the process dies."""
        self.learned: dict[str, Any] = {}
        self.user_weights = True
        self.attempt = 1
        self.served = False
        self.project: str | None = None  # the module of the settings, of Django's that are set up
        self.seen: Callable[[], int] | None = None
        """How often the script has done what the rehearsal is for, where somebody counts."""
        self.asked_for_gpu = False
        self.extra_argv: list[str] = []
        self.options: dict[str, Any] = {}
        """What the script's command-line options came to."""
        self.offered: dict[str, list[Any]] = {}
        """What each of them may be, where that is said."""
        self.command: str | None = None
        """The command that was guessed of a group of them, "" where the group was asked without one."""
        self.unsure: list[str] = []
        """Addresses that were fetched, and nothing said what they hold."""
        self.saved = saved_by_training(request.made)
        """What scripts of the migration saved; looked for here, since what is asked later is asked of stand-ins."""
        self.saved_over: dict[str, None] = {}
        """Files of the repository that were there before the script saved weights in them."""
        self.refused: tuple[str, str] | None = None
        """An option that was given what it does not take, and what it takes instead."""
        self.made_flat: dict[str, bool] = {}
        """Folders of images made without folders of classes for their names alone, and whether one of these was opened."""
        self.loaded = ""
        """The file that torch read last and that stood in, by its name."""
        self.loading = ""
        """The file that torch is reading, by its name: weights, whatever it ends in."""
        self.size_of_set: tuple[int, int] | None = None
        """The size of images in a set of torchvision's that was made: that of others that the script puts in their place."""
        self.unset: dict[str, Unset] = {}
        """Environment variables that the script looked for and that are not set."""
        self.table: tuple[str, tuple[str, ...], bool, bool] | None = None
        """Between which signs, under which names if these stand in no header, whether with a first column that names its rows,
        and whether without a header the script is just reading a table."""
        self.failed_route: str | None = None
        """The first route of an application that ended with an error,"""
        self.came_by_route = False
        """and whether another one came to a model and was answered."""
        self.handled: Exception | None = None
        """The last error of which the script told where it handled it."""
        self.names_images = False
        """Whether a table or a list was made that names images."""
        self.json: dict[str, Any] = {}
        """What the files of JSON that were made hold, by their paths."""
        self.computed = False
        """Whether a model was called."""
        self.looked: dict[str, tuple[str, bool] | None] = {}
        """Made folders in which the script looked for images of an ending that they do not have, and whether below them; None
        where they had what it looked for."""
        self.entered: dict[str, bool] = {}
        """Folders that were made with a folder for each class, and whether the script looked into one of those."""
        self.filters: dict[str, dict[str | int, None]] = {}
        """Values for which a made table was searched in vain, by the column."""
        self.assertions: dict[str, list[ast.Assert]] = {}
        """Those of the user's files that were compiled, by their paths."""
        self.at_risk: list[tuple[str, Any]] = []
        """Checkpoints that stood in for others, and what they hold."""
        self._last: list[Callable[[], object]] = []
        self._patches = contextlib.ExitStack()
        self.made.mkdir(parents=True, exist_ok=True)
        self.outside = self.made / "outside"
        """Stands in for folders that are not the repository's."""
        # The sources as they came and the repaired ones lie in two folders: what one run learned holds in the other's, and what
        # was made in one is none of the other's.
        listed = self.made / f"files.{zlib.crc32(os.fsencode(self.root)):08x}"
        self._listed = Path(os.path.abspath(listed))  # a script may change its folder
        self._memory = memory_of(request)
        if self._memory.exists():
            self.learned = _moved(json.loads(self._memory.read_text(encoding="utf-8")), _HERE, self.root)
        if request.classes is not None and "classes" not in self.learned:
            self.learn("classes", request.classes)

    def as_module(self) -> str | None:
        """The name by which the script runs as `python -m NAME`; None where it runs as a file."""
        name: str | None = self.learned.get("module", [self.request.script if self.request.module else None])[0]
        return name

    def directory(self) -> str:
        """The folder in which the script runs."""
        learned = self.learned.get("module", [None, None])[1] if "module" in self.learned else None
        return os.path.realpath(self.learned.get("directory") or learned or self.request.directory or self.root)

    @property
    def checkpoint(self) -> str | None:
        """The file that the user gave; None where there is none, or it did not do for what the script loads."""
        given = self.request.checkpoint
        return None if given in self.learned.get("unfit", ()) else given

    def uses(self, edge: str) -> bool:
        return self.request.standins is None or edge in self.request.standins

    def place(self) -> str | None:
        return user_place(self.root)

    def note(self, edge: str, what: str, where: str | None = None) -> None:
        """Something stood in, at the user's line that is running unless `where` says another."""
        item = StandIn(edge=edge, what=what, where=where or self.place())
        if item not in self.standins:
            self.standins[item] = None
            if len(self.standins) >= self._next_told:  # of hundreds not each: all are told again with every one
                self._next_told = 1 + len(self.standins) * 33 // 32
                self.write(RehearsalReport(ended="stopped", why="the process died", **self.told()))

    def told(self) -> dict[str, Any]:
        stubs = tuple(self.learned.get("used", ()))
        return {
            "standins": tuple(self.standins), "attempts": self.attempt, "user_weights": self.user_weights, "stubs": stubs,
            "saved_over": tuple(self.saved_over), "learned": self._remembered(),
        }  # fmt: skip

    def _remembered(self) -> str:
        return json.dumps(_moved(self.learned, self.root, _HERE))

    def weights_stand_in(self, what: str) -> None:
        """Weights that are not the user's were taken for some that are not here."""
        self.user_weights = False
        self.note("network", f"{what}: weights that are not yours stood in")

    def keep(self, path: str, *, filled: bool = False) -> None:
        """Remember something that was made, which the next attempt makes anew; of a folder of the user's only that it was
        `filled`: what was made in it is kept by itself."""
        with self._listed.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(os.path.abspath(path))}{_FILLED if filled else ''}\n")

    def has_made(self, path: object) -> bool:
        """Whether something was made at a path, in this attempt or an earlier one."""
        if not isinstance(path, str | os.PathLike) or not self._listed.exists():
            return False
        line = json.dumps(os.path.abspath(os.fsdecode(path)))
        return not {line, line + _FILLED}.isdisjoint(self._listed.read_text(encoding="utf-8").splitlines())

    def clear(self) -> None:
        """Remove what earlier attempts made, for the next may make it otherwise, and what the script wrote or renamed outside
        of the repository, which the first one did not find."""
        if self.request.ranks == 1:  # the others may be there already
            shutil.rmtree(self.outside, ignore_errors=True)
        if self._listed.exists():
            for line in self._listed.read_text(encoding="utf-8").splitlines():
                if line.endswith(_FILLED):
                    continue
                path = Path(json.loads(line))
                if not os.access(path.parent, os.W_OK):
                    continue  # in the home folder of another run
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            self._listed.unlink()

    def count(self) -> int:
        """How often the script has done what the rehearsal is for; 0 where nobody counts."""
        return self.seen() if self.seen is not None else 0

    def came(self, before: int) -> bool:
        """Whether it has since it had so often; also where nobody counts."""
        return self.seen is None or self.seen() > before

    def learn(self, key: str, value: Any) -> bool:
        """Keep something for the next attempt; false where it was known."""
        if self.learned.get(key, _MISSING) == value:
            return False
        self.learned[key] = value
        part = self._memory.with_suffix(".part")
        part.write_text(self._remembered(), encoding="utf-8")
        part.replace(self._memory)
        return True

    def add(self, key: str, value: Any) -> bool:
        """Keep one more of several for the next attempt; false where it was known."""
        known = self.learned.get(key, [])
        return value not in known and self.learn(key, [*known, value])

    def when_imported(self, name: str, action: Callable[[types.ModuleType], None]) -> None:
        """Do `action` with a module right after it was imported; at once where it is there."""
        self.imports.when_imported(name, action)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the rehearsal ends."""
        own = vars(owner) if hasattr(owner, "__dict__") else {}
        before = own.get(name, _MISSING)
        setattr(owner, name, value)
        if before is _MISSING:
            self._patches.callback(_remove, owner, name)
        else:
            self._patches.callback(setattr, owner, name, before)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace a function by `around(original, *args, **kwargs)` until the rehearsal ends; nothing where there is none.

        What the script gives by name, and `around` takes by position, is given to it so: `os.makedirs(name=folder)`.
        """
        original = getattr(owner, name, None)
        if original is None:
            return
        # Found out where a call needs them, which few of a hundred do: to ask a function in C copies all of `sys.modules`.
        most: int | None = None
        names: list[str] | None = None

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal most, names
            if kwargs:
                most = _positional(around) if most is None else most
                if len(args) < most:
                    names = _first_names(original, most) if names is None else names
                    while len(args) < len(names) and names[len(args)] in kwargs:
                        args = (*args, kwargs.pop(names[len(args)]))
            return around(original, *args, **kwargs)

        self.patch(owner, name, call)

    def on_exit(self, action: Callable[[], object]) -> None:
        """Call it when the rehearsal ends."""
        self._patches.callback(action)

    def at_end(self, action: Callable[[], object]) -> None:
        """Call it when the script has come to its end by itself, while all stand-ins hold."""
        self._last.append(action)

    def finish(self) -> None:
        for action in self._last:
            action()

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Within it, patches hold; after it, all is as it was."""
        with self._patches:
            yield

    def write(self, report: RehearsalReport) -> None:
        if self.request.report is not None:
            part = f"{self.request.report}.{os.getpid()}.part"
            Path(part).write_text(report.to_json(), encoding="utf-8")
            os.replace(part, self.request.report)


def memory_of(request: Rehearsal) -> Path:
    """The file that holds what earlier attempts, and earlier rehearsals with the same folder, learned."""
    return Path(request.made) / "learned.json"


def _moved(value: Any, before: str, after: str) -> Any:
    """A value of JSON whose paths below one folder are those below another."""
    if isinstance(value, dict):
        return {_moved(key, before, after): _moved(item, before, after) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, before, after) for item in value]
    below = isinstance(value, str) and (value == before or value.startswith(before + os.sep))
    return after + value[len(before) :] if below else value


def _positional(around: Callable[..., Any]) -> int:
    """How many arguments it takes by position, the original aside."""
    return sum(item.kind in _BY_POSITION for item in inspect.signature(around).parameters.values()) - 1


def _first_names(original: Callable[..., Any], most: int) -> list[str]:
    """By which names a function takes the first of its arguments, `most` of them."""
    try:
        given = list(inspect.signature(original).parameters.values())
    except (TypeError, ValueError):  # of a function in C that does not tell
        return []
    plain = list(itertools.takewhile(lambda item: item.kind == item.POSITIONAL_OR_KEYWORD, given))
    return [item.name for item in plain[:most]]


def _remove(owner: Any, name: str) -> None:
    with contextlib.suppress(AttributeError):
        delattr(owner, name)
