"""Hooks by which a script looks on at a model's layers, as a map of what a classifier looked at does. No graph calls them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from torch import nn

from ..capture.source_locations import is_users


def observers(modules: Sequence[nn.Module]) -> Iterator[tuple[MutableMapping[int, Any], int]]:
    """The forward hooks among those of `modules`, a model with all in it, that a script has registered from outside: the
    mapping that holds each, and its key there.

    A hook of an installed library, a method of one of the modules, and what refers to one of them are parts of the model.
    """
    for module in modules:
        for hooks in (module.__dict__.get("_forward_hooks"), module.__dict__.get("_forward_pre_hooks")):
            for key, hook in (hooks or {}).items():
                if _is_scripts(hook, modules):
                    yield hooks, key


def place_of(hook: Any) -> tuple[str, int]:
    """The file and line of what a hook calls; ("", 0) where it is not written in Python."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None) or getattr(type(hook).__call__, "__code__", None)
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)


def _is_scripts(hook: Any, modules: Sequence[nn.Module]) -> bool:
    path, _ = place_of(hook)
    return is_users(path) and "-packages" not in path and not any(value is own for value in _refers_to(hook) for own in modules)


def _refers_to(hook: Any) -> Iterator[Any]:
    while isinstance(hook, functools.partial):
        yield from (*hook.args, *hook.keywords.values())
        hook = hook.func
    yield getattr(hook, "__self__", None)
    for cell in getattr(getattr(hook, "__func__", hook), "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
