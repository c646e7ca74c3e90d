"""Headrace: a PyTorch image-classification repository, migrated to graph mode, compiled with a measured plan, served.

`import headrace` is quick: torch and the rest are imported when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

__all__ = ["Graph", "GraphConfig", "__version__", "compile", "evaluation_step", "load", "migrate", "parallel", "training_step"]

if TYPE_CHECKING:
    from . import migrate
    from .runtime import parallel
    from .runtime.base.config import GraphConfig
    from .runtime.graph.compile import compile
    from .runtime.graph.graph import Graph
    from .runtime.graph.loaded import load
    from .runtime.graph.tiered.evaluation_step import evaluation_step
    from .runtime.graph.training_step import training_step

_HOMES = {
    "Graph": "runtime.graph.graph",
    "compile": "runtime.graph.compile",
    "evaluation_step": "runtime.graph.tiered.evaluation_step",
    "load": "runtime.graph.loaded",
    "GraphConfig": "runtime.base.config",
    "training_step": "runtime.graph.training_step",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "migrate":  # the subpackage itself, which is callable
        return importlib.import_module(".migrate", __name__)
    if name == "parallel":  # likewise, and it imports torch
        from .extras import require

        require("headrace.parallel", "migrate")
        return importlib.import_module(".runtime.parallel", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    if name != "GraphConfig":
        from .extras import require

        require(f"headrace.{name}", "migrate")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
