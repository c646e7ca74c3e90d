"""Runs a graph that has an optimizer: each call is a step. Captured where that is possible and faster, else eager.

The first step of a kind always runs eagerly: it lets the optimizer create its state, and proves the captured step, which is run
on copies of everything and must give the same. The next ones take turns, timed, until the faster is known; all count.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import nn

from ...errors import BackendError, InputError
from ..base.config import GraphConfig
from ..base.structure import Structure, flatten
from ..capture.capture import input_names
from ..inspect.journal import Journal, operations_text
from ..inspect.recompiles import Recompile
from ..parallel.agreement import Agreement
from ..parallel.shares import allowing, guarding, is_global, simulated
from .collectives import bucket_collectives, plan_buckets
from .constants import Constants
from .forms import StepForm, forms_for, race
from .kinds import StepKind
from .options import StepRecord, TrainingOptions
from .state import TrainingState, kind
from .step import CapturedStep, NotCapturedError, capture_step
from .surroundings import (
    ScaledBackward,
    checkpointed,
    difference,
    evaluating,
    exchanging,
    random_state,
    set_random_state,
)
from .turns import Turns

log = logging.getLogger("headrace.training")

_WAYS = ("eager", "captured", "inductor")
_PHASES = 2  # kinds of step that each shape of the inputs may bring: with the update, and without
_MOST_SETTINGS = 4  # captures for changed hyperparameters, after which the update stays in Python
_AS_EAGER = StepForm()
_CHOICE = {"fp32", "bf16"}  # precisions that may be left to the trial of forms; fp16 needs a scaler
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainer:
    """The steps of one graph. `build` runs forward and backward; the rest is here. The caller makes one call at a time."""

    def __init__(
        self,
        build: Callable[..., Any],
        modules: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        options: TrainingOptions,
        config: GraphConfig,
        journal: Journal,
        *,
        inference: bool = False,
        constants: Sequence[object] = (),
    ) -> None:
        if config.backend not in (None, *_WAYS):
            raise BackendError(f"a training graph runs {', '.join(_WAYS)}; {config.backend!r} is for inference")
        if not (len(config.precisions) <= 1 or set(config.precisions) == _CHOICE) or config.precision in ("fp8", "int8"):
            able = "fp32, bf16, fp16, or the faster of fp32,bf16"
            raise BackendError(f"a training graph computes in {able}; {config.precision} is for inference")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer must be a torch.optim.Optimizer, got a {type(optimizer).__name__}")
        if _needs_closure(optimizer):
            name = type(optimizer).__name__
            raise ValueError(
                f"{name} computes the loss several times per step, and a training graph once; train with it eagerly"
            )
        self.optimizer, self.options, self.config = optimizer, options, config
        # Without the update a step knows nothing of the optimizer: what that keeps or is set to makes no capture anew.
        self.state = TrainingState(modules, optimizer if options.update else without_settings(modules))
        self._eager_only = exchanging(modules)
        self._inference = inference
        self.updates = 0
        self.captures = 0
        self.recompiles: list[Recompile] = []
        self._journal = journal
        self._build = build
        self._constants = Constants([*modules, *constants])
        self._owners = [owner] if (owner := getattr(build, "__self__", None)) is not None else []
        self._compiled = torch.compile(build) if config.backend == "inductor" else build
        self._micro = 0  # backward passes since the last update
        self._kinds: dict[StepKind, Turns] = {}
        self._settings: set[Hashable] = set()
        self._forms: list[StepForm] | None = None  # the one that was chosen for the first kind of step; None before
        self._plain: set[Hashable] = set()  # inputs (and phase) for which eager is known to be as fast

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """How each kind of step that was seen lately runs."""
        return tuple(item.record for item in self._kinds.values())

    def step(self, inputs: Sequence[Any], *, eagerly: bool = False) -> Any:
        """Forward, backward and, every `accumulate`-th time, the update. What build returns comes back without its history.

        `eagerly` is for inputs of which some are no tensors.
        """
        updates = self.options.update and self._micro + 1 >= self.options.accumulate
        if eagerly or self._shown(inputs, updates) in self._plain:  # eager is right whatever changed
            leaves, structure = self._eagerly(inputs, updates, self._build)
        else:
            self.state.look()
            leaves, structure = self._run(self._key(inputs, updates), inputs, updates)
        self._micro = 0 if updates else self._micro + 1
        if updates:
            self.updates += 1
            if self.options.lr_scheduler is not None:
                self.options.lr_scheduler.step()
        return structure.rebuild(leaves)

    def state_dict(self) -> dict[str, Any]:
        """Plain containers and tensors: what `torch.load(weights_only=True)` reads."""
        scheduler, scaler = self.options.lr_scheduler, self.options.grad_scaler
        self.state.look()
        return {
            "optimizer": self.optimizer.state_dict(),
            "lr_scheduler": None if scheduler is None else scheduler.state_dict(),
            "grad_scaler": None if scaler is None else scaler.state_dict(),
            "accumulated": self._micro,
            "gradients": self.state.gradients() if self._micro else {},
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` was called, between two updates also."""
        if missing := {"optimizer", "lr_scheduler", "grad_scaler", "accumulated", "gradients", "updates"} - set(state):
            raise InputError(f"the training state lacks {', '.join(sorted(missing))}")
        self.optimizer.load_state_dict(state["optimizer"])
        for part, name in ((self.options.lr_scheduler, "lr_scheduler"), (self.options.grad_scaler, "grad_scaler")):
            if part is not None and state[name] is not None:
                part.load_state_dict(state[name])
        self.updates = int(state["updates"])
        self._micro = int(state["accumulated"])
        self.state.look()
        self.state.set_gradients(state["gradients"])

    def _shown(self, inputs: Sequence[torch.Tensor], updates: bool) -> Hashable:
        return tuple(kind(value) for value in inputs), updates, _autocast(inputs[0].device.type)

    def _key(self, inputs: Sequence[torch.Tensor], updates: bool) -> StepKind:
        return StepKind(
            tuple(kind(value) for value in inputs),
            updates,
            self.state.layout(),
            self.state.hyperparameters(),
            _autocast(inputs[0].device.type),
            self._constants.now(),
        )

    def _kind(self, key: StepKind) -> Turns:
        item = self._kinds.pop(key, None) or Turns(StepRecord(tuple(tuple(value[0]) for value in key.inputs)))
        self._kinds[key] = item  # at the end: the first one is the one longest unused
        while len(self._kinds) > _PHASES * self.config.max_captures:
            self._kinds.pop(next(iter(self._kinds)))
        return item

    def _count(self, key: StepKind) -> None:
        """Count a capture, and find what made it needed: what differs from the captured step that it is most like."""
        self.captures += 1
        names = input_names(self._build, len(key.inputs))
        others = [other for other, item in self._kinds.items() if item.tried and other != key]
        differences = min((key.differences(other, names) for other in others), key=len, default=[])
        why = "; ".join(differences) or "the steps captured before were dropped"
        if self.captures > 1:
            self.recompiles.append(Recompile(self.captures, why))
        shapes = ", ".join(f"{name} {list(value[0])}" for name, value in zip(names, key.inputs, strict=True))
        self._journal.report(1, f"capture {self.captures}, of a step for {shapes}" + (f": {why}" if self.captures > 1 else ""))

    def _run(self, key: StepKind, inputs: Sequence[torch.Tensor], updates: bool) -> tuple[list[torch.Tensor], Structure]:
        if not self.updates and self.state.strangers():
            self._check_global(inputs)
        item = self._kind(key)
        if why := self._eager_only or ("several ranks are simulated in this process" if simulated() else ""):
            item.record.why = why
            return self._eagerly(inputs, updates, self._build)
        if not item.tried and not self._inference and (why := self._constants.obstacle(inputs)):
            item.record.why = why
            return self._eagerly(inputs, updates, self._build)
        if self.config.backend in ("eager", "inductor"):
            item.record.way, item.record.why = self.config.backend, "as configured"
            return self._eagerly(inputs, updates, self._compiled)
        if updates and not self.updates and not self.optimizer.state:
            item.record.why = "the optimizer makes its state in its first update"
            return self._eagerly(inputs, updates, self._build)
        if not item.tried:
            item.tried = True
            self._count(key)
            begin = time.perf_counter()
            result = self._capture(item, inputs, updates)
            self._journal.report(
                1, f"{item.record}, after {time.perf_counter() - begin:.2f} s with the eager step that proves it"
            )
            if item.captured is not None and self._journal.level >= 3:
                self._journal.report(3, f"operations captured:\n{operations_text(item.captured.program.graph.nodes)}")
            return result
        if item.captured is None:
            return self._eagerly(inputs, updates, self._build)
        way = "captured" if self.config.backend == "captured" else item.next()
        begin = _now(inputs)
        result = (
            self._replayed(item.captured, inputs, updates) if way == "captured" else self._eagerly(inputs, updates, self._build)
        )
        if item.record.captured_ms is None:
            if item.took(way, _now(inputs) - begin):
                self._journal.report(1, f"timed: {item.record}")
            if item.record.way == "eager":
                self._plain.add(self._shown(inputs, updates))
        return result

    def _eagerly(
        self, inputs: Sequence[torch.Tensor], updates: bool, build: Callable[..., Any]
    ) -> tuple[list[torch.Tensor], Structure]:
        outputs = self._forward(build, self._scale(inputs[0].device), *inputs)
        leaves, structure = flatten(outputs, torch.is_tensor, refuse)
        if updates:
            self._update()
        return [value.detach() for value in leaves], structure

    def _forward(
        self, build: Callable[..., Any], scale: torch.Tensor, *inputs: torch.Tensor, form: StepForm = _AS_EAGER
    ) -> Any:
        dtype = _AUTOCAST.get(form.precision or self.config.precision)
        cast = torch.autocast(inputs[0].device.type, dtype=dtype) if dtype else contextlib.nullcontext()
        scaled = ScaledBackward(scale) if self.options.grad_scaler is not None else contextlib.nullcontext()
        guard = guarding(inputs)
        if self._inference:
            with torch.no_grad(), cast, guard, evaluating(list(self.state.container)):
                return build(*inputs)
        with torch.enable_grad(), cast, scaled, guard, checkpointed(self.options.checkpoint):
            return build(*form.laid_out(inputs))

    def _scale(self, device: torch.device) -> torch.Tensor:
        scaler = self.options.grad_scaler
        if scaler is None:
            return torch.ones((), device=device)
        return scaler.scale(torch.ones((), device=device))

    def _update(self) -> None:
        """The user's optimizer on the gradients that stand in the parameters, which are then gone."""
        scaler = self.options.grad_scaler
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if self.options.clip_grad_value is not None or self.options.clip_grad_norm is not None:
            self.state.look()
            self._clip(list(self.state.parameters.values()))
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _clip(self, parameters: Sequence[torch.Tensor]) -> None:
        with allowing(parameters):  # the norm is that of all gradients, wherever they lie
            if self.options.clip_grad_value is not None:
                nn.utils.clip_grad_value_(parameters, self.options.clip_grad_value)
            if self.options.clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(parameters, self.options.clip_grad_norm)

    def _traced_update(self, shadow: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        self._clip(parameters)
        with torch.no_grad():
            type(self.optimizer).step(shadow)

    def _capture(self, item: Turns, inputs: Sequence[torch.Tensor], updates: bool) -> tuple[list[torch.Tensor], Structure]:
        """Run the step eagerly, and hold a captured one to what it did."""
        record = item.record
        reasons: list[str] = []
        forward = functools.partial(self._forward, self._build)
        scale = self._scale(inputs[0].device)
        step, owners = None, [*self._owners, *self._constants.holders()]
        item.agreement = Agreement([*self.state.parameters.values(), *self.state.buffers.values(), *inputs])
        if self.state.strangers():
            self._check_global(inputs)
            record.why = "the optimizer updates a tensor that belongs to none of the graph's modules"
            return self._eagerly(inputs, updates, self._build)
        for update in [self._traced_update, None] if updates and not self._stays_in_python(reasons) else [None]:
            failed = None
            try:
                step = capture_step(forward, self.state, inputs, scale, update, owners, traces=self._journal.level >= 3)
            except NotCapturedError as error:
                failed = error.part, str(error)
            failed = item.agreement.any(failed)
            if failed is None:
                if item.agreement and step is not None:
                    self._bucket(step, item.agreement)
                record.update = "captured" if update else "after"
                break
            step = None
            reasons.append(failed[1])
            if failed[0] != "update":
                break
        record.why = "; ".join(reasons)
        if step is None:
            record.why = reasons[-1]
            log.warning("training runs eagerly: %s", record.why)
            return self._eagerly(inputs, updates, self._build)
        whole = record.update == "captured"
        exact, others = self._captured_forms(record, step, inputs, scale)
        copies = [value.clone() for value in self.state.tensors(step.slots)]
        begin = [value.clone() for value in copies] if others else []
        device = inputs[0].device
        random = random_state(device)
        leaves, structure = self._eagerly(inputs, updates and whole, self._build)
        gradients = [self.state.parameters[name].grad for name in step.gradients]
        expected = [*self.state.written(step.slots), *leaves, *(value for value in gradients if value is not None)]
        after = random_state(device)
        set_random_state(device, random)
        try:
            results = step.run(copies, scale, inputs)
            why = difference(expected, [*step.written(copies), *results], step.tolerance)
        except Exception as error:  # noqa: BLE001 - a captured step that fails must cost speed only; the record says what happened
            why = f"{type(error).__name__}: {error}"
        finally:
            set_random_state(device, after)
        why = item.agreement.any(why)
        if updates and not whole:
            self._update()
        if why:
            record.why = f"the captured step does not do what eager does: {why}"
            log.warning("training runs eagerly: %s", record.why)
        else:
            item.captured, record.way = step, "captured"
            if others:
                form, verdicts = race(exact, others, begin, scale, inputs, seconds=self.config.seconds(device.type))
                record.tried |= verdicts
                self._forms = [] if form is None else [form]
                if form is not None:
                    item.captured, record.form = others[form], str(form)
        for name, verdict in record.tried.items():
            self._journal.report(1, f"{name}: {verdict}")
        return leaves, structure

    def _check_global(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raise InputError where the optimizer's tensor that is no parameter is one that is made anew at each reading."""
        if any(map(is_global, inputs)):
            raise InputError(
                "the optimizer updates a tensor that is none of the graph's parameters; of a global module, module.weight is a "
                "conversion that is made when it is read: give the optimizer module.parameters(), or dict("
                "module.named_parameters())['weight']"
            )

    def _bucket(self, step: CapturedStep, agreement: Agreement) -> None:
        """Let collectives go together, where all ranks would let the same ones."""
        plan = plan_buckets(step.program)
        unlike = "other collectives than on another rank" if agreement.first(plan.described()) != plan.described() else None
        if agreement.any(unlike) is None and plan:
            bucket_collectives(step.program, plan)

    def _captured_forms(
        self, record: StepRecord, step: CapturedStep, inputs: Sequence[torch.Tensor], scale: torch.Tensor
    ) -> tuple[CapturedStep, dict[StepForm, CapturedStep]]:
        """The step with its gradients, and what may be faster; for later kinds of step only the form that was for the first."""
        forms = forms_for(self.config.precisions, inputs, self.optimizer, updates=step.updates)
        if any(map(is_global, inputs)):  # each rank would choose one by its own times
            forms = []
        if self._forms is not None:
            forms = [form for form in forms if any(form.computes_as(known) for known in self._forms)]
        update = self._traced_update if step.updates else None
        found: dict[StepForm, CapturedStep] = {}
        for form in [_AS_EAGER, *forms] if forms else []:
            forward = functools.partial(self._forward, self._build, form=form)
            try:
                found[form] = capture_step(
                    forward,
                    self.state,
                    inputs,
                    scale,
                    update,
                    self._owners,
                    fused=form.fused,
                    compared=True,
                    dtypes=step.dtypes,
                )
            except NotCapturedError as error:
                record.tried[str(form) or "every form"] = f"refused: {error}"
                if form == _AS_EAGER:  # nothing to hold the others to
                    break
        return found.pop(_AS_EAGER, step), found

    def _stays_in_python(self, reasons: list[str]) -> bool:
        if self.options.grad_scaler is not None:
            reasons.append("the scaler decides in Python whether to update")
            return True
        self._settings.add(self.state.hyperparameters())
        if len(self._settings) > _MOST_SETTINGS:
            reasons.append("settings of the optimizer beside its learning rate change from step to step")
            return True
        return False

    def _replayed(
        self, step: CapturedStep, inputs: Sequence[torch.Tensor], updates: bool
    ) -> tuple[list[torch.Tensor], Structure]:
        results = step.run(self.state.tensors(step.slots), self._scale(inputs[0].device), inputs)
        if not step.updates:
            for name, gradient in zip(step.gradients, results[step.leaves :], strict=True):
                self.state.parameters[name].grad = gradient
        if updates:
            if step.updates:
                self.optimizer.zero_grad(set_to_none=True)
            else:
                self._update()
        return results[: step.leaves], step.structure


def refuse(where: str, value: object) -> None:
    raise BackendError(f"{where} of build is a {type(value).__name__}; a training graph returns tensors")


def without_settings(modules: Sequence[nn.Module]) -> torch.optim.Optimizer:
    """An optimizer that is never asked to update, for a trainer whose steps end without."""
    return torch.optim.SGD(dict.fromkeys(value for module in modules for value in module.parameters()), lr=0.0)


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _autocast(device: str) -> Hashable:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _now(inputs: Sequence[torch.Tensor]) -> float:
    if inputs[0].device.type == "cuda":
        torch.cuda.synchronize(inputs[0].device)
    return time.perf_counter()
