"""Classes of settings (pydantic-settings), whose fields without a default are variables that a user has set."""

from __future__ import annotations

import enum
import json
import traceback
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LIBRARY = "pydantic_settings"
_DATABASE = "database", "db", "postgres", "sqlalchemy"
_SCHEMES = (("postgres", "postgresql"), ("redis", "redis"), ("mysql", "mysql"), ("mongo", "mongodb"), ("amqp", "amqp"))
_HOST = "localhost"


def missing(error: BaseException, guess: Callable[[str], str]) -> dict[str, str]:
    """The variables that a class of settings misses, with values of their fields' types; `guess` gives one for a name."""
    told = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(told):
        return {}
    kind = next((kind for frame, _ in traceback.walk_tb(error.__traceback__) if (kind := _kind(frame)) is not None), None)
    if kind is None:
        return {}
    names = [item["loc"][0] for item in told() if item.get("type") == "missing" and len(item.get("loc", ())) == 1]
    found = {}
    for name, field in kind.model_fields.items():
        variable = _variable(kind, name, field)
        value = _value(field.annotation, variable, guess) if variable is not None else None
        if value is not None and variable is not None and {name, variable} & set(names):
            found[variable if kind.model_config.get("case_sensitive") else variable.upper()] = value
    return found


def _kind(frame: types.FrameType) -> Any:
    """The class whose object a frame fills, if it is one of settings."""
    made = type(frame.f_locals.get("__pydantic_self__", frame.f_locals.get("self")))
    return made if any(base.__module__.partition(".")[0] == _LIBRARY for base in made.__mro__) else None


def _variable(kind: Any, name: str, field: Any) -> str | None:
    """The variable that a field is read from: its alias, or its name behind what all of the class begin with."""
    alias = field.validation_alias
    if alias is None:
        return f"{kind.model_config.get('env_prefix', '')}{name}"
    choices = [alias] if isinstance(alias, str) else getattr(alias, "choices", ())
    return next((choice for choice in choices if isinstance(choice, str)), None)


def _value(kind: Any, name: str, guess: Callable[[str], str]) -> str | None:
    """A text of which a field of that type takes its value; None for one that is not known."""
    origin = typing.get_origin(kind) or kind
    inner = [item for item in typing.get_args(kind) if item is not type(None)]
    if origin is typing.Literal:
        return str(inner[0])
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return _value(inner[0], name, guess)
    if origin is typing.Any:
        return _text(name, guess)
    if not isinstance(origin, type):
        return None
    if issubclass(origin, enum.Enum):
        return str(next(iter(origin)).value)
    if issubclass(origin, bool):
        return "false"
    if issubclass(origin, int | float):
        return value if (value := guess(name)).isdigit() else "1"
    if issubclass(origin, dict):
        return "{}"
    if issubclass(origin, list | tuple | set | frozenset):
        item = _value(inner[0], name, guess) if inner else guess(name)
        number = bool(inner) and inner[0] in (int, float)
        return None if item is None else json.dumps([int(item) if number else item])
    if origin.__name__.endswith(("Url", "Dsn")):
        return f"{_scheme(origin.__name__)}://{_HOST}/data"
    if issubclass(origin, str | Path) or origin.__name__ == "SecretStr":
        return _text(name, guess)
    return None


def _scheme(name: str) -> str:
    return next((scheme for word, scheme in _SCHEMES if word in name.lower()), "http")


def _text(name: str, guess: Callable[[str], str]) -> str:
    """A text; for the address of a database one in memory, which is there on every machine."""
    low = name.lower()
    return "sqlite://" if low.endswith(("url", "uri", "dsn")) and any(word in low for word in _DATABASE) else guess(name)
