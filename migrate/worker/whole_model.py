"""Whole models that a script pickled, `torch.save(model, path)`: read without executing anything that the file may hold."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import pathlib
import pickle
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

_DEEPEST = 50
"""Modules within modules; what people write is nested far less."""
_LIBRARIES = ("torch.nn.", "torch.ao.nn.", "torch.optim.", "torchvision.", "timm.")
"""Whose modules and optimizers a pickled model may be made of, beside those of the repository."""
_FUNCTIONS = ("torch.nn.functional.", "torch._C._nn.")
"""Functions that modules keep as attributes, such as activations."""


def _table(*_: Any) -> dict[Any, Any]:
    """In place of a defaultdict, in which torch reads no entries, as in an optimizer's state."""
    return {}


_PLAIN: dict[str, Any] = {"collections.defaultdict": _table} | {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (dict, list, tuple, int, float, bool, str, argparse.Namespace, types.SimpleNamespace, pathlib.PosixPath)
}
_NUMBERS = ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
"""What a number of NumPy's is made of, such as the best accuracy so far."""


class Inert:
    """Stands for an object of a class that nobody imports; it has the attributes that were stored, and does nothing."""

    def __init__(self, *args: Any, **named: Any) -> None: ...

    def __new__(cls, *args: Any, **named: Any) -> Inert:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, Mapping):
                vars(self).update({name: value for name, value in part.items() if isinstance(name, str)})


def read_pickled(path: str | Path) -> Any:
    """What `torch.load` reads, on the CPU, as data: a pickled object of any class is `Inert`.

    Raises what `torch.load(weights_only=True)` raises for files that hold anything else.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        names = _classes_in(path)
        if not names:
            raise
        with torch.serialization.safe_globals([(_inert(name), name) for name in names]):
            return torch.load(path, map_location="cpu", weights_only=True)


def weights_in(model: Inert) -> dict[str, torch.Tensor] | None:
    """The parameters and buffers of a pickled model by the names that its state dict would have; None where it is no model."""
    found: dict[str, torch.Tensor] = {}
    return found if _collect(model, "", found, _DEEPEST) and found else None


def load_with_classes(
    load: Callable[[], Any], path: str | os.PathLike[str], has: Callable[[str], bool], inert: Callable[[str], None]
) -> Any:
    """Load a whole model as an object of its class, where it is made of modules alone: of the libraries of models that are
    installed, and of those that the repository `has` by their module's name.

    Objects of other classes beside the weights, such as configurations, are `Inert`, each told to `inert` by the name of its
    class. Raises UnpicklingError where a model is of them, or the file holds functions.
    """
    names = _classes_in(path)
    known = {name: found for name in names if (found := _known(name, has)) is not None}
    others = [name for name in names if name not in known]
    error = pickle.UnpicklingError(f"{Path(path).name} holds more than weights and modules")
    if not names or not all(_is_class(name) for name in others):
        raise error
    kinds = [(found, name) for name, found in known.items()] + [(_inert(name), name) for name in others]
    if "numpy.dtype" in known:  # its own classes are not named in a file
        dtypes = importlib.import_module("numpy.dtypes")
        kinds += [(getattr(dtypes, name), f"numpy.dtypes.{name}") for name in dtypes.__all__]
    with torch.serialization.safe_globals(kinds):
        held = load()
    parts = [held, *(held.values() if isinstance(held, Mapping) else ())]
    if others and (isinstance(held, Inert) or any(_lacks_its_class(part) for part in parts)):
        raise error
    for name in others:
        inert(name)
    return held


def _is_class(name: str) -> bool:
    return name.rpartition(".")[2][:1].isupper() or name == "functools.partial"


def _lacks_its_class(value: Any) -> bool:
    """Whether it is a model, of which at least a part is of a class that nobody imports."""
    if isinstance(value, nn.Module):
        return any(map(_lacks_its_class, value.children()))
    return isinstance(value, Inert) and "_parameters" in vars(value)


def _classes_in(path: str | os.PathLike[str]) -> list[str]:
    with contextlib.suppress(ValueError, RuntimeError, OSError, pickle.UnpicklingError):
        return torch.serialization.get_unsafe_globals_in_checkpoint(path)
    return []


def _inert(name: str) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    module, _, own = name.rpartition(".")
    return type(own, (Inert,), {"__module__": module})


def _collect(module: Inert, prefix: str, found: dict[str, torch.Tensor], depth: int) -> bool:
    parts = vars(module)
    tables = [parts.get(name) for name in ("_parameters", "_buffers", "_modules")]
    if depth == 0 or not all(isinstance(table, Mapping) for table in tables):
        return False
    parameters, buffers, modules = tables
    fleeting = parts.get("_non_persistent_buffers_set")
    left_out = fleeting if isinstance(fleeting, set) else set()
    for name, value in (*_items(parameters), *((name, value) for name, value in _items(buffers) if name not in left_out)):
        if isinstance(value, torch.Tensor):
            found[prefix + name] = value.detach()
    return all(
        isinstance(child, Inert) and _collect(child, f"{prefix}{name}.", found, depth - 1)
        for name, child in _items(modules)
        if child is not None
    )


def _items(table: Mapping[Any, Any] | None) -> Iterable[tuple[str, Any]]:
    assert table is not None
    return ((name, value) for name, value in table.items() if isinstance(name, str))


def _known(name: str, has: Callable[[str], bool]) -> Any:
    """The class of a module or optimizer, the function or the plain type that a pickle means; None for what else it names."""
    if name in _PLAIN:
        return _PLAIN[name]
    module, _, own = name.rpartition(".")
    if name in _NUMBERS:
        return getattr(importlib.import_module(module), own, None)
    if not (name.startswith((*_LIBRARIES, *_FUNCTIONS)) or has(module)):
        return None
    with contextlib.suppress(ImportError):
        found = getattr(importlib.import_module(module), own, None)
        is_module = isinstance(found, type) and issubclass(found, nn.Module | torch.optim.Optimizer)
        return found if is_module or (name.startswith(_FUNCTIONS) and callable(found)) else None
    return None
