"""ZeRO in the stages of a pipeline: what the update needs is split over the ranks that compute other rows of the same stage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Placement

from ...errors import InputError
from ..parallel.modules import stored
from ..parallel.private import implicit
from ..parallel.sbp import broadcast
from ..parallel.schedule import PipelineMesh
from ..parallel.shares import share_of


class StageZero:
    """This rank's parts of what an optimizer updates. Rajbhandari et al. 2020: `zero` 1 splits the optimizer's state over the
    data axis of the pipeline's mesh, 2 also the gradients; parameters stay whole, as each microbatch computes with them.

    A part is of the parameter's first dimension that is as long as the axis or longer; where none is, every rank has all of
    it. Outside of `updating` the state of a parameter holds global tensors of its shape. Raises InputError where the update is
    the user's.
    """

    def __init__(self, mesh: PipelineMesh, zero: int, optimizer: torch.optim.Optimizer, *, updates: bool) -> None:
        assert mesh.stage is not None, "of check_zero"
        assert mesh.data is not None, "of check_zero"
        if not updates:
            raise InputError("with update=False the update is yours, and its state is not split; leave out update or zero")
        self.zero, self._mesh, self._stage, self._optimizer = zero, mesh, mesh.stage, optimizer
        self._axes: tuple[str, ...] = mesh.stage.mesh_dim_names or ()
        self._data = next(at for at, axis in enumerate(self._axes) if axis in (mesh.data.mesh_dim_names or ()))
        self._gradients: dict[nn.Parameter, DTensor] = {}
        self._proved = False

    def reducing(self, parameters: Mapping[str, nn.Parameter]) -> Callable[[str, torch.Tensor], torch.Tensor]:
        """What makes of a microbatch's gradient, by the parameter's name, what is to be kept of it: with 2 this rank's part of
        the sum over the data axis, else all of it."""
        updated = {id(value) for value in self._updated()} if self.zero > 1 else set()

        def reduced(name: str, gradient: torch.Tensor) -> torch.Tensor:
            value = parameters[name]
            if id(value) not in updated:
                return gradient
            return self._around(value, gradient.contiguous(), Partial()).redistribute(placements=self._lying(value))

        return reduced

    def add(self, parameter: nn.Parameter, part: DTensor) -> None:
        """Add to what the next update takes."""
        before = self._gradients.get(parameter)
        self._gradients[parameter] = part if before is None else before + part

    def take(self) -> None:
        """Take this rank's parts of the whole gradients that stand in `.grad`, and drop those."""
        for value in self._updated():
            if value.grad is not None:
                self.add(value, self._part(value, value.grad))
                value.grad = None

    def gradients(self) -> dict[nn.Parameter, DTensor]:
        """What the next update takes so far, beside what stands in `.grad`."""
        return dict(self._gradients)

    def forget(self, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """Drop the gradients of those, or all."""
        for value in list(self._gradients) if parameters is None else parameters:
            self._gradients.pop(value, None)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Within the block the optimizer has this rank's parts in the parameters' places, with their gradients and state;
        after it the parameters have the values of all parts. All ranks of the pipeline enter it alike.

        An optimizer that cannot update parts is an InputError on all of them, in the first block.
        """
        self.take()
        optimizer, groups = self._optimizer, [group["params"] for group in self._optimizer.param_groups]
        parts = {value: nn.Parameter(self._part(value, value)) for value in self._gradients}
        for value, part in parts.items():
            part.grad = self._gradients[value]
            if value in optimizer.state:
                state = optimizer.state.pop(value)
                optimizer.state[part] = {key: self._split(value, key, item) for key, item in state.items()}
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group["params"] = [parts.get(value, value) for value in values]
        problem = None
        try:
            with implicit():  # an optimizer may take norms of whole parameters
                yield
        except Exception as error:
            if self._proved:
                raise
            problem = f"{type(optimizer).__name__} cannot update parts of parameters, so leave out zero: {error}"
        finally:
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                group["params"] = values
            for value, part in parts.items():
                if part in optimizer.state:
                    optimizer.state[value] = optimizer.state.pop(part)
            self._gradients.clear()
        problem = None if self._proved else self._mesh.any(problem)
        if problem is not None:
            raise InputError(problem)
        self._proved = True
        with torch.no_grad():
            for value, part in parts.items():
                share_of(value).copy_(share_of(part.detach().redistribute(placements=self._whole(value))))

    def _updated(self) -> list[nn.Parameter]:
        return [value for group in self._optimizer.param_groups for value in group["params"]]

    def _whole(self, parameter: nn.Parameter, over_data: Placement = broadcast) -> tuple[Placement, ...]:
        """How a parameter lies on the mesh of its stage: over the data axis like that, over the others as it does."""
        own = {}
        if isinstance(parameter, DTensor):
            own = dict(zip(parameter.device_mesh.mesh_dim_names or (), parameter.placements, strict=True))
        return tuple(over_data if at == self._data else own.get(axis, broadcast) for at, axis in enumerate(self._axes))

    def _lying(self, parameter: nn.Parameter) -> tuple[Placement, ...]:
        return stored(self._whole(parameter), self._data, parameter, self._stage)

    def _around(self, parameter: nn.Parameter, share: torch.Tensor, over_data: Placement = broadcast) -> DTensor:
        """A value of the parameter's shape whose share on this rank is that."""
        lying = self._whole(parameter, over_data)
        strides = parameter.stride() if isinstance(parameter, DTensor) else share.stride()
        return DTensor.from_local(share, self._stage, lying, run_check=False, shape=parameter.shape, stride=strides)

    def _part(self, parameter: nn.Parameter, value: torch.Tensor) -> DTensor:
        """This rank's part, in memory of its own, of a value that every rank of the data axis has, as the parameter lies."""
        return self._around(parameter, share_of(value)).redistribute(placements=self._lying(parameter))

    def _split(self, parameter: nn.Parameter, key: str, item: object) -> object:
        """A value of the optimizer's state: what has the parameter's shape is split as that is, a counter of steps is not."""
        if not isinstance(item, torch.Tensor) or key == "step" or item.shape != parameter.shape:
            return item
        over = item.device_mesh.mesh_dim_names if isinstance(item, DTensor) else ()
        return item if over == self._axes else self._part(parameter, item)


def check_zero(zero: int, mesh: PipelineMesh) -> None:
    """Raises InputError for what is no stage of ZeRO that a pipeline can take, and for a mesh without a data axis."""
    if zero == 3:
        raise InputError("a pipeline keeps the parameters of a stage whole, as each microbatch uses them; zero is 0, 1 or 2")
    if isinstance(zero, bool) or zero not in (0, 1, 2):
        raise InputError(f"zero is a stage of ZeRO, 0 (none) to 2 in a pipeline; got {zero!r}")
    if zero and mesh.data is None:
        names = ", ".join(mesh.placement.mesh_dim_names or ())
        raise InputError(
            f"zero={zero} splits over the axis of rows, and the mesh ({names}) has none; give a mesh with one more axis, as "
            "parallel.world('cpu', (2, -1))"
        )
