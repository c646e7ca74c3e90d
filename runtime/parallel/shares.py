"""Global tensors taken apart into this rank's shares and put together again: what a captured program takes and gives.

This module imports torch's distributed package only where there is a global tensor, since every training step asks it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch


def is_global(value: object) -> bool:
    """Whether a value is a global tensor; at no cost where none was ever made."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def taken_apart(values: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
    """The shares of global tensors, plain tensors as they are; and for each how it lies, None for a plain one."""
    if not any(map(is_global, values)):
        return list(values), [None] * len(values)
    from . import private

    shares = [private.share(value) if is_global(value) else value for value in values]
    return shares, [private.spec_of(value) if is_global(value) else None for value in values]


def put_together(shares: Sequence[torch.Tensor], layouts: Sequence[Any]) -> list[torch.Tensor]:
    """What `taken_apart` was given, around these shares."""
    if not any(layout is not None for layout in layouts):
        return list(shares)
    from . import private

    pairs = zip(shares, layouts, strict=True)
    return [share if layout is None else private.around(share, layout) for share, layout in pairs]


def share_of(value: torch.Tensor) -> torch.Tensor:
    """This rank's share of a global tensor, a plain one as it is; both without a history, sharing the memory."""
    if not is_global(value):
        return value.detach()
    from . import private

    return private.share(value)


def around_like(share: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The global tensor that lies as `like` and has this share; the share itself where `like` is a plain tensor."""
    if not is_global(like):
        return share
    from . import private

    return private.around(share, private.spec_of(like))


def layout_of(value: torch.Tensor) -> Any:
    """How a tensor lies, for telling one kind of step from another: the mesh and the placements, None for a plain one."""
    if not is_global(value):
        return None
    return _lying(value.device_mesh, value.placements)


@functools.lru_cache(maxsize=256)  # asked of every tensor at every step, of which few lie otherwise than others
def _lying(mesh: Any, placements: tuple[Any, ...]) -> Any:
    return tuple(mesh.mesh.flatten().tolist()), tuple(mesh.shape), tuple(map(str, placements))


def guarding(values: Iterable[object]) -> contextlib.AbstractContextManager[None]:
    """Where one of these is a global tensor: nothing moves by itself within, and errors name lines (`private.guarded`)."""
    if not any(map(is_global, values)):
        return contextlib.nullcontext()
    from . import private

    return private.guarded()


def allowing(values: Iterable[object]) -> contextlib.AbstractContextManager[None]:
    """Where one of these is a global tensor: operators may move them, as for a norm over all of them."""
    if not any(map(is_global, values)):
        return contextlib.nullcontext()
    from . import private

    return private.implicit()


def simulated() -> bool:
    """Whether several ranks are simulated in this process (LocalTensorMode), whose programs are not one rank's."""
    module = sys.modules.get("torch.distributed._local_tensor")
    return module is not None and module.local_tensor_mode() is not None


def own_memory(value: Any) -> Any:
    """Where ranks are simulated, the global tensor with memory of its own on each, as real ones have."""
    module = sys.modules.get("torch.distributed._local_tensor")
    if module is None or module.local_tensor_mode() is None:
        return value
    from . import private

    share = private.share(value)
    if not isinstance(share, module.LocalTensor):
        share = module.rank_map(lambda _: share.clone())
    return private.around(share.clone(), private.spec_of(value))
