"""Screens and people: windows are not opened, plots are not shown, questions are answered, a camera gives made pictures."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import re
import sys
import types
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ....reading.notebooks.notebook_magics import PYTHON_CELLS
from ....reading.source import CELLS, NOTEBOOK
from ..making import photo
from ..silent import Silent
from ..stage import Enough, Stage
from .arguments import CHECKPOINT
from .libraries import tk_windows

_SHELL = re.compile(
    r"name 'get_ipython' is not|'NoneType' object has no attribute '(events|getoutput|magic|run_(cell|line)_magic|system)'"
)
ANSWERS = 4
"""Questions that are answered before a conversation has gone on long enough."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    asked: list[str] = []

    def answer(original: Any, prompt: object = "") -> str:
        asked.append(str(prompt))
        if len(asked) > ANSWERS:
            raise Enough("the script asks for input again and again")
        text = _answer(str(prompt).lower())
        stage.note("screens", f"input({str(prompt)!r}) was answered with {text!r}")
        return text

    def terminal(original: Any, *args: Any) -> os.terminal_size:
        try:
            return original(*args)  # type: ignore[no-any-return]
        except OSError:
            return os.terminal_size((80, 24))

    stage.wrap(builtins, "input", answer)
    stage.wrap(os, "get_terminal_size", terminal)
    stage.patch(builtins, "display", lambda *_, **__: None)  # which a notebook has without an import
    if "shell" in stage.learned:
        stage.note("screens", "get_ipython() stood in, which a notebook that became a script has where ipython runs it")
    if stage.request.script.endswith((NOTEBOOK, CELLS)) or "shell" in stage.learned:
        shell = _Shell("get_ipython()")
        stage.patch(builtins, "get_ipython", lambda: shell)
        stage.when_imported("IPython", lambda library: stage.patch(library, "get_ipython", lambda: shell))
    stage.when_imported("matplotlib", lambda library: _drawn_nowhere(stage, library, "use"))
    stage.when_imported("matplotlib.pyplot", lambda library: _drawn_nowhere(stage, library, "switch_backend"))
    stage.when_imported("matplotlib.pyplot", lambda library: _quiet(stage, library, ("show", "pause", "waitforbuttonpress")))
    stage.when_imported("matplotlib.axes", lambda library: _drawn(stage, library.Axes))
    stage.when_imported("PIL.Image", lambda library: _quiet(stage, library.Image, ("show",)))
    stage.when_imported("cv2", lambda library: _windows(stage, library))
    stage.when_imported("tkinter", lambda library: tk_windows.install(stage, library))
    stage.when_imported("PIL.ImageGrab", lambda library: tk_windows.grabbed(stage, library))
    stage.when_imported("tqdm.notebook", lambda library: _plain_bars(stage, library))
    yield


def lesson(stage: Stage, error: BaseException) -> bool:
    """A notebook that was exported as a script asks for the shell, which `ipython script.py` has."""
    if not isinstance(error, NameError | AttributeError) or _SHELL.search(str(error)) is None:
        return False
    return stage.add("shell", "get_ipython")


class _Shell(Silent):
    """IPython's, whose magics do nothing; but a cell of Python that one times is run."""

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        if name in PYTHON_CELLS:
            exec(compile(cell, "<cell>", "exec"), sys._getframe(1).f_globals)  # noqa: S102 - the user's own cell


def _plain_bars(stage: Stage, library: Any) -> None:
    """A notebook's bars of progress are widgets, which only the environment of Jupyter has."""
    if getattr(library, "IProgress", None) is None:
        plain = importlib.import_module("tqdm.std")
        stage.note("screens", "bars of progress of tqdm.notebook are lines of text: ipywidgets is not installed")
        for name, made in (("tqdm", plain.tqdm), ("tqdm_notebook", plain.tqdm), ("trange", plain.trange)):
            stage.patch(library, name, made)
        stage.patch(library, "tnrange", plain.trange)


def _answer(prompt: str) -> str:
    if re.search(r"\by(es)?\b\W*/|\by/n|\bcontinue|\bsure", prompt):
        return "y"
    if CHECKPOINT.search(prompt):
        return "checkpoint.pth"
    if re.search(r"folder|director|data ?set", prompt):
        return "data"
    if re.search(r"image|img|path|file|photo|picture|url", prompt):
        return "image.jpg"
    return "1"


def _quiet(stage: Stage, owner: Any, names: tuple[str, ...]) -> None:
    for name in names:
        stage.wrap(owner, name, lambda original, *args, **named: stage.note("screens", f"{original.__name__}() showed nothing"))


def _drawn_nowhere(stage: Stage, library: Any, name: str) -> None:
    """The windows that a script draws in are left out where there is no screen."""

    def choose(original: Any, backend: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(backend, *args, **named)
        except ImportError:
            stage.note("screens", f"matplotlib draws nowhere: {backend} needs a screen")

    stage.wrap(library, name, choose)


def _drawn(stage: Stage, axes: Any) -> None:
    """A curve over all the epochs that a script asks for, of which only some were run, is drawn as far as it goes."""

    def draw(original: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(*args, **named)
        except ValueError as error:
            given: list[Any] = list(args[1:])
            data = [at for at, value in enumerate(given) if isinstance(value, Sized) and not isinstance(value, str)]
            rows = {len(given[at]) for at in data}
            if len(rows) < 2 or not re.search(r"first dimension|shape mismatch|same size|broadcast", str(error)):
                raise
            stage.note("screens", "a curve was cut where its data ended")
            cut = [value[: min(rows)] if at in data else value for at, value in enumerate(given)]
            return original(args[0], *cut, **named)

    for name in ("plot", "bar", "barh", "scatter", "fill_between", "errorbar", "semilogy", "step"):
        stage.wrap(axes, name, draw)


def _windows(stage: Stage, library: Any) -> None:
    _quiet(stage, library, ("imshow", "namedWindow", "destroyAllWindows", "destroyWindow", "moveWindow", "resizeWindow"))
    for name in ("waitKey", "waitKeyEx", "pollKey"):
        stage.patch(library, name, lambda *_: ord("q"))
    stage.patch(library, "VideoCapture", lambda *args: _Camera(stage, args))
    kind = getattr(library, "CascadeClassifier", None)
    stage.patch(library, "CascadeClassifier", lambda path="": _Detector(stage, kind, path))
    if not hasattr(library, "data"):
        stage.patch(library, "data", types.SimpleNamespace(haarcascades=""))


class _Detector:
    """Finds what OpenCV's own detector finds; where that is nothing, or OpenCV has none any more (5.0), the whole image."""

    def __init__(self, stage: Stage, kind: Any, path: str) -> None:
        self._stage, self._path = stage, path
        own = kind(path) if kind is not None and os.path.isfile(path) else None
        self._own = own if own is not None and not own.empty() else None

    def empty(self) -> bool:
        return False

    def load(self, path: str) -> bool:
        self._path = path
        return True

    def detectMultiScale(self, image: Any, *args: Any, **named: Any) -> Any:  # noqa: N802 - OpenCV's name
        found = self._own.detectMultiScale(image, *args, **named) if self._own is not None else ()
        if len(found):
            return found
        name = os.path.basename(self._path) or "a detector"
        self._stage.note("data", f"{name} found nothing in an image, and was given all of it")
        height, width = image.shape[:2]
        return np.array([[0, 0, width, height]], np.int32)

    def detectMultiScale2(self, image: Any, *args: Any, **named: Any) -> Any:  # noqa: N802
        found = self.detectMultiScale(image, *args, **named)
        return found, [1] * len(found)

    def detectMultiScale3(self, image: Any, *args: Any, **named: Any) -> Any:  # noqa: N802
        named.pop("outputRejectLevels", None)
        found = self.detectMultiScale(image, *args, **named)
        return found, [0] * len(found), [1.0] * len(found)


class _Camera:
    """A few frames, then the end, as a short film has it."""

    def __init__(self, stage: Stage, args: tuple[Any, ...]) -> None:
        self.left = stage.request.batches
        self.open = True
        stage.note("data", f"the frames of cv2.VideoCapture({', '.join(map(repr, args))})")

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        return self.open

    def read(self, *_: Any) -> tuple[bool, Any]:
        if self.left <= 0:
            return False, None
        self.left -= 1
        return True, np.ascontiguousarray(np.asarray(photo(f"frame{self.left}", (480, 640)))[..., ::-1])

    def get(self, *_: Any) -> float:
        return 30.0

    def set(self, *_: Any) -> bool:
        return True

    def release(self) -> None:
        self.open = False
