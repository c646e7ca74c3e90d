"""Dictionaries whose items are attributes too, where the library is not installed that has them: easydict, munch and others."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

from ...silent import Entries


class AttributeDict(Entries):
    """Dictionaries in it, and in its lists and tuples, are of its kind; a name that it lacks is an AttributeError."""

    def __init__(self, items: Any = None, /, **named: Any) -> None:
        super().__init__()
        self.update(items or {}, **named)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _held(type(self), value))

    __setattr__ = __setitem__

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def update(self, items: Any = (), /, **named: Any) -> None:
        for name, value in dict(items, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def copy(self) -> Any:
        return type(self)(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries."""
        return {name: _plain(value) for name, value in self.items()}

    toDict = todict = to_dict  # noqa: N815 - the names in munch and dotmap


class GrowingDict(AttributeDict):
    """One in which a name that it lacks is an empty dictionary, as in addict and dotmap."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):  # what Python and libraries ask of any object
            raise KeyError(name)
        self[name] = type(self)()
        return self[name]


class LockingDict(AttributeDict):
    """One that may be locked, as in ml_collections: what a script that runs does to it is allowed in any case."""

    def lock(self) -> LockingDict:
        return self

    unlock = lock

    def unlocked(self) -> contextlib.AbstractContextManager[LockingDict]:
        return contextlib.nullcontext(self)


def _held(kind: type[AttributeDict], value: Any) -> Any:
    """A value as a dictionary of this kind holds it."""
    if isinstance(value, dict) and not isinstance(value, AttributeDict):
        return kind(value)
    return type(value)(_held(kind, item) for item in value) if type(value) in (list, tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, AttributeDict):
        return value.to_dict()
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


_GROWS = ("addict", "dotmap")
_NAMES = {
    "addict": ["Dict"],
    "attrdict": ["AttrDict", "AttrMap"],
    "box": ["Box", "ConfigBox"],
    "dotmap": ["DotMap"],
    "easydict": ["EasyDict"],
    "ml_collections": ["ConfigDict", "FrozenConfigDict"],
    "munch": ["Munch"],
}
LIBRARIES = frozenset(_NAMES)


def contents(library: str) -> dict[str, Any]:
    """What one of `LIBRARIES` has: a class under each of its names, and munch's two functions."""
    base = GrowingDict if library in _GROWS else LockingDict if library == "ml_collections" else AttributeDict
    found: dict[str, Any] = {name: type(name, (base,), {"__module__": library}) for name in _NAMES[library]}
    if library == "munch":
        found |= {"munchify": functools.partial(_held, found["Munch"]), "unmunchify": _plain}
    if library == "ml_collections":
        found["config_dict"] = types.SimpleNamespace(**found, placeholder=lambda *_, **__: None)
    return found
