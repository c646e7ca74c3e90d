"""One capture or measurement at a time in the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import torch

LOCK = threading.RLock()
"""Held while modules are not themselves, because they are captured (evaluation mode, tensors without memory in place of
parameters), and while candidates are measured, which beside another would measure both."""


@contextlib.contextmanager
def locked(inputs: Sequence[object]) -> Iterator[None]:
    """Alone in the process, and without an autocast of the caller's: precisions are the plan's to choose."""
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
    with LOCK, contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
