"""Windows of tkinter: none is opened, and where the script waits for its user, what buttons and the mouse call is called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...making import Maker, photo
from ...stage import Stage

_SIDE = 280
"""Pixels of a window and what is in it."""
_STROKE = tuple(range(60, 220, 20))
"""Where the mouse is while it draws."""
_ENDS = re.compile(r"quit|exit|close|clear|reset|delete|erase|save|destroy|cancel|stop|undo|remove", re.I)
"""Names and texts of what takes something back, or ends."""
_MOUSE = (re.compile(r"Button(Press)?-1>|<1>"), re.compile(r"Motion"), re.compile(r"Release"), re.compile(r"Return"))
"""Events in the order in which somebody draws, and then says so."""
_EVENT = re.compile(r"\[(\S+) ")
_ROUNDS = 2
"""A button that classifies may stand before that which opens an image."""
_LATER = 4
"""Calls that a script has made later of itself."""
_WITH_VALUES = re.compile(r"(^|::)(scale|scrollbar|spinbox)$")
"""Widgets that tell what they call a value."""


def install(stage: Stage, library: Any) -> None:
    """Have all windows made of nothing."""
    stage.patch(library._tkinter, "create", lambda *_, **__: _Interpreter(stage, library))


def grabbed(stage: Stage, library: Any) -> None:
    """What is on the screen is a made picture."""

    def grab(original: Any, bbox: Any = None, *args: Any, **named: Any) -> Any:
        left, top, right, bottom = map(int, bbox or (0, 0, 4 * _SIDE, 4 * _SIDE))
        stage.note("screens", "ImageGrab.grab() gave a made picture")
        return photo("screen.png", (max(bottom - top, 1), max(right - left, 1)))

    stage.wrap(library, "grab", grab)


class _Interpreter:
    """What stands for Tcl: it remembers what it is told of, answers next to nothing, and is its user once."""

    def __init__(self, stage: Stage, library: Any) -> None:
        own = library._tkinter
        self._stage = stage
        self._variables: dict[str, Any] = {"tk_version": own.TK_VERSION, "tcl_version": own.TCL_VERSION}
        self._commands: dict[str, Any] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._pressed: dict[str, str] = {}
        """What buttons and menus call, and what stands on them."""
        self._bound: list[tuple[str, str]] = []
        self._later: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):  # a window asks this for what it has not itself: whether it is `_temporary`
            raise AttributeError(name)
        return lambda *_, **__: ""

    def call(self, *args: Any) -> Any:
        name, *rest = _flat(args)
        if name == "tk_getOpenFile":
            return self._image()
        if name == "tk_chooseDirectory":
            return "data"
        if name == "tk_messageBox":
            return "yes" if "yesno" in rest else "ok"
        if name == "winfo":
            return str(_SIDE if str(rest[0]).endswith(("width", "height")) else int(rest[0] == "exists"))
        if name == "image":
            return _SIDE if rest[:1] in (["width"], ["height"]) else ""
        if name == "after" and len(rest) > 1 and rest[0] != "cancel":
            self._later.append(str(rest[1]))
            return f"after#{len(self._later)}"
        if name == "bind" and len(rest) > 2 and (found := _EVENT.search(str(rest[2]))) is not None:
            self._bound.append((str(rest[1]), found[1]))
        return self._of_widget(str(name), rest)

    def _of_widget(self, name: str, rest: list[Any]) -> Any:
        made = str(rest[0]).startswith(".") if rest else False
        own = self._options.setdefault(str(rest[0]) if made else name, {})
        if rest[:1] == ["cget"]:
            return own.get(rest[1], "")
        if rest[:1] == ["get"]:
            return own.get("", "")
        if rest[:1] in (["set"], ["insert"]):
            own[""] = rest[-1]
        told = {key: value for key, value in itertools.pairwise(rest) if isinstance(key, str) and key.startswith("-")}
        own.update(told)
        if "-command" in told and not (made and _WITH_VALUES.search(name)):
            self._pressed[str(told["-command"])] = str(told.get("-text", told.get("-label", own.get("-text", ""))))
        return ""

    def createcommand(self, name: str, function: Any) -> None:
        self._commands[name] = function

    def deletecommand(self, name: str) -> None:
        self._commands.pop(name, None)

    def getvar(self, name: str) -> Any:
        return self._variables.get(name, "")

    def setvar(self, name: str, value: Any) -> None:
        self._variables[name] = value

    globalgetvar, globalsetvar = getvar, setvar

    def getint(self, value: Any) -> int:
        return int(self.getdouble(value))

    def getdouble(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return 0.0

    def getboolean(self, value: Any) -> bool:
        return value in (True, 1, "1", "true", "yes")

    def splitlist(self, value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, list | tuple) else tuple(str(value).split())

    def mainloop(self, threshold: int = 0) -> None:
        """Be the user for a while: draw with the mouse, then press each button but those that take something back. An error of
        what was called in the end is raised where nothing called a model."""
        self._stage.note("screens", "a window of tkinter was not opened; what its buttons and the mouse call was called")
        for _ in range(_ROUNDS):
            first: Exception | None = None
            for name, values in [*self._drawn(), *((name, ()) for name in self._buttons())]:
                try:
                    self._do(name, values)
                except Exception as error:  # noqa: BLE001 - whatever the user's function raises
                    first = first or error
            if self._stage.computed:
                return
        if first is not None:
            raise first

    def _drawn(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for kind in _MOUSE:
            for sequence, name in self._bound:
                if kind.search(sequence):
                    places = _STROKE if kind is _MOUSE[1] else _STROKE[:1]
                    yield from (
                        (name, ("0", "1", "0", "0", "0", "0", "0", "0", x, x, "", "0", "", "0", "", "", x, x, "0"))
                        for x in places
                    )

    def _buttons(self) -> list[str]:
        pressed = [name for name, text in self._pressed.items() if not _ENDS.search(f"{text} {name}")]
        later, self._later = self._later[:_LATER], []
        return [*pressed, *later]

    def _do(self, name: str, values: tuple[Any, ...]) -> None:
        command = self._commands.get(name)
        wrapper: Any = getattr(command, "__self__", None)
        if not hasattr(wrapper, "func"):
            return
        given = wrapper.subst(*values) if wrapper.subst and values else ()
        wrapper.func(*given)

    def _image(self) -> str:
        path = self._stage.made / "image.jpg"
        Maker(self._stage).file(str(path))
        return str(path)


def _flat(args: Any) -> Iterator[Any]:
    for item in args:
        if isinstance(item, list | tuple):
            yield from _flat(item)
        else:
            yield item
