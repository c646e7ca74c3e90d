"""The names of a live model's classes, where the data set, the model, its checkpoint or the script states them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from ..rehearsal.making import invented
from ..rehearsal.places import is_installed
from ..rehearsal.torchvision_sets import NAMES
from .seen import Call

_NAMED = re.compile(r"class|label|categor|id2|idx_?to|index_?to|names$|^mapping$", re.I)
_DEFAULTS = re.compile(r"LABEL_\d+")  # transformers' names for classes that nobody named
_SHORTEST = 3  # letters of an output's name that a variable can be called by
_DEPTH = 4  # subsets of subsets
_SECTIONS = 2  # of a configuration, in one another
_OURS = f"{__name__.partition('.')[0]}."  # what runs the script has names of its own
_LARGEST = 50  # entries of a checkpoint or a section
_SAME = 200  # one in so many names may be another's: ImageNet has two pairs, the labels of a batch far more


def class_names(model: Any, call: Call, count: int, *, own_data: bool = True) -> tuple[str, ...] | None:
    """`count` different names in the order of the model's outputs; None where nothing states them. Nothing is invented: of a
    data set that stands in for the user's, only what is known of its class counts, wherever the script keeps its names."""
    for value in _stated(model, call, own_data):
        names = as_names(value)
        if not own_data and names is not None and _are_invented(names):
            continue
        if names is not None and len(names) == count and count - len(set(names)) <= count // _SAME:
            return names
    return None


def _are_invented(names: Sequence[str]) -> bool:
    return set(names) <= set(invented(len(names)))


def names_called(call: Call, output: str, count: int, *, own_data: bool = True) -> tuple[str, ...] | None:
    """The only list of `count` names among the script's variables that are called like an output: COLORS for "color"; those
    that were invented for data that stands in are none."""
    stem, found = output.lower(), set()
    for space in _variables(call) if len(stem) >= _SHORTEST else ():
        for name, value in list(space.items()):
            names = as_names(value) if name.lower().startswith(stem) else None
            if names is not None and len(names) == count and (own_data or not _are_invented(names)):
                found.add(names)
    return found.pop() if len(found) == 1 else None


def _variables(call: Call) -> Iterator[Mapping[str, Any]]:
    """What the script's own functions knew by name at that call, the innermost first."""
    frame = call.frame
    while frame is not None:
        if is_installed(frame.f_code.co_filename) or str(frame.f_globals.get("__name__")).startswith(_OURS):
            frame = frame.f_back
            continue
        own = getattr(frame.f_locals.get("self"), "__dict__", {})
        yield from (frame.f_locals, own, frame.f_globals)
        frame = frame.f_back


def _stated(model: Any, call: Call, own_data: bool) -> Iterator[Any]:
    yield getattr(getattr(model, "config", None), "id2label", None)
    yield from _attributes(model)
    dataset, kinds = call.dataset, []
    for _ in range(_DEPTH):
        if dataset is None:
            break
        kinds.append(type(dataset))
        yield from _attributes(dataset if own_data else kinds[-1])
        dataset = getattr(dataset, "dataset", None)
    for names in _variables(call):
        for name, value in list(names.items()):
            if _NAMED.search(name):
                yield value
            else:
                yield from _of_settings(value)
    yield from (NAMES.get(kind.__name__) for kind in kinds if kind.__module__.startswith("torchvision.datasets"))


def _of_settings(value: Any, depth: int = _SECTIONS) -> Iterator[Any]:
    """What a checkpoint or a configuration names so, and what its sections do."""
    value = vars(value) if is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__") else value
    if not isinstance(value, Mapping) or len(value) >= _LARGEST:
        return
    items = list(_entries(value))
    yield from (item for name, item in items if _NAMED.search(name))
    for _, item in items if depth else ():
        yield from _of_settings(item, depth - 1)


def _entries(section: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Its named entries that can be read: a configuration may compute one when it is asked for, which may raise anything."""
    names: list[Any] = []
    with contextlib.suppress(Exception):
        names.extend(section)
    for name in names:
        if isinstance(name, str):
            with contextlib.suppress(Exception):
                yield name, section[name]


def _attributes(owner: Any) -> Iterator[Any]:
    for name in ("class_to_idx", "idx_to_class", "classes", "class_names", "labels", "categories", "id2label"):
        try:
            yield getattr(owner, name, None)
        except Exception:  # noqa: BLE001 - a property of the user's, which may raise anything
            yield None


def as_names(value: Any) -> tuple[str, ...] | None:
    """Class names of a list of them, or of a mapping by index or to indices; None of anything else, and of what raises an
    error when it is read."""
    try:
        return _as_names(value)
    except Exception:  # noqa: BLE001 - a container of the user's, which may raise anything
        return None


def _as_names(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, Mapping):
        if value and all(_index(key) is not None for key in value):
            pairs = {_index(key): _name(item) for key, item in value.items()}
        elif value and all(isinstance(item, int) and not isinstance(item, bool) for item in value.values()):
            pairs = {item: _name(key) for key, item in value.items()}
        else:
            return None
        value = [pairs.get(index) for index in range(len(pairs))]
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        return None
    names = [_name(item) for item in value]
    if any(name is None or not name.strip() or "\n" in name or _DEFAULTS.fullmatch(name) for name in names):
        return None
    return tuple(name for name in names if name is not None)


def _index(key: Any) -> int | None:
    return (
        int(key) if (isinstance(key, int) and not isinstance(key, bool)) or (isinstance(key, str) and key.isdigit()) else None
    )


def _name(value: Any) -> str | None:
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        value = value[-1]  # ["n01440764", "tench"]
    return value.strip() if isinstance(value, str) else None
