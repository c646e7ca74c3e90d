"""The evaluation graph of a model that is trained meanwhile: compiled where that pays within one evaluation, else eager."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ...errors import HeadraceError, InputError
from ..base.config import GraphConfig
from ..inspect.journal import Journal
from ..inspect.recompiles import kinds_of
from .compiler import own_bucket
from .graph import ModuleGraph
from .watch import Watch

_HOME = "_headrace_evaluation"  # an attribute of the module, so that the step lives as long as it; copies of it are None
_PATIENCE = 10.0  # seconds; about what the capture and the plan of a ResNet-50 take on two cores
_GAIN = 0.03  # share of the eager time that a graph must save, to be compiled again
_TIMED = 16  # calls of each kind, after the weights changed
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def evaluation_step(model: nn.Module, *, patience: float | None = None, config: GraphConfig | None = None) -> EvaluationStep:
    """What to call instead of a model in an evaluation that comes again with other weights: `outputs = step(images)`.

    Weights that have just changed are evaluated eagerly, and a graph is compiled as soon as the time that it would have saved
    since then exceeds what compiling costs; at once, where the evaluation before was long enough for that. Both are measured;
    before the first compilation its cost is taken to be `patience` seconds (default: $HEADRACE_PATIENCE, else 10; 0 compiles
    at the first call). So an evaluation never takes much longer than eager, nor much longer than the better choice would have
    (ski rental: at most twice its time, Karlin et al. 1988, doi:10.1007/BF01762111). A model in training mode, or under
    gradients, is called as it is, and so is one that cannot be captured, with one warning.

    Asked for again with the same model it is the same step. Raises ValueError for a negative patience or no module.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got a {type(model).__name__}")
    known = vars(model).get(_HOME)
    if isinstance(known, EvaluationStep) and known.model is model and known.asked == (patience, config):
        return known
    step = EvaluationStep(model, patience=patience, config=config)
    vars(model)[_HOME] = step
    return step


@dataclass
class _Account:
    """What is known of one kind of batch. Times are seconds per row."""

    cost: float  # seconds of the latest compilation
    eager: float = 0.0
    graph: float | None = None
    rows: int = 0  # since the weights changed
    rows_before: int = 0  # of the evaluation before
    timed: list[int] = field(default_factory=lambda: [0, 0])  # calls timed since then, of the module and of the graph

    def note(self, graph: bool, seconds: float) -> None:
        """Keep the best time of each: what else the machine did in the others is not theirs."""
        if graph:
            self.graph = seconds if self.graph is None else min(self.graph, seconds)
        else:
            self.eager = seconds if self.eager == 0.0 else min(self.eager, seconds)

    def begin(self) -> None:
        """The weights have changed."""
        self.rows, self.rows_before, self.timed = 0, self.rows, [0, 0]

    @property
    def gain(self) -> float:
        """The share of the eager time that the graph saves; all of it, as long as nobody knows."""
        if self.graph is None or self.eager == 0.0:
            return 1.0
        gain = 1 - self.graph / self.eager
        return gain if gain >= _GAIN else 0.0

    def pays(self) -> bool:
        """Whether the rows seen since the weights changed, or those of the evaluation before, would have paid for a graph."""
        return self.eager * max(self.rows, self.rows_before) * self.gain >= self.cost and self.gain > 0


class EvaluationStep:
    """What `evaluation_step` returns; `graph` is the graph behind it, and `refused` says why there is none, if there is none.

    A copy or a pickle of it, as part of its module, is None.
    """

    def __init__(self, model: nn.Module, *, patience: float | None = None, config: GraphConfig | None = None) -> None:
        self.model = model
        self.asked = (patience, config)
        self.patience = _default_patience() if patience is None else patience
        if not self.patience >= 0:
            raise ValueError(f"patience must be seconds, 0 or more, got {self.patience!r}")
        self.graph = ModuleGraph(_unwrapped(model), config=config)
        self.refused: str | None = None
        self._accounts: dict[Hashable, _Account] = {}
        self._watch: Watch | None = None
        self._modules = list(model.modules())
        self._names: list[str] | None = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the model returns for inputs [batch, ...]; by the graph, where one is compiled and the model is evaluated.

        Inputs may be given by name, as `step(pixel_values=images)` and `step(**inputs)`.
        """
        inputs = self._in_order(args, named) if named else args
        if not self._evaluates(inputs):
            return self.model(*args, **named)
        ready = self.graph.ready(*inputs)
        account = self._account(inputs, fresh=ready)
        if not ready and account.pays():
            begin = time.perf_counter()
            try:
                outputs = self.graph(*inputs)
            except HeadraceError as error:
                self.refused = str(error)
                Journal(f"evaluation of {type(self.graph.model).__name__}").warn(f"stays eager: {error}")
                return self.model(*args, **named)
            account.cost = time.perf_counter() - begin
            return outputs
        account.rows += len(inputs[0])
        run = self.graph if ready else self.model
        if account.timed[ready] >= _TIMED:
            return run(*inputs)
        account.timed[ready] += 1
        begin = time.perf_counter()
        outputs = run(*inputs)
        if inputs[0].is_cuda:  # waiting for the device costs the overlap with loading data, hence only a few calls are timed
            torch.cuda.synchronize(inputs[0].device)
        account.note(ready, (time.perf_counter() - begin) / len(inputs[0]))
        return outputs

    def __repr__(self) -> str:
        state = f"eager: {self.refused}" if self.refused else f"{self.graph.captures} captures"
        return f"EvaluationStep({type(self.graph.model).__name__}, {state})"

    def __reduce__(self) -> Any:
        return type(None), ()

    def _in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The inputs as `forward` takes them by place; none where those given by name are not the next ones."""
        if self._names is None:
            parameters = inspect.signature(self.graph.model.forward).parameters.values()
            self._names = [item.name for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
        following = self._names[len(args) : len(args) + len(named)]
        return (*args, *(named[name] for name in following)) if set(following) == set(named) else ()

    def _evaluates(self, inputs: tuple[Any, ...]) -> bool:
        """Whether a graph may answer: evaluation mode, no gradients, plain batches, no capture under way around the call."""
        if self.refused is not None or torch.is_grad_enabled() or _under_capture():
            return False
        if any(module.training for module in self._modules):
            return False
        return bool(inputs) and all(map(_is_batch, inputs))

    def _account(self, inputs: tuple[torch.Tensor, ...], *, fresh: bool) -> _Account:
        """The account of such inputs; with `fresh` weights, which a ready graph was compiled for, nothing can have changed."""
        if self._watch is None or (not fresh and self._watch.changed()):
            self._watch, self._modules = Watch(self.graph), list(self.model.modules())
            for account in self._accounts.values():
                account.begin()
        key = (kinds_of(inputs), own_bucket(len(inputs[0]), inputs[0].device.type))
        if key not in self._accounts:
            self._accounts[key] = _Account(cost=self.patience)
        return self._accounts[key]


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


def _default_patience() -> float:
    text = os.environ.get("HEADRACE_PATIENCE", "")
    try:
        return float(text) if text else _PATIENCE
    except ValueError as error:
        raise InputError(f"HEADRACE_PATIENCE must be a number of seconds, it is {text!r}") from error
