"""The classes that weights of torchvision and timm tell apart, while a model has them and the last layer that they are for."""

from __future__ import annotations

import contextlib
import os
import types
import weakref
from collections.abc import Sequence

from torch import nn

_Known = tuple[weakref.ref[nn.Parameter], tuple[str, ...]]
_KNOWN: weakref.WeakKeyDictionary[nn.Module, _Known] = weakref.WeakKeyDictionary()
_BUILDERS = (os.path.join("torchvision", "models", ""), os.path.join("timm", "models", ""))


def note(module: nn.Module, caller: types.FrameType | None) -> None:
    """Hear that `caller` has filled a module: with the weights of a library, or with others, whose classes nobody knows."""
    for part in module.modules():
        _KNOWN.pop(part, None)
    names = _of_library(caller) if caller is not None else None
    last = _last(module)
    if names and last is not None:
        _KNOWN[module] = (weakref.ref(last), tuple(names))


def names_of(module: nn.Module, count: int) -> tuple[str, ...] | None:
    """The names of a module's `count` outputs; None where its last layer is another by now, or gives another number."""
    known = _KNOWN.get(module)
    return known[1] if known is not None and known[0]() is _last(module) and len(known[1]) == count else None


def _last(module: nn.Module) -> nn.Parameter | None:
    return next(reversed(list(module.parameters())), None)


def _of_library(caller: types.FrameType) -> Sequence[str] | None:
    """What the function of a library that makes a model says of the weights with which it fills it."""
    torchvisions, timms = (part in caller.f_code.co_filename for part in _BUILDERS)
    if torchvisions:
        meta = getattr(caller.f_locals.get("weights"), "meta", {})
        return meta.get("categories") if isinstance(meta, dict) else None
    if timms:
        with contextlib.suppress(ImportError):
            from timm.data import ImageNetInfo, infer_imagenet_subset

            subset = infer_imagenet_subset(caller.f_locals.get("pretrained_cfg") or {})
            return ImageNetInfo(subset).label_descriptions() if subset else None
    return None
