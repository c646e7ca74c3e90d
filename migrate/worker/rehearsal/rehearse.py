"""Run a script under all stand-ins. What can only be found by failing is learned, and the script starts again in a new fork."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pkgutil
import random
import runpy
import select
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ...proving.rehearsal_protocol import Rehearsal, RehearsalReport
from ...reading.source import NOTEBOOK, read_source
from . import edges
from .early_imports import prepare, remember_imports
from .imports import watched_imports
from .places import failed_at, is_users
from .source import compiler
from .stage import Enough, Stage, Taken, memory_of

ATTEMPTS = 10
AGAIN = 77
"""The exit status of an attempt from which something was learned."""
Watch = Callable[[], AbstractContextManager[Any]]


def rehearse(
    request: Rehearsal, *, watch: Watch | None = None, attempts: int = ATTEMPTS, seen: Callable[[], int] | None = None
) -> RehearsalReport:
    """Run the script under all stand-ins, with `watch()` entered around it, and say how it ended.

    A script that comes to its end with nothing `seen()` of what `watch()` looks for is run once more where an edge knows why.

    With more than one attempt the script runs in a fork, and the caller goes on *in that fork*: an attempt that failed and from
    which something was learned is given up with all that it printed, and the next one starts from here. The process that called
    only waits, and exits as its last attempt did. With one attempt everything happens in this process. What needs the script's
    world as it was, its `__main__` and its stand-ins, is to be done where `watch()` is left.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")  # once for all forks
    if request.learned is not None:
        Path(request.made).mkdir(parents=True, exist_ok=True)
        memory_of(request).write_text(request.learned, encoding="utf-8")
    for number in range(1, attempts):
        prepare(request)
        output = _Output(Path(request.made))
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            output.catch()
            report = _attempt(request, watch, number, last=False, seen=seen)
            if report is None:
                sys.stdout.flush()
                os._exit(AGAIN)
            output.release()
            return report
        status = os.waitstatus_to_exitcode(output.wait(child))
        if status != AGAIN:
            output.release()
            os._exit(status if status >= 0 else 128 - status)
    report = _attempt(request, watch, attempts, last=True, seen=seen)
    assert report is not None
    return report


def _attempt(
    request: Rehearsal, watch: Watch | None, number: int, *, last: bool, seen: Callable[[], int] | None
) -> RehearsalReport | None:
    """One attempt; None where it was stopped and the next one may come further."""
    stage = Stage(request)
    stage.attempt, stage.seen = number, seen
    stage.clear()  # before anybody reads what the repository holds
    error: BaseException | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage.patched())
        stack.enter_context(watched_imports(stage.imports, stage.root, compiler(stage)))
        found = all_edges()
        for name, edge in found.items():
            if stage.uses(name):
                stack.enter_context(edge.stand_in(stage))
        stack.enter_context(_as_main(stage, request))
        with watch() if watch is not None else contextlib.nullcontext():
            _seed(request.seed)
            try:
                ended = _run_to_its_end(stage, request)
            except Taken:
                ended = "taken"
            except Enough as enough:
                stage.note("time", str(enough))
                ended = "enough"
            except BaseException as raised:  # noqa: BLE001 - whatever the user's code does is an outcome
                error = raised
                ended = "finished" if _clean_exit(raised) else "stopped"
        called_none = ended in ("finished", "waited") and not last and not stage.came(0)
        # What waits for ever for an error that it handles (`except OSError: time.sleep(1)`) does so for that alone.
        waited = called_none and ended == "waited" and _learned(stage, found, stage.handled)
        in_vain = called_none and not waited and _one_knows(found.values(), ("in_vain", "last_in_vain"), (stage,))
        if waited or in_vain or (called_none and _learned(stage, found, stage.handled)):
            remember_imports(stage)
            return None
        ended = "finished" if ended == "waited" else ended
        if ended != "stopped":
            _keep_found(stage)
            helps = _idle(stage, found) if ended == "finished" and not stage.came(0) else None
            report = RehearsalReport(ended=ended, remedy=helps, **stage.told())  # type: ignore[arg-type]
        else:
            assert error is not None
            # One lesson for each attempt: what else is wrong shows in the next.
            cause = _cause(stage, error)
            asked = (error, cause) if isinstance(error, SystemExit) else (cause, error)
            if not last and any(_learned(stage, found, each) for each in asked):
                remember_imports(stage)
                return None
            if stage.computed:  # its next runs end there as well, and are compared with this one
                _keep_found(stage)
            report = RehearsalReport(
                ended="stopped",
                why=_said(error) + (f", after {_said(cause)}" if cause is not None else ""),
                where=failed_at(cause or error, stage.root),
                remedy=_remedy(stage, found, cause or error),
                **stage.told(),
            )
            _print(error)
    stage.write(report)
    return report


def _idle(stage: Stage, edges: dict[str, types.ModuleType]) -> str | None:
    """What may help a script that came to its end without a call of a model: what it went on after, and what edges know."""
    told = [edge.idle(stage) for edge in edges.values() if hasattr(edge, "idle")]
    if (error := stage.handled) is not None:
        where = failed_at(error, stage.root)
        told[:0] = [f"it went on after {_said(error)}{f' ({where})' if where else ''}", _remedy(stage, edges, error)]
    return "; ".join(filter(None, told)) or None


def _remedy(stage: Stage, edges: dict[str, types.ModuleType], error: BaseException) -> str | None:
    remedies = (edge.remedy(stage, error) for edge in edges.values() if hasattr(edge, "remedy"))
    return next(filter(None, remedies), None)


def _keep_found(stage: Stage) -> None:
    """Have the next runs find what this one found, whatever other scripts save meanwhile."""
    stage.learn("saved", stage.learned.get("saved", [path.name for path in stage.saved]))


def _learned(stage: Stage, edges: dict[str, types.ModuleType], error: BaseException | None) -> bool:
    """Whether an edge knows from an error what the next attempt should do otherwise; if none does, how it may go on with it,
    and at last how without what failed."""
    asked = [(stage, each) for each in _and_replaced(stage, error)]
    return _one_knows([*reversed(edges.values())], ("lesson", "last_lesson", "passes_over"), *asked)


def _and_replaced(stage: Stage, error: BaseException | None) -> list[BaseException]:
    """An error, and those in whose place the repository's code has put it (`except ImportError: raise RuntimeError(...)`), or a
    library that calls that code, as Hydra does that builds what a configuration names."""
    chain: list[BaseException] = []
    while error is not None and all(error is not known for known in chain):
        chain.append(error)
        error = error.__cause__ or error.__context__
    reached = 1
    for at, inner in enumerate(chain[1:], 1):
        if (reached == at and _users_frames(stage, chain[at - 1])[-1:] == [True]) or _is_called_by_library(stage, inner):
            reached = at + 1
    return chain[:reached]


def _cause(stage: Stage, error: BaseException) -> BaseException | None:
    """What a script that ended itself with a number was handling, or what a library has put its own error in the place of."""
    if isinstance(error, SystemExit):
        return stage.handled or _context(error) if isinstance(error.code, int) else None
    return next((each for each in _and_replaced(stage, error)[:0:-1] if _is_called_by_library(stage, each)), None)


def _is_called_by_library(stage: Stage, error: BaseException) -> bool:
    """Whether an error was raised by the repository's code, or what that calls, and caught by a library."""
    users = _users_frames(stage, error)
    return any(users) and not users[0]


def _users_frames(stage: Stage, error: BaseException) -> list[bool]:
    """Of each frame from the one that caught an error to the one that raised it, whether it is of the repository's."""
    return [is_users(frame.f_code.co_filename, stage.root) for frame, _ in traceback.walk_tb(error.__traceback__)]


def _context(error: SystemExit) -> Exception | None:
    """What a script was handling when it ended itself, whatever it told of that and how."""
    return error.__context__ if isinstance(error.__context__, Exception) else None


def _one_knows(edges: Iterable[types.ModuleType], kinds: Sequence[str], *asked: tuple[Any, ...]) -> bool:
    """Whether one of the edges knows something: all are asked in the first way, then in the next, until one does."""
    return any(getattr(edge, kind)(*each) for kind in kinds for each in asked for edge in edges if hasattr(edge, kind))


def all_edges() -> dict[str, types.ModuleType]:
    """The edges by name: every module of the folder `edges`, in alphabetical order."""
    names = sorted(item.name for item in pkgutil.iter_modules(edges.__path__))
    return {name: importlib.import_module(f"{edges.__name__}.{name}") for name in names}


def _run_to_its_end(stage: Stage, request: Rehearsal) -> str:
    """How it ended: one that would go on for ever has come to its end, too, where nobody saw in it what is looked for."""
    ended = "finished"
    try:
        _run(stage, request)
    except Enough as enough:
        stage.note("time", str(enough))
        if stage.came(0):
            return "enough"
        ended = "waited"
    stage.finish()
    return ended


def _run(stage: Stage, request: Rehearsal) -> None:
    module_name = stage.as_module()
    if module_name is not None:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        vars(main).update(runpy.run_module(module_name, run_name="__main__", alter_sys=True))  # which takes its own away
        return
    path = os.path.join(stage.root, request.script)
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=__builtins__, __cached__=None)
    if path.endswith(NOTEBOOK):
        data = (read_source(Path(stage.root), request.script).text or "").encode()
        vars(module)["display"] = lambda *values, **options: None
    else:
        data = Path(path).read_bytes()
    code = compiler(stage)(data, path)
    awaited = eval(code, vars(module))  # noqa: S307 - what the user asked to run
    if awaited is not None:  # the cells of a notebook
        asyncio.run(awaited)


@contextlib.contextmanager
def _as_main(stage: Stage, request: Rehearsal) -> Iterator[None]:
    """Arguments, import path and folder as `python SCRIPT ARGS...` has them; as they were afterwards."""
    before = sys.argv, list(sys.path), os.getcwd(), sys.modules["__main__"]
    folder = stage.directory()
    path = os.path.join(stage.root, request.script)
    module_name = stage.as_module()
    sys.argv = [os.path.relpath(path, folder) if module_name is None else module_name, *request.argv, *stage.extra_argv]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)) if module_name is None else folder)
    for first in stage.learned.get("import_first", ()):
        stage.note("packages", f"{os.path.relpath(first, stage.root)} came first on the import path")
        sys.path.insert(0, first)
    os.chdir(folder)
    try:
        yield
    finally:
        # The model of a script may still import what lies beside it when it is packaged: its import path stays last.
        sys.argv, sys.path[:] = before[0], [*before[1], *[entry for entry in sys.path if entry not in before[1]]]
        os.chdir(before[2])
        sys.modules["__main__"] = before[3]


def _seed(seed: int) -> None:
    random.seed(seed)
    for name, function in (("numpy", "random.seed"), ("torch", "manual_seed")):
        with contextlib.suppress(ImportError):
            target: Any = importlib.import_module(name)
            for part in function.split("."):
                target = getattr(target, part)
            target(seed)


def _clean_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        code = int(error.code) if isinstance(error.code, bool) else error.code  # sys.exit(not passed)
        return f"the script ended itself: {code}"
    first, *rest = str(error).strip().splitlines() or [""]
    if first.endswith(":") and rest:  # a heading
        first = f"{first} {rest[0].strip()}"
    return f"{type(error).__name__}: {first}".rstrip(": ")


def _print(error: BaseException) -> None:
    """An error as the interpreter prints it, without the frames of this module."""
    if isinstance(error, SystemExit):
        if not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(type(error), error.with_traceback(trace), trace)


_MOST_PRINTED = 72 * 2**20  # bytes; more than a run may print at all, so that printing them ends it as any other
_LOOK = 200  # milliseconds between two looks at how much was printed


class _Output:
    """Keeps what an attempt prints until it is known to be the last."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {number: folder / f"attempt.{os.getpid()}.{number}" for number in (1, 2)}
        self._kept: dict[int, int] = {}

    def catch(self) -> None:
        for number, path in self._files.items():
            self._kept[number] = os.dup(number)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            os.dup2(file, number)
            os.close(file)

    def wait(self, child: int) -> int:
        """The status with which the attempt ended. What it prints beyond the bound is dropped: it would fill the disk."""
        with contextlib.suppress(OSError, AttributeError):  # before Linux 5.3, and elsewhere, it is not bounded
            handle = os.pidfd_open(child)
            try:
                waiting = select.poll()
                waiting.register(handle, select.POLLIN)
                while not waiting.poll(_LOOK):
                    self._cut()
            finally:
                os.close(handle)
        status = os.waitpid(child, 0)[1]
        self._cut()
        return status

    def _cut(self) -> None:
        for path in self._files.values():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > _MOST_PRINTED:
                    os.truncate(path, _MOST_PRINTED)  # what is appended later stands behind it

    def release(self) -> None:
        """Print what was kept, once: in the attempt, or in the process that waits where the attempt died."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in self._kept.items():
            os.dup2(kept, number)
            os.close(kept)
        self._kept = {}
        for number, path in self._files.items():
            if path.exists():
                data = memoryview(path.read_bytes())
                path.unlink()
                while data:
                    data = data[os.write(number, data) :]
