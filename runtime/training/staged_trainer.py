"""The steps of a graph whose modules are stages of a pipeline: each rank computes and updates its own stages alone."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

from ...errors import InputError
from ..base.config import GraphConfig
from ..base.structure import Structure, flatten
from ..parallel.boxing import to_global
from ..parallel.buckets import buckets
from ..parallel.sbp import broadcast
from ..parallel.schedule import PipelineMesh
from ..parallel.shares import around_like, guarding, share_of
from ..parallel.stage_parameters import StageParameters, elsewhere, tensor_axes
from ..parallel.states import like, of_optimizer
from ..parallel.states import whole as whole_state
from .kinds import StepKind
from .options import StepRecord
from .pipeline_run import Exchanges, PipelineRun, assembled, of_all_rows
from .stage_recorder import StageRecorder
from .stage_split import StagedStep, split_step
from .stage_zero import StageZero
from .step import NotCapturedError, capture_step
from .trainer import Trainer, refuse

_EXACT = {torch.float64: 1e-9, torch.float32: 1e-4}  # of a value's range: what sums in another order may differ by
_REDUCED = 2e-2  # the same in 16 bits
_LEAST_RANGE = 1e-2  # a loss near zero is a difference of larger numbers, and has their roundings
_FLIPPED = 0.05  # of whole numbers, such as best classes: where two scores are equal but for roundings

_OTHER_BATCHES = (
    "were given batches of other shapes, modules in another mode, or another zero; give each the same, or global tensors that "
    "lie by rows"
)
_OTHER_PROGRAMS = "compute other operations; let build, its modules and set_stage not depend on the rank"


class StagedTrainer(Trainer):
    """The `whole` graph's trainer, whose steps run over the ranks of a pipeline. All ranks make each call alike.

    The step of a microbatch is captured and cut into programs, forward and back, of each stage. The first step is proved:
    what build gives for this rank's rows as a whole must be what the microbatches give together. Then each rank keeps the
    values and the optimizer's state of its own stages alone, and of what no stage uses. With `zero` the ranks that have the
    same stage share that out too, with 3 also the values.
    """

    def __init__(
        self,
        whole: Trainer,
        modules: Sequence[nn.Module],
        config: GraphConfig,
        *,
        mesh: PipelineMesh,
        stages: Mapping[nn.Module, int],
        zero: int = 0,
    ) -> None:
        super().__init__(whole._build, modules, whole.optimizer, whole.options, config, whole._journal)
        if config.backend not in (None, "captured") or config.precision not in ("auto", "fp32"):
            raise InputError("a pipeline runs captured and in fp32; leave backend and precision out of its GraphConfig")
        if self.options.grad_scaler is not None:
            raise InputError("a pipeline takes no grad_scaler; leave it out of add_optimizer")
        self.mesh, self.stages = mesh, stages
        self._runs: dict[Any, PipelineRun] = {}
        self._parameters: StageParameters | None = None  # from the first step on
        if tensor_axes(modules, mesh.placement) != (() if mesh.tensor is None else mesh.tensor.mesh_dim_names):
            raise InputError("the model became global after add_pipeline; call parallel.to_global before")
        self._zero = StageZero(mesh, zero, self.optimizer, updates=self.options.update) if zero else None

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """How each kind of step that was seen runs."""
        return tuple(run.record for run in self._runs.values())

    def state_dict(self) -> dict[str, Any]:
        """That of a `Trainer` on one device, gathered from all ranks, which call this alike."""
        self._forget_others()  # of which a checkpoint may have made some, empty
        state = super().state_dict()
        if self._zero is not None:
            state["gradients"] |= self._split_gradients()
        if self._zero is not None or self.mesh.tensor is not None:
            state["optimizer"], state["gradients"] = whole_state(state["optimizer"]), whole_state(state["gradients"])
        if self._parameters is not None:
            state["optimizer"] = {**state["optimizer"], "state": self._parameters.gathered(state["optimizer"]["state"])}
            state["gradients"] = self._parameters.gathered(state["gradients"])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Each rank takes what is of its stages."""
        if self._zero is not None:
            self._zero.forget()
        with self.shaped():
            if self.mesh.tensor is not None and {"optimizer", "gradients"} <= set(state):  # else that is what is wrong
                gradients = {name: like(value, self.state.parameters.get(name)) for name, value in state["gradients"].items()}
                state = {**state, "optimizer": of_optimizer(self.optimizer, state["optimizer"]), "gradients": gradients}
            super().load_state_dict(state)
        self._forget_others()

    def whole(self) -> contextlib.AbstractContextManager[None]:
        """Within it the modules have all values on every rank; all ranks enter it alike."""
        return self._with_values("whole")

    def shaped(self) -> contextlib.AbstractContextManager[None]:
        """Within it values of all stages can be loaded; each rank keeps its own. All ranks enter it alike."""
        return self._with_values("shaped")

    @contextlib.contextmanager
    def _with_values(self, how: Literal["whole", "shaped"]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self._zero is not None:
                stack.enter_context(self._zero.filled())
            if self._parameters is not None:
                stack.enter_context(self._parameters.whole() if how == "whole" else self._parameters.shaped())
            yield

    def _run(self, key: StepKind, inputs: Sequence[torch.Tensor], updates: bool) -> tuple[list[torch.Tensor], Structure]:
        kind = (key.inputs, key.layout[0], tuple((name, needs) for name, needs, *_ in key.layout[1]))
        self._check_alike((kind, updates, self._zero and self._zero.zero), _OTHER_BATCHES)
        if self._parameters is not None and not self._parameters.same(self.state.parameters.values()):
            raise InputError("a parameter was replaced after the first step of the pipeline; write to parameters in place")
        rows = [self.mesh.rows(value).to(self.mesh.device) for value in inputs]
        if len(counts := {len(value) for value in rows}) > 1:
            raise InputError(f"inputs have {' and '.join(map(str, sorted(counts)))} rows; a pipeline cuts all of them by rows")
        run = self._runs.pop(kind, None) or self._prepare(rows)
        self._runs[kind] = run  # at the end: the first one is the one longest unused
        if len(self._runs) > self.config.max_captures:
            self._runs.pop(next(iter(self._runs)))
        with torch.no_grad():
            sums, results = run.run(self._given(run.step), rows, self._exchanges(run.step))
            leaves = [assembled(name, run, results) for name in run.step.leaves]
            problem = self._uneven([value for name in run.step.divisors for value in results.get(name, [])])
            if problem is None and self._parameters is None:
                problem = self.mesh.any(self._differs([self._entered(value) for value in rows], leaves))
            if problem is not None:
                self._runs.pop(kind)
                raise InputError(problem)
            leaves = [of_all_rows(value, self.mesh) for value in leaves]
            self._add_gradients(sums)
        if self._parameters is None:
            self._parameters = StageParameters(self._owners_of(run.step), self.mesh)
            self._parameters.release()
            self._forget_others()
            if self._zero is not None:
                self._zero.drop(self._parameters.own())
        if updates:
            self._update()
        return leaves, run.step.structure

    def _prepare(self, rows: Sequence[torch.Tensor]) -> PipelineRun:
        """Capture the step of a microbatch. Raises InputError on all ranks where it cannot be on one."""
        if self._parameters is None:
            away = next(iter(elsewhere(self.state.container)), None)
            told = away and (
                f"{away.partition('.')[2]} has its values on another rank already: these modules are stages of another graph, "
                "which has taken a step; let one graph train them, or make the second of other modules"
            )
            if (problem := self.mesh.any(told)) is not None:
                raise InputError(problem)
            for value in (*self.state.parameters.values(), *self.state.buffers.values()):
                self.mesh.from_first(share_of(value))
        problem = None
        try:
            step = self._captured([self._entered(value.chunk(self.mesh.microbatches)[0]) for value in rows])
            if self._parameters is not None and not self._parameters.covers(self._owners_of(step)):
                raise InputError("build uses parameters in other stages than in its first step; call the same modules in each")
        except (InputError, NotCapturedError) as error:
            problem = str(error)
        problem = self.mesh.any(problem)
        if problem is not None:
            raise InputError(problem)
        self._check_alike((step.owners, step.operations()), _OTHER_PROGRAMS)
        self._check_alike((step.made, step.used, step.layouts), _OTHER_PROGRAMS, copies=True)
        self.captures += 1
        ways = f"{step.stages} stages on {self.mesh.size} ranks, {self.mesh.schedule}, {self.mesh.microbatches} microbatches"
        ways += "" if self._zero is None else f", ZeRO {self._zero.zero}"
        record = StepRecord(tuple(tuple(value.shape) for value in rows), way="captured", why=ways)
        self._journal.report(1, f"capture {self.captures}: {record}")
        exchanged = None if self._zero is None else self._zero.exchanged(self.state.parameters)
        return PipelineRun(step, self.mesh, record, exchanged, gathers=self._zero is not None and self._zero.zero > 2)

    def _captured(self, example: Sequence[torch.Tensor]) -> StagedStep:
        if torch.is_autocast_enabled(example[0].device.type):
            raise InputError("a pipeline computes in the parameters' own precision; call it outside of autocast")
        if self.state.strangers():
            raise InputError(
                "the optimizer updates a tensor that belongs to none of the graph's modules; make the module an attribute"
            )
        known = set(self.state.container.modules())
        if strange := [module for module in self.stages if module not in known]:
            raise InputError(f"set_stage was given a {type(strange[0]).__name__} that is in none of the graph's modules")
        recorder = StageRecorder(self.state.container, self.stages)
        for module in self.options.checkpoint:
            if len(spanned := recorder.stages_in(module)) > 1:
                name = recorder.names.get(module, type(module).__name__)
                raise InputError(
                    f"checkpoint names {name}, which has modules of stages {', '.join(map(str, spanned))}, and would be "
                    "computed again in the last of them; name modules inside of one stage"
                )

        def forward(scale: torch.Tensor, *inputs: torch.Tensor) -> Any:
            recorder.reset()
            with recorder:
                return self._forward(self._build, scale, *inputs)

        before = {name: value.grad for name, value in self.state.parameters.items()}
        try:
            for value in self.state.parameters.values():
                value.grad = None
            with self.shaped(), recorder.following():
                scale = torch.ones((), device=self.mesh.device)
                step = capture_step(forward, self.state, example, scale, None, self._owners)
        except NotCapturedError:
            if recorder.problem is not None:
                raise InputError(recorder.problem) from None
            raise
        finally:
            for name, gradient in before.items():
                self.state.parameters[name].grad = gradient
        if recorder.stage + 1 != recorder.count:
            raise InputError(f"build calls no module of stage {recorder.stage + 1}; give set_stage modules that it calls")
        names, buffers = list(self.state.parameters), list(self.state.buffers)
        found = split_step(step, names, buffers, len(self.optimizer.param_groups), recorder.count)
        microbatch = example[0].shape[0]
        for shape in map(found.shape, found.leaves):
            if shape and shape[0] != microbatch:
                raise InputError(f"build returns a tensor {list(shape)}, neither a number nor with the batch's rows first")
        if any(not found.shape(name) and not found.layouts[name][2].is_floating_point for name in found.leaves):
            raise InputError("build returns a count, whose mean over microbatches is none; return the rows or a mean")
        for name, lies in zip(step.gradients, step.layouts[step.leaves :], strict=True):
            if lies is not None and lies.placements != self.state.parameters[name].placements:  # type: ignore[attr-defined]
                raise InputError(
                    f"the gradient of {name.partition('.')[2]} does not lie as the parameter; let build use it by its module"
                )
        return found

    def _entered(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows as build takes them: where parameters are global, every rank has these rows whole."""
        return rows if self.mesh.tensor is None else to_global(rows, self.mesh.tensor, broadcast, shares=True)

    def _given(self, step: StagedStep) -> dict[str, torch.Tensor]:
        parameters = {node: share_of(self.state.parameters[name]) for node, name in step.parameters.items()}
        return parameters | {node: share_of(self.state.buffers[name]) for node, name in step.buffers.items()}

    def _exchanges(self, step: StagedStep) -> Exchanges | None:
        if (zero := self._zero) is None or zero.zero < 2:
            return None
        parameters = {node: self.state.parameters[name] for node, name in step.parameters.items()}
        return Exchanges(
            lambda nodes: zero.gathered({node: parameters[node] for node in nodes}), zero.reducing(self.state.parameters)
        )

    def _owners_of(self, step: StagedStep) -> dict[nn.Parameter, int]:
        ranks = {name: self.mesh.rank_of(stage, step.stages) for name, stage in step.owners.items()}
        return {self.state.parameters[name]: rank for name, rank in ranks.items()}

    def _check_alike(self, what: Hashable, otherwise: str, *, copies: bool = False) -> None:
        """Ranks that took other steps would wait for each other for ever. With `copies` those are compared that have the same
        shares of global tensors, and all are told."""
        number = int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:7], "big")
        most = self.mesh.most(torch.tensor([number, -number], device=self.mesh.device), copies=copies)
        unlike = self.mesh.most((most[:1] != -most[1:]).int()) if copies else most[:1] != -most[1:]
        if int(unlike):
            raise InputError(f"the ranks of the pipeline {otherwise}")

    def _uneven(self, divisors: Sequence[torch.Tensor]) -> str | None:
        """What is wrong where means were taken over other numbers of rows, or of other weights."""
        none = torch.full((2,), -torch.inf, dtype=torch.float64, device=self.mesh.device)
        if divisors:
            all_of_them = torch.stack([value.double() for value in divisors])
            none = torch.stack([all_of_them.max(), -all_of_them.min()])
        most = self.mesh.most(none)
        if float(most[0]) <= -float(most[1]):
            return None
        return (
            f"a cross entropy was divided by {-float(most[1]):g} for one microbatch and by {float(most[0]):g} for another, so "
            "the mean of their means is not that of the batch: with ignored labels or class weights take reduction='sum', "
            "divided by a number that is the same for all"
        )

    def _differs(self, rows: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> str | None:
        """What is wrong where build gives another thing for this rank's rows than the microbatches give together, or where
        ranks that are to have the same rows have others."""
        for number, value in enumerate(rows if self.mesh.tensor is not None else ()):
            if not self.mesh.alike(share_of(value)):
                return f"input {number} is not the same on the ranks that parameters are global over; give these the same batch"
        try:
            with _NoBackward(), guarding(rows):
                expected, _ = flatten(self._build(*rows), torch.is_tensor, refuse)
                expected = [whole_state(value) for value in expected]
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises; on all ranks, for none may go on alone
            return f"build fails for the rows of all microbatches together: {type(error).__name__}: {error}"
        for number, (whole, given) in enumerate(zip(expected, leaves, strict=True)):
            if not _agree(whole.detach(), given):
                return (
                    f"output {number} of build for the whole batch is not that of its microbatches together; a loss must be a "
                    "mean over rows (reduction='mean'), and no module may compute with several rows at once"
                )
        return None

    def _forget_others(self) -> None:
        others = [] if self._parameters is None else self._parameters.others()
        for value in others:
            self.optimizer.state.pop(value, None)
            value.grad = None
        if self._zero is not None:
            self._zero.forget(others)

    def _add_gradients(self, sums: dict[str, torch.Tensor]) -> None:
        """Add the means of what the microbatches gave: whole gradients to `.grad`, parts to what ZeRO has. `sums` is emptied,
        so that none is kept twice while the optimizer updates."""
        parameters = self.state.parameters
        if self._zero is not None and (keeps := self._zero.keeps()):
            names = [name for name in sums if parameters[name] in keeps]
            if parts := [sums.pop(name) for name in names]:
                torch._foreach_div_(parts, self.mesh.microbatches * self.mesh.replicas)
            self._zero.add({parameters[name]: part for name, part in zip(names, parts, strict=True)})
        for bucket in list(buckets(sums, sums.__getitem__)):
            means = self.mesh.means([sums.pop(name) / self.mesh.microbatches for name in bucket])
            for name, mean in zip(bucket, means, strict=True):
                parameter = parameters[name]
                gradient = around_like(mean, parameter)
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def _split_gradients(self) -> dict[str, torch.Tensor]:
        assert self._zero is not None
        if self._zero.zero > 1 and self._micro:
            self._zero.take()  # what was loaded, or is the user's
        found = self._zero.gradients()
        return {name: found[value] for name, value in self.state.parameters.items() if value in found}

    def _update(self) -> None:
        with contextlib.nullcontext() if self._zero is None else self._zero.updating():
            super()._update()

    def _clip(self, parameters: Sequence[torch.Tensor]) -> None:
        """By value each for itself; by the norm over all stages and their parts, wherever they are."""
        own = [value.grad for value in parameters if value.grad is not None]
        own += [] if self._zero is None else list(self._zero.gradients().values())
        shares = [share_of(value) for value in own]
        if self.options.clip_grad_value is not None and shares:
            torch._foreach_clamp_min_(shares, -self.options.clip_grad_value)
            torch._foreach_clamp_max_(shares, self.options.clip_grad_value)
        if self.options.clip_grad_norm is not None:
            total = torch.zeros((), dtype=torch.float64, device=self.mesh.device)
            counted = [share_of(value) for value in own if self.mesh.counts(value)]
            for norm in torch._foreach_norm(counted) if counted else ():
                total += norm.double().square()
            for group in self.mesh.groups():
                dist.all_reduce(total, group=group)
            factor = (self.options.clip_grad_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)  # torch.nn.utils.clip_grad_norm_'s
            for share in shares:
                share.mul_(factor.to(share.dtype))


class _NoBackward(TorchFunctionMode):  # type: ignore[misc]
    """Within it `backward()` does nothing: what build returns is asked for, without a gradient."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if func is torch.Tensor.backward else func(*args, **(kwargs or {}))


def _agree(whole: torch.Tensor, given: torch.Tensor) -> bool:
    if whole.shape != given.shape or whole.dtype != given.dtype:
        return False
    if not whole.is_floating_point():
        return not whole.numel() or float((whole != given).double().mean()) <= _FLIPPED
    size = float(torch.nan_to_num(whole.double().abs()).max()) if whole.numel() else 0.0
    exact = _EXACT.get(whole.dtype, _REDUCED) * max(size, _LEAST_RANGE)
    return torch.allclose(whole.double(), given.double(), rtol=0.0, atol=exact, equal_nan=True)
