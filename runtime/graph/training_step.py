"""The training graph of an ordinary loop: a model, a loss and an optimizer that are there already."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from ..base.config import GraphConfig
from ..base.structure import flatten
from ..training.trainer import refuse
from .graph import Graph

_HOME = (
    "_headrace_steps"  # an attribute of the optimizer, so that steps live as long as it; copies and pickles of it leave it out
)
_KEPT = 4  # steps of one optimizer
_PLAIN = (bool, int, float, str, bytes, type(None))
Batches = Literal["global", "shares", "whole"]


class TrainingStep(Graph):
    """What `training_step` returns. A call computes the outputs and the loss, back-propagates, and updates where it may."""

    def __init__(
        self,
        model: nn.Module,
        criterion: Callable[..., torch.Tensor],
        optimizer: torch.optim.Optimizer,
        divide: float,
        config: GraphConfig | None,
        options: dict[str, Any],
        batches: Batches = "global",
    ) -> None:
        super().__init__(config=config)
        self.model, self.criterion, self.divide, self.batches = model, criterion, divide, batches
        self._journal.title = f"step of {type(model).__name__}"
        self.add_optimizer(optimizer, **options)

    def build(self, images: torch.Tensor, *targets: torch.Tensor) -> tuple[torch.Tensor, Any]:
        outputs = self.model(images)
        loss = self.criterion(outputs, *targets)
        with torch.autocast(images.device.type, enabled=False):  # a loop's backward() stands outside of its autocast block
            (loss if self.divide == 1 else loss / self.divide).backward()
        return loss, outputs

    def _read(self) -> Sequence[object]:
        return () if isinstance(self.criterion, nn.Module) else (self.criterion,)

    def __call__(self, *inputs: Any) -> Any:
        """(loss, outputs), both without history, for the images and what the criterion takes beside the outputs.

        Numbers among the latter (mixup's share) become tensors of no dimension; a step with anything else runs eagerly. Raises
        InputError for images that are no tensor.
        """
        device = inputs[0].device if inputs and isinstance(inputs[0], torch.Tensor) else None
        given = [_number(value, device) if type(value) in (int, float) else value for value in inputs]
        if device is not None and self._trainer is not None and not all(isinstance(value, torch.Tensor) for value in given):
            with self._lock:
                return self._trainer.step(given, eagerly=True)
        if self.batches == "global":
            return super().__call__(*given)
        from ..parallel import own_rows

        mesh = own_rows.mesh_of(self.model.parameters())
        if mesh is None:  # as where a script was started alone
            return super().__call__(*given)
        entered = [own_rows.entered(value, mesh, self.batches) for value in given]
        return own_rows.left(super().__call__(*entered), self.batches)


class OwnOptimizerStep:
    """A step whose optimizer is an object of another kind, as one that wraps torch's: it runs as it would be written."""

    def __init__(
        self, model: nn.Module, criterion: Callable[..., torch.Tensor], optimizer: Any, divide: float, options: dict[str, Any]
    ) -> None:
        self.model, self.criterion, self.optimizer, self.divide, self.options = model, criterion, optimizer, divide, options

    def __call__(self, images: torch.Tensor, *targets: Any) -> tuple[torch.Tensor, Any]:
        """(loss, outputs), both without history."""
        outputs = self.model(images)
        loss = self.criterion(outputs, *targets)
        scaler, norm, value = (self.options[name] for name in ("grad_scaler", "clip_grad_norm", "clip_grad_value"))
        with torch.autocast(images.device.type, enabled=False):
            divided = loss if self.divide == 1 else loss / self.divide
            (divided if scaler is None else scaler.scale(divided)).backward()
        if self.options["update"]:
            if value is not None:
                nn.utils.clip_grad_value_(self.model.parameters(), value)
            if norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        leaves, structure = flatten(outputs, torch.is_tensor, refuse)
        return loss.detach(), structure.rebuild([leaf.detach() for leaf in leaves])


def training_step(
    model: nn.Module,
    criterion: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    update: bool = True,
    divide: float = 1,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    accumulate: int = 1,
    grad_scaler: torch.amp.GradScaler | None = None,
    lr_scheduler: Any = None,
    batches: Batches = "global",
    config: GraphConfig | None = None,
) -> TrainingStep:
    """The training graph of a loop: `loss, outputs = step(images, targets)` is a step; `criterion(outputs, targets)` its loss.

    A call does what `optimizer.zero_grad()`, `model(images)`, the criterion, `loss.backward()` and `optimizer.step()` do; see
    `Graph.add_optimizer` for the options. With `update=False` it ends after `backward()`, and `zero_grad`, clipping, the
    scaler's and the optimizer's steps stay yours: gradients are added to `.grad` as eager adds them. `divide` divides what is
    back-propagated, not the loss that comes back. An autocast around the call holds for outputs and loss.

    Where the model's parameters are global (`headrace.parallel`), so are images and targets, loss and outputs. With `batches`
    "shares" they are plain tensors: each rank gives its own rows, as a DistributedSampler deals them out, and gets the outputs
    of those, and the loss of the rows of all ranks. With "whole" every rank gives the whole batch and gets whole outputs.

    Asked for again with the same objects, as a function that trains one epoch does, it is the same graph, and captured once.
    Where model and loss cannot be captured, or capture is no gain, the same steps run eagerly; `steps` says which and why.
    Those of an optimizer that is none of torch's classes, as one that wraps another, run eagerly, with a warning.
    Raises ValueError for options that contradict each other or an optimizer that needs a closure.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got a {type(model).__name__}")
    if not callable(criterion):
        raise ValueError(f"criterion must be callable with (outputs, *targets), got a {type(criterion).__name__}")
    if not divide > 0:
        raise ValueError(f"divide must be positive, got {divide!r}")
    if batches not in ("global", "shares", "whole"):
        raise ValueError(f'batches are "global", "shares" or "whole", got {batches!r}')
    options = {
        "update": update,
        "clip_grad_norm": clip_grad_norm,
        "clip_grad_value": clip_grad_value,
        "accumulate": accumulate,
        "grad_scaler": grad_scaler,
        "lr_scheduler": lr_scheduler,
    }
    plain = accumulate == 1 and lr_scheduler is None and (grad_scaler is None or not update)
    if not isinstance(optimizer, torch.optim.Optimizer) and callable(getattr(optimizer, "zero_grad", None)) and plain:
        warnings.warn(f"a {type(optimizer).__name__} is no torch.optim.Optimizer, so its steps run eagerly", stacklevel=2)
        return OwnOptimizerStep(model, criterion, optimizer, divide, options)  # type: ignore[return-value]
    parts = _parts(criterion)
    key = (id(model), *map(_value, parts), divide, batches, config, *options.values(), _settings([model, *parts]))
    kept: list[tuple[Hashable, list[Any], TrainingStep]] = vars(optimizer).setdefault(_HOME, [])
    for known, _, step in kept:
        if known == key:
            return step
    step = TrainingStep(model, criterion, optimizer, divide, config, options, batches)
    kept.append((key, parts, step))  # what is known by its identity must live as long
    del kept[:-_KEPT]
    return step


def _number(value: float, device: torch.device | None) -> torch.Tensor:
    """As a tensor; a whole number stays one, since it may be an index."""
    return torch.tensor(value, dtype=torch.get_default_dtype() if type(value) is float else torch.int64, device=device)


def _parts(criterion: Callable[..., Any]) -> list[Any]:
    """What makes a criterion what it is. A function written in place is a new object each time, and the same where its code and
    what it reads are."""
    if not isinstance(criterion, types.FunctionType):
        return [criterion]
    cells = [_content(cell) for cell in criterion.__closure__ or ()]
    read = [criterion.__globals__.get(name) for name in criterion.__code__.co_names]
    return [criterion.__code__, *cells, *read, *(criterion.__defaults__ or ())]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _value(item: Any) -> Hashable:
    return (type(item), item) if type(item) in (*_PLAIN, types.CodeType) else id(item)


def _settings(parts: Iterable[Any]) -> Hashable:
    """Plain numbers and names in the modules' attributes, which a captured step has as constants (a dropout's share, say)."""
    modules = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    return tuple(
        tuple((name, value) for name, value in vars(module).items() if name != "training" and type(value) in _PLAIN)
        for module in modules
    )
