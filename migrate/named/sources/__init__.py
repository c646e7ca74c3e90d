"""What a WHAT may be, a kind in each file: it has one module-level `SOURCE`, and is found by its file."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ..source import Source


@functools.cache
def discover() -> tuple[Source, ...]:
    """Every kind in this folder, those with a prefix first, then those that look at what lies there."""
    found: list[Source] = [importlib.import_module(f".{item.name}", __name__).SOURCE for item in pkgutil.iter_modules(__path__)]
    return tuple(sorted(found, key=lambda source: (not source.prefix, source.order, source.form)))
