"""`headrace.compile`: the graph of a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError
from .tiered.tiered_graph import TieredGraph

if TYPE_CHECKING:
    from ...specs import Preprocessing
    from ..base.config import GraphConfig
    from ..tuning.autotuner import Progress
    from .graph import Graph


def compile(
    model: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    config: GraphConfig | None = None,
    images: Any = None,
    labels: Any = None,
    calibration: Any = None,
    preprocessing: Preprocessing | None = None,
    progress: Progress | None = None,
) -> Graph | TieredGraph:
    """The graph of a module.

    With example inputs or images it is captured and tuned now, with a configuration alone at its first call. With the module
    alone it is a `TieredGraph`: the module answers until a packaged model of the same weights, or a capture, pays.
    See `Graph.compile` for images, labels, calibration and preprocessing. Raises InputError where `model` is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"compile takes an nn.Module, got a {type(model).__name__}; a headrace.Graph's build may be any function"
        )
    if example_inputs is None and images is None and config is None:
        return TieredGraph(model)
    from .graph import ModuleGraph  # what captures takes a third of a second to import, which a script may not need

    if example_inputs is None and images is None:
        return ModuleGraph(model, config=config)
    given = () if example_inputs is None else example_inputs
    examples = tuple(given) if isinstance(given, tuple | list) else (given,)
    return ModuleGraph(model, config=config).compile(
        *examples, images=images, labels=labels, calibration=calibration, preprocessing=preprocessing, progress=progress
    )
