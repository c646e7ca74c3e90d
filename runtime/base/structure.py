"""What a module returns, taken apart into named tensors and put together again. Torch-free.

A leaf is whatever `is_leaf` says (a tensor); None is kept in its place; mappings, dataclasses (such as a ModelOutput),
named and plain tuples and lists are opened.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["leaf", "none", "mapping", "tuple", "list"]
_KINDS = ("leaf", "none", "mapping", "tuple", "list")


@dataclass(frozen=True)
class Structure:
    """One node: its kind, and its children with their keys (indices as text for tuples and lists).

    `rebuild_as` makes the user's own type from the children; a structure read from JSON has plain dicts and tuples instead.
    """

    kind: Kind
    children: tuple[tuple[str, Structure], ...] = ()
    rebuild_as: Callable[[dict[str, Any]], Any] | None = dataclasses.field(default=None, compare=False, repr=False)

    def names(self, root: str = "output") -> list[str]:
        """A name for each leaf, in order: `root` for a lone tensor, dict keys and field names, `root_0` for positions."""
        return _distinct(list(self._names("", root)), root)

    def _names(self, prefix: str, root: str) -> Iterator[str]:
        if self.kind == "leaf":
            yield prefix or root
        for key, child in self.children:
            part = key if self.kind == "mapping" else f"{prefix or root}_{key}"
            yield from child._names(f"{prefix}_{part}" if prefix and self.kind == "mapping" else part, root)

    def rebuild(self, leaves: Iterable[Any]) -> Any:
        """The structure with its leaves replaced, in order."""
        return self._rebuild(iter(leaves))

    def _rebuild(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "leaf":
            return next(leaves)
        if self.kind == "none":
            return None
        values = {key: child._rebuild(leaves) for key, child in self.children}
        if self.rebuild_as is not None:
            return self.rebuild_as(values)
        if self.kind == "mapping":
            return values
        return tuple(values.values()) if self.kind == "tuple" else list(values.values())

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "children": [[key, child.to_json()] for key, child in self.children]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Structure:
        """Read what `to_json` wrote; raises ValueError on another kind of node."""
        if data["kind"] not in _KINDS:
            raise ValueError(f"structure: kind must be one of {', '.join(_KINDS)}; got {data['kind']!r}")
        return cls(data["kind"], tuple((key, cls.from_json(child)) for key, child in data["children"]))


LEAF = Structure("leaf")


def flatten(value: Any, is_leaf: Callable[[Any], bool], stray: Callable[[str, Any], None]) -> tuple[list[Any], Structure]:
    """The leaves and the structure of a value. Anything that is no leaf, None or container goes to `stray(where, value)`."""
    leaves: list[Any] = []

    def visit(item: Any, where: str) -> Structure:
        if is_leaf(item):
            leaves.append(item)
            return LEAF
        if item is None:
            return Structure("none")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            fields = {field.name: getattr(item, field.name) for field in dataclasses.fields(item) if field.init}
            return opened("mapping", fields, where, lambda values: type(item)(**values))
        if isinstance(item, Mapping):
            if (rebuild := _mapping_as(item)) is None:
                stray(where, item)
                return Structure("none")
            plain = type(item) is dict and all(type(key) is str for key in item)
            return opened("mapping", {str(key): child for key, child in item.items()}, where, None if plain else rebuild)
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return opened("mapping", dict(zip(item._fields, item, strict=True)), where, lambda values: type(item)(**values))
        if isinstance(item, tuple | list):
            numbered = {str(index): child for index, child in enumerate(item)}
            return opened("tuple" if isinstance(item, tuple) else "list", numbered, where, _sequence_as(item))
        stray(where, item)
        return Structure("none")

    def opened(kind: Kind, items: dict[str, Any], where: str, rebuild_as: Callable[[dict[str, Any]], Any] | None) -> Structure:
        children = tuple((key, visit(child, f"{where}[{key!r}]")) for key, child in items.items())
        return Structure(kind, children, rebuild_as)

    structure = visit(value, "output")
    return leaves, structure


def _mapping_as(item: Mapping[Any, Any]) -> Callable[[dict[str, Any]], Any] | None:
    """What makes such a mapping, with the keys that it has, of values by the keys' text; None where nobody can say how."""
    kind, keys = type(item), list(item)
    makers: list[Callable[[dict[Any, Any]], Any]] = [kind, lambda values: kind(**values)]
    if isinstance(item, defaultdict):
        factory = item.default_factory
        makers = [lambda values: kind(factory, values)]  # type: ignore[call-arg]
    for make in makers:
        made = _made(make, dict(item))
        if type(made) is kind and list(made) == keys:
            return functools.partial(_with_keys, make, keys)
    return None


def _with_keys(make: Callable[[dict[Any, Any]], Any], keys: list[Any], values: dict[str, Any]) -> Any:
    return make(dict(zip(keys, values.values(), strict=True)))


def _sequence_as(item: tuple[Any, ...] | list[Any]) -> Callable[[dict[str, Any]], Any] | None:
    """What makes such a sequence, where it is of a type of its own: torch's results with names (`topk`), a subclass of list."""
    kind = type(item)
    if kind in (tuple, list):
        return None
    made = _made(kind, list(item))
    if type(made) is not kind or len(made) != len(item):
        return None
    return lambda values: kind(list(values.values()))


def _made(make: Callable[[Any], Any], content: Any) -> Any:
    try:
        return make(content)
    except Exception:  # noqa: BLE001 - the user's own class, which may take what it likes
        return None


def _distinct(names: list[str], root: str) -> list[str]:
    """Names that are fit for file formats and protocols: letters, digits and underscores, each once."""
    clean = ["".join(ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in name) or root for name in names]
    if len(set(clean)) == len(clean):
        return clean
    return [f"{name}_{index}" for index, name in enumerate(clean)]
