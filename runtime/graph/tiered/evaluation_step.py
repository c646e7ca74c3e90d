"""The evaluation graph of a model that is trained meanwhile: compiled where that pays within one evaluation, else eager."""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from ....errors import HeadraceError, InputError
from ...base.config import GraphConfig
from ...capture.no_grad_mode import no_grad_mode
from .constants import tensors
from .tiered_graph import TieredGraph

_HOME = "_headrace_evaluation"  # an attribute of the module, so that the step lives as long as it; copies of it are empty
_PAUSE = 0.2  # seconds between two requests that are of one evaluation at most
_NORMED = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # numbers of 8 bits have no norm
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def evaluation_step(model: nn.Module, *, patience: float | None = None, config: GraphConfig | None = None) -> EvaluationStep:
    """What to call instead of a model in an evaluation that comes again with other weights: `outputs = step(images)`.

    Weights that have just changed are evaluated eagerly. A packaged model with these very weights is taken from models/ beside
    the script once eager calls took a second, and a graph is compiled where the evaluation before was long enough to pay for
    it, or this one is, ten times over. Both are measured; before the first compilation its cost is taken to be `patience`
    seconds (default: $HEADRACE_PATIENCE, else 10; 0 compiles at the first call). So an evaluation takes at most about a tenth
    longer than eager. A model in training mode, or under gradients, is called as it is, and so is one that cannot be captured,
    with one warning.

    Asked for again with the same model it is the same step. What can be called and is no module, such as a function around
    several models, is given back as it is, with one warning. Raises ValueError for a negative patience, or what cannot be
    called.
    """
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise ValueError(f"model must be an nn.Module, got a {type(model).__name__}")
        warnings.warn(f"a {type(model).__name__} is no nn.Module, so it is called as it is", stacklevel=2)
        return model  # type: ignore[no-any-return]
    known = vars(model).get(_HOME)
    if isinstance(known, EvaluationStep) and known.model is model and known.asked == (patience, config):
        known.look()
        return known
    step = EvaluationStep(model, patience=patience, config=config)
    vars(model)[_HOME] = step
    return step


class EvaluationStep:
    """What `evaluation_step` returns; `graph` is the graph behind it, and `refused` says why there is none, if there is none.

    A copy or a pickle of it, as part of its module, is an empty table: of a type that modules are pickled with anyway, so that
    whoever loads the module with `weights_only` has to allow no more than before.
    """

    def __init__(self, model: nn.Module, *, patience: float | None = None, config: GraphConfig | None = None) -> None:
        self.model = model
        self.asked = (patience, config)
        self.graph = TieredGraph(_unwrapped(model), config=config, patience=patience, eager=model)
        self._sizes: list[float] | None = None
        self._looked = float("-inf")
        self.look()

    @property
    def patience(self) -> float:
        """What a capture is taken to cost before the first one, in seconds."""
        return self.graph.patience

    @property
    def refused(self) -> str | None:
        """Why the model cannot be captured; None where it can, or nobody tried."""
        return self.graph.refused

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the model returns for inputs [batch, ...]; by the graph, where one is compiled and the model is evaluated.

        Inputs may be given by name, as `step(pixel_values=images)` and `step(**inputs)`, and constants beside them.
        """
        if not self._evaluates(tensors(args, named)):
            return self.model(*args, **named)
        try:
            outputs = self.graph(*args, **named)
            if self._sizes is None and self._by_graph:  # the weights that a later look compares with
                self._sizes = self._weighed()
            return outputs
        except InputError:  # sparse, or not equally many rows: the model's own business
            return self.model(*args, **named)
        except HeadraceError as error:
            self.graph.refuse(error)
            return self.model(*args, **named)

    def look(self) -> None:
        """Begin anew where weights are others that torch counts no write to, as averages written through `.data`.

        Asked for again and again within one evaluation, it looks at the first time alone.
        """
        begin, self._looked = self._looked, time.monotonic()
        if self._looked - begin < _PAUSE or _under_capture():
            return
        # A look at all weights may take as long as a call with one image, and the model itself needs none.
        before, self._sizes = self._sizes, self._weighed() if self._by_graph else None
        if before is not None and before != self._sizes and not all(graph.noticed for graph in self.graph.answering):
            model, (patience, config) = _unwrapped(self.model), self.asked
            self.graph = TieredGraph(model, config=config, patience=patience, eager=self.model)
            self._sizes = None

    @property
    def _by_graph(self) -> bool:
        """Whether a graph has answered."""
        return bool(self.graph.answering)

    def _weighed(self) -> list[float]:
        """The norms of its weights; none where they are not there yet, or on several devices."""
        held = [*self.model.parameters(), *self.model.buffers()]
        if any(type(value) not in (nn.Parameter, torch.Tensor) for value in held):
            return []
        return _sizes(
            [value for value in held if value.dtype in _NORMED and value.layout == torch.strided and not value.is_meta]
        )

    def __repr__(self) -> str:
        state = f"eager: {self.refused}" if self.refused else f"{self.graph.captures} captures"
        return f"EvaluationStep({type(self.graph.model).__name__}, {state})"

    def __reduce__(self) -> Any:
        return OrderedDict, ()

    def _evaluates(self, inputs: tuple[Any, ...]) -> bool:
        """Whether a graph may answer: evaluation mode, no gradients, plain batches, no capture under way around the call."""
        if self.refused is not None or torch.is_grad_enabled() or _under_capture():
            return False
        if getattr(self.model, "training", False) or not self.graph.evaluates:
            return False
        return bool(inputs) and all(map(_is_batch, inputs))


def _sizes(tensors: list[torch.Tensor]) -> list[float]:
    """Their norms, with one wait for each device."""
    found: list[float] = []
    with no_grad_mode():
        for device in dict.fromkeys(value.device for value in tensors):
            norms = torch._foreach_norm([value for value in tensors if value.device == device])
            found += torch.stack([size.double() for size in norms]).tolist()
    return found


def _under_capture() -> bool:
    return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())


def _is_batch(value: Any) -> bool:
    """Images in half precision go to a model that somebody brought to half precision: its graph would compute in fp32."""
    half = (torch.float16, torch.bfloat16)
    return isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) > 0 and value.dtype not in half


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module that computes: a wrapper's work is between devices and for gradients, which evaluation has none of."""
    while isinstance(model, _WRAPPERS):
        model = model.module
    return model
