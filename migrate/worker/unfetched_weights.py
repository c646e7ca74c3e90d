"""Stored weights that a model asks for while it is built, and that are not here: it keeps those that it was made with."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import _IncompatibleKeys

_FETCHING = (
    ("torch.hub", "load_state_dict_from_url"),
    ("torchvision.models._api", "load_state_dict_from_url"),
    ("timm.models._builder", "load_pretrained"),
)


class _None(dict[str, Any]):
    """What is fetched in vain: a script takes out of it what it does not want."""

    def __missing__(self, name: str) -> _None:
        return self

    def __delitem__(self, name: str) -> None: ...

    def pop(self, name: str, *default: Any) -> Any:
        return default[0] if default else self


@contextlib.contextmanager
def unfetched() -> Iterator[None]:
    """Within it a model is built without what would be fetched for it."""
    load = torch.nn.Module.load_state_dict

    def kept(self: torch.nn.Module, state: Any, *args: Any, **named: Any) -> Any:
        return _IncompatibleKeys([], []) if isinstance(state, _None) else load(self, state, *args, **named)

    here = [(importlib.import_module(of), name) for of, name in _FETCHING if importlib.util.find_spec(of.partition(".")[0])]
    before = [(owner, name, getattr(owner, name)) for owner, name in (*here, (torch.nn.Module, "load_state_dict"))]
    try:
        torch.nn.Module.load_state_dict = kept  # type: ignore[method-assign]
        for owner, name in here:
            setattr(owner, name, lambda *_, **__: _None())
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
