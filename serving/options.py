"""Options as fields of dataclasses: the command line, its file, the environment and the documentation are made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: the `field` of its group, its `name` on the command line without the dashes, what it takes, what it does.

    `kind` is the field's type without None, which `optional` says. Numbers are from `least` to `most`, and above `above`.
    The command line counts in units of `unit`. `parse` makes the value from its text, where the type alone does not say how.
    `unset` describes None. `not_with_ray` says why the option means nothing on a Ray cluster.
    """

    field: str
    name: str
    help: str
    kind: Any
    default: Any
    optional: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    metavar: str | None = None
    unit: int = 1
    parse: Callable[[str], Any] | None = None
    unset: str | None = None
    not_with_ray: str | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        return self.name.replace("-", "_")

    @property
    def description(self) -> str:
        return self.help if self.unset is None else f"{self.help.removesuffix('.')}; by default {self.unset}."

    @property
    def taken(self) -> Any:
        """The type that the command line takes, before `value` makes it the option's."""
        return list[str] if self.default == () else str if self.parse else self.kind

    def value(self, given: Any) -> Any:
        """The value of what the command line took. Raises ValueError."""
        if given is not None and self.parse:
            return self.parse(given)
        if self.unit != 1:
            return None if given is None else given * self.unit
        return tuple(given or ()) if self.default == () else given

    @property
    def shown(self) -> Any:
        """The default, as the command line has it; None for what has none, or no single one."""
        if self.default is None or self.default == ():
            return None
        return self.default // self.unit if self.unit != 1 else self.default

    def check(self, value: Any) -> None:
        """Raises ValueError where a choice or a number is not one that the option takes."""
        if value is None and self.optional:
            return
        if get_origin(self.kind) is Literal:
            if value not in get_args(self.kind):
                raise ValueError(f"{self.flag} must be one of {', '.join(get_args(self.kind))}, got {value!r}")
        elif self.kind in (int, float) and not self._takes(value):
            raise ValueError(f"{self.flag} must be {self._range}, got {value!r}")

    def _takes(self, value: Any) -> bool:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, self.kind))
            or (self.kind is float and not math.isfinite(value))
        ):
            return False
        return not (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
        )

    @property
    def _range(self) -> str:
        what = "a whole number" if self.kind is int else "a number"
        if self.above is not None:
            return f"{what} above {self.above}"
        return f"{what} of at least {self.least}" if self.most is None else f"{what} from {self.least} to {self.most}"


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options that belong together. Constructing one raises ValueError, which names the option as on the command line."""

    title: ClassVar[str]

    def __post_init__(self) -> None:
        for one in options_of(type(self)):
            one.check(getattr(self, one.field))


def option(default: Any, help: str, **about: Any) -> Any:  # noqa: A002
    """A field of an OptionGroup; `about` are the other fields of Option."""
    return field(default=default, metadata={"help": help, **about})


def options_of(group: type[Any]) -> tuple[Option, ...]:
    """The options of a group, in its order, without its other fields. Seconds are "secs" on the command line."""
    types, found = get_type_hints(group), []
    for one in fields(group):
        if one.metadata:
            kinds = get_args(types[one.name]) if NoneType in get_args(types[one.name]) else (types[one.name],)
            named = {"name": one.name.replace("_seconds", "_secs").replace("_", "-"), **one.metadata}
            found.append(Option(field=one.name, kind=kinds[0], optional=len(kinds) > 1, default=one.default, **named))
    return tuple(found)


def values_of(group: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What to make a group with, by its fields' names, from what a command was given for its options. Raises ValueError."""
    return {one.field: one.value(given[one.parameter]) for one in options_of(group)}
