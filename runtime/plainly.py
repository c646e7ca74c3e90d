"""What a caller has switched on around a call (gradients, inference mode, autocast) and must not change a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_DEVICES = ("cpu", "cuda")


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """No gradients, no inference mode, no autocast within the block: the precision is the plan's."""
    with torch.inference_mode(False), torch.no_grad(), without_autocast():
        yield


def without_autocast() -> contextlib.AbstractContextManager[object]:
    """Autocast off within the block; costs nothing to speak of where it is off anyway."""
    switched_on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if not switched_on:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for device in switched_on:
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack
