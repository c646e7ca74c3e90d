"""Stages of a graph: how a user says which modules are which stage of a pipeline, and where it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InputError
from ..base.config import GraphConfig
from ..inspect.journal import Journal
from ..training.trainer import Trainer
from .watch import distinct_modules

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from ..parallel.schedule import PipelineMesh
    from ..training.staged_trainer import StagedTrainer


class Staging:
    """What a `Graph` knows of its stages. They are kept here: a `GraphConfig` is shared between graphs and never changes."""

    build: Callable[..., Any]
    config: GraphConfig
    _journal: Journal
    _trainer: Trainer | None = None

    def __init__(self) -> None:
        self._stages: dict[torch.nn.Module, int] = {}
        self._pipeline: PipelineMesh | None = None
        self._zero = 0
        self._staged_trainer: StagedTrainer | None = None  # from the first step on

    def set_stage(self, module: torch.nn.Module, stage: int) -> None:
        """Put a module, with those inside it that have no other stage, into a stage of a pipeline, counted from 0.

        Several modules may be of one stage. What `build` computes between them, and the loss, is of the stage that began last.
        Raises ValueError where `stage` is no number from 0 on, or the graph has taken a step.
        """
        if not isinstance(module, torch.nn.Module):
            raise ValueError(f"set_stage takes an nn.Module, got a {type(module).__name__}")
        if not isinstance(stage, int) or isinstance(stage, bool) or stage < 0:
            raise ValueError(f"stage must be an integer from 0 on, got {stage!r}")
        if self._staged_trainer is not None:
            raise ValueError("this graph has taken a step, and its stages stay as they are; call set_stage before")
        self._stages[module] = stage

    def add_pipeline(
        self,
        placement: DeviceMesh,
        *,
        microbatches: int,
        schedule: str = "1f1b",
        axis: str | None = None,
        zero: int = 0,
    ) -> None:
        """Train as a pipeline: the stages of `set_stage` on the ranks of `placement`, each rank with its stages' parameters.

        Stages are shared out over `axis` of the mesh (the last unless given); a batch is split over the other axis, if there is
        one, and a rank's rows into `microbatches`. `schedule` is "gpipe", "1f1b" or "interleaved". All ranks make the same
        calls, with plain tensors, the whole batch, or global ones split(0) over the other axis, and all get the whole batch's
        loss. The first rank's parameters count. From the first call on a rank has no values for other ranks' stages;
        `state_dict` gathers them. `zero` splits what belongs to a stage's parameters over the other axis: 1 the optimizer's
        state, 2 also the gradients, which then do not stand in `.grad`, 3 also the parameters, of which each rank has its part
        alone between steps. Where the modules are global over axes of the mesh
        already (`to_global`), those are neither of these two.
        Raises InputError for what cannot be a pipeline, at the first call for what `build` does.
        """
        from ..parallel.schedule import PipelineMesh
        from ..parallel.stage_parameters import tensor_axes
        from ..training.stage_zero import check_zero

        if self._pipeline is not None:
            raise ValueError("this graph is a pipeline already")
        tensor = tensor_axes(distinct_modules(vars(self)), placement)
        mesh = PipelineMesh(placement, microbatches=microbatches, schedule=schedule, axis=axis, tensor=tensor)
        check_zero(zero, mesh)
        self._pipeline, self._zero = mesh, zero

    def _planned(self) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
        """The module that a plan is for, and its optimizer. Raises InputError where a graph cannot begin to follow one."""
        modules = [module for module in distinct_modules(vars(self)) if next(module.parameters(), None) is not None]
        if len(modules) != 1:
            raise InputError(f"a plan is for the one module of a graph that has parameters, and this graph has {len(modules)}")
        if self._stages or self._pipeline is not None:
            raise InputError("the graph has stages already; leave out set_stage and add_pipeline where a plan is applied")
        if self._trainer is not None and self._trainer.records:
            raise InputError("the graph has taken a step already; apply the plan before the first")
        return modules[0], self._trainer and self._trainer.optimizer

    def _compute_again(self, modules: Sequence[torch.nn.Module]) -> None:
        """As `add_optimizer(checkpoint=modules)`."""
        assert self._trainer is not None
        self._trainer.options = replace(self._trainer.options, checkpoint=tuple(modules))

    def _staged(self) -> StagedTrainer | None:
        """What takes the steps of a graph with stages; None where there are none."""
        if self._staged_trainer is not None or (not self._stages and self._pipeline is None):
            return self._staged_trainer
        from ..training.staged_trainer import StagedTrainer

        if self._trainer is None:
            raise InputError("a graph with stages trains; call add_optimizer in its __init__")
        if self._pipeline is None:
            raise InputError("the graph has stages and no ranks for them; call add_pipeline(placement, microbatches=...)")
        count = len(set(self._stages.values()))
        if set(self._stages.values()) != set(range(count)):
            raise InputError(
                f"stages must be numbered 0, 1, 2 and so on; set_stage was given {sorted(set(self._stages.values()))}"
            )
        self._pipeline.check_stages(count)
        self._trainer = self._staged_trainer = StagedTrainer(
            self._trainer,
            distinct_modules(vars(self)),
            self.config,
            mesh=self._pipeline,
            stages=self._stages,
            zero=self._zero,
        )
        return self._staged_trainer

    def _state_of(self, module: torch.nn.Module) -> Mapping[str, Any]:
        """Its state dict; of a pipeline with plain tensors also where the parameters are global."""
        if self._pipeline is None or self._pipeline.tensor is None:
            return module.state_dict()
        from ..parallel.states import whole

        state: Mapping[str, Any] = whole(module.state_dict())
        return state

    def _load_into(self, module: torch.nn.Module, state: Mapping[str, Any]) -> None:
        """Load what `_state_of` gave."""
        if self._pipeline is None or self._pipeline.tensor is None:
            module.load_state_dict(state)
            return
        from ..parallel.states import load_state

        load_state(module, state)

    def _all_stages(self, *, here: bool) -> contextlib.AbstractContextManager[None]:
        """Within it modules have the values of all stages; without `here` only room for them, and each rank keeps its own."""
        if self._staged_trainer is None:
            return contextlib.nullcontext()
        return self._staged_trainer.whole() if here else self._staged_trainer.shaped()
