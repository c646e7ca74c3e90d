"""What a caller has switched on around a call (gradients, inference mode, autocast) and must not become part of a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def no_grad_mode() -> Iterator[None]:
    """No gradients, no inference mode, no autocast within the block: the precision is the plan's."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
