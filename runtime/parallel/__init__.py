"""`headrace.parallel`: one program on many devices. Global tensors, the words for how they lie, and their conversions.

Importing this loads nothing of torch's distributed package: every graph asks `shares` whether a tensor is global.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sbp
    from .boxing import to_local
    from .conversions import to_global
    from .head import cross_entropy, topk
    from .mesh import placement, rank, same_start, world, world_size
    from .modules import boxed
    from .own_rows import local_view
    from .pipeline import Pipeline
    from .planner.apply import AppliedPlan, apply_plan
    from .private import guarded, implicit
    from .recovery.checkpoint import resume, save
    from .recovery.watch import watched
    from .states import load_state, whole

__all__ = [
    "AppliedPlan",
    "Pipeline",
    "apply_plan",
    "boxed",
    "cross_entropy",
    "guarded",
    "implicit",
    "load_state",
    "local_view",
    "placement",
    "rank",
    "resume",
    "same_start",
    "save",
    "sbp",
    "to_global",
    "to_local",
    "topk",
    "watched",
    "whole",
    "world",
    "world_size",
]

_HOMES = {
    "AppliedPlan": "planner.apply", "Pipeline": "pipeline", "apply_plan": "planner.apply",
    "boxed": "modules", "cross_entropy": "head", "guarded": "private", "implicit": "private",
    "load_state": "states", "local_view": "own_rows", "placement": "mesh", "rank": "mesh", "resume": "recovery.checkpoint",
    "same_start": "mesh", "save": "recovery.checkpoint", "to_global": "conversions", "to_local": "boxing", "topk": "head",
    "watched": "recovery.watch", "whole": "states", "world": "mesh", "world_size": "mesh",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "sbp":
        return importlib.import_module(".sbp", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace.parallel' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
