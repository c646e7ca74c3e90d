"""ZeRO in the stages of a pipeline: what the update needs is split over the ranks that compute other rows of the same stage."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ...errors import InputError
from ..parallel import buckets
from ..parallel.private import implicit
from ..parallel.schedule import PipelineMesh
from ..parallel.shares import share_of
from .stage_parts import DroppedParameters, Layouts

# What these give a number of a parameter depends on that number, its gradient and its state alone, so that they may have a part
# of a parameter as if it were all of it.
_BY_NUMBER = {
    torch.optim.ASGD, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax,
    torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD,
}  # fmt: skip


class StageZero:
    """This rank's parts of what an optimizer updates. Rajbhandari et al. 2020: `zero` 1 splits the optimizer's state over the
    data axis of the pipeline's mesh, 2 also the gradients, 3 also the parameters, which are gathered for each microbatch's way
    forward through a stage and for its way back.

    `Layouts` says what a part is. Outside of `updating` the state of a parameter holds global tensors of its shape. What is
    exchanged goes in buckets. Raises InputError where the update is the user's.
    """

    def __init__(self, mesh: PipelineMesh, zero: int, optimizer: torch.optim.Optimizer, *, updates: bool) -> None:
        assert mesh.across is not None, "of check_zero"
        if not updates:
            raise InputError("with update=False the update is yours, and its state is not split; leave out update or zero")
        self.zero, self._mesh, self._group, self._optimizer = zero, mesh, mesh.across, optimizer
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}  # parts
        self._layouts = Layouts(mesh)
        self._dropped = DroppedParameters(self._layouts, mesh)
        self._proved = False

    def reducing(self, parameters: Mapping[str, nn.Parameter]) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
        """With 2 and 3, what makes of a microbatch's gradients, by the parameters' names, what is to be kept of them: this
        rank's parts of the sums over the data axis, in new memory; those of what the optimizer does not have as they are."""
        updated = {id(value) for value in self._updated()}

        def reduced(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            names = [name for name in gradients if id(parameters[name]) in updated]
            cuts = {name: self._layouts[parameters[name]].cut for name in names}
            split = {name: cut for name, cut in cuts.items() if cut is not None}
            parts = buckets.reduced([gradients[name] for name in split], list(split.values()), self._group)
            rest = [name for name in names if name not in split]
            sums = buckets.summed([gradients[name] for name in rest], self._group)
            return {**gradients, **dict(zip(split, parts, strict=True)), **dict(zip(rest, sums, strict=True))}

        return reduced

    def keeps(self) -> set[nn.Parameter]:
        """Those for which `reducing` gives this rank's part."""
        return set(self._updated()) if self.zero > 1 else set()

    def add(self, parts: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Add these, which become its own, to what the next update takes."""
        old = [value for value in parts if value in self._gradients]
        if old:
            torch._foreach_add_([self._gradients[value] for value in old], [parts[value] for value in old])
        self._gradients |= {value: part for value, part in parts.items() if value not in self._gradients}

    def take(self) -> None:
        """Take this rank's parts of the whole gradients that stand in `.grad`, and drop those."""
        taken = {value: value.grad for value in self._updated() if value.grad is not None}
        self.add({value: self._layouts[value].own(share_of(gradient)).clone() for value, gradient in taken.items()})
        for value in taken:
            value.grad = None

    def gradients(self) -> dict[nn.Parameter, DTensor]:
        """This rank's parts of what the next update takes so far, beside what stands in `.grad`, as global tensors."""
        return {value: self._layouts[value].around(part) for value, part in self._gradients.items()}

    def forget(self, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """Drop the gradients of those, or all."""
        for value in list(self._gradients) if parameters is None else parameters:
            self._gradients.pop(value, None)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Within the block the optimizer has this rank's parts in the parameters' places, with their gradients and state;
        after it the parameters have the values of all parts. All ranks of the pipeline enter it alike.

        The parts are plain tensors where the optimizer is one of torch's that takes numbers one by one, and global ones else,
        as one that takes norms takes those of whole parameters. An optimizer that cannot update parts is an InputError on all
        ranks, in the first block; so are gradients of other parameters than on another rank, in any.
        """
        self.take()
        self._check_alike()
        optimizer, groups = self._optimizer, [group["params"] for group in self._optimizer.param_groups]
        plain, states = self._by_number(), {}
        parts = {value: self._part(value, plain=plain) for value in self._gradients}
        for value, part in parts.items():
            gradient = self._gradients[value]
            part.grad = gradient if plain else self._layouts[value].around(gradient)
            if value in optimizer.state:
                states[value] = {key: self._split(value, key, item) for key, item in optimizer.state.pop(value).items()}
                optimizer.state[part] = {
                    key: share_of(item) if plain and torch.is_tensor(item) else item for key, item in states[value].items()
                }
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
                    optimizer.state[value] = self._joined(value, optimizer.state.pop(part), states.get(value, {}))
            self._gradients.clear()
        problem = None if self._proved else self._mesh.any(problem)
        if problem is not None:
            raise InputError(problem)
        self._proved = True
        with torch.no_grad():
            updated = {value: share_of(part) for value, part in parts.items()}
            self._dropped.update({value: part for value, part in updated.items() if value in self._dropped})
            self._spread({value: part for value, part in updated.items() if value not in self._dropped})

    def drop(self, parameters: Iterable[nn.Parameter]) -> None:
        """With 3, keep this rank's parts alone of those among these that the optimizer updates."""
        if self.zero > 2:
            self.take()
            updated = {id(value) for value in self._updated()}
            self._dropped.drop(value for value in parameters if id(value) in updated)

    def gathered(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor]:
        """Their whole values; the ranks of a stage ask for the same ones."""
        dropped = {name: value for name, value in parameters.items() if value in self._dropped}
        found = {name: share_of(value) for name, value in parameters.items() if name not in dropped}
        return found | dict(zip(dropped, self._dropped.gathered(list(dropped.values())), strict=True))

    def exchanged(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor] | None:
        """Tensors without values like those whose gradients `reducing` sums, by their names; None where it is not asked."""
        if self.zero < 2:
            return None
        updated = {id(value) for value in self._updated()}
        return {
            name: torch.empty(self._layouts[value].share, dtype=value.dtype, device="meta")
            for name, value in parameters.items()
            if id(value) in updated
        }

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Within the block parameters have their whole values; what they have at its end is kept. All ranks enter it alike."""
        with self._dropped.filled():
            try:
                yield
            finally:
                if self.zero > 2:
                    self.take()

    def _spread(self, parts: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Let the parameters have the values of all ranks' parts."""
        cuts = {value: self._layouts[value].cut for value in parts}
        for value, part in parts.items():
            if cuts[value] is None:
                share_of(value).copy_(part)
        split = {value: cut for value, cut in cuts.items() if cut is not None}
        buckets.gather(
            [parts[value] for value in split], list(split.values()), [share_of(value) for value in split], self._group
        )

    def _by_number(self) -> bool:
        """Whether the optimizer is known to do to a part what it does to that part of the whole: torch's own, and nobody looks
        at the parameters before or after."""
        optimizer = self._optimizer
        hooks = (*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks)
        return type(optimizer) in _BY_NUMBER and not hooks

    def _updated(self) -> list[nn.Parameter]:
        """Those of the optimizer, and those of which a part alone is here, though they were taken out of it meanwhile."""
        values = (value for group in self._optimizer.param_groups for value in group["params"])
        return list(dict.fromkeys([*values, *self._dropped.known]))

    def _check_alike(self) -> None:
        """What is exchanged lies one behind the other, and other parameters would get other ones' numbers."""
        own = [at for at, value in enumerate(self._updated()) if value in self._gradients]
        number = int.from_bytes(hashlib.sha256(repr(own).encode()).digest()[:7], "big")
        wide = torch.tensor([number, -number], device=self._mesh.device)
        dist.all_reduce(wide, op=dist.ReduceOp.MAX, group=self._group)
        if int(self._mesh.most((wide[:1] != -wide[1:]).int())):
            self._gradients.clear()
            raise InputError(
                "ranks that have the same stage have gradients of other parameters; let what writes to .grad not depend on the "
                "rank"
            )

    def _part(self, parameter: nn.Parameter, *, plain: bool) -> nn.Parameter:
        """This rank's part of the parameter, contiguous and, until an update has been seen to work, in memory of its own."""
        layout = self._layouts[parameter]
        if parameter in self._dropped:
            own = self._dropped.part(parameter) if self._proved else self._dropped.part(parameter).clone()
        else:
            own = layout.part(share_of(parameter))
        return nn.Parameter(own if plain else layout.around(own))

    def _split(self, parameter: nn.Parameter, key: str, item: object) -> object:
        """A value of the optimizer's state: what has the parameter's shape is split as that is, a counter of steps is not."""
        layout = self._layouts[parameter]
        if not isinstance(item, torch.Tensor) or key == "step" or item.shape != layout.shape:
            return item
        if isinstance(item, DTensor) and item.device_mesh.mesh_dim_names == self._layouts.axes:
            return item
        return layout.around(layout.part(share_of(item)))

    def _joined(self, parameter: nn.Parameter, state: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a parameter, of that of its part: what has the part's shape as a global tensor, the same one where the
        optimizer wrote in place."""
        layout = self._layouts[parameter]
        shape = layout.part_shape

        def around(key: str, item: object) -> object:
            if not isinstance(item, torch.Tensor) or isinstance(item, DTensor) or key == "step" or item.shape != shape:
                return item
            known = before.get(key)
            return known if isinstance(known, DTensor) and share_of(known) is item else layout.around(item)

        return {key: around(key, item) for key, item in state.items()}


def check_zero(zero: int, mesh: PipelineMesh) -> None:
    """Raises InputError for what is no stage of ZeRO, and for a mesh without a data axis."""
    if isinstance(zero, bool) or zero not in (0, 1, 2, 3):
        raise InputError(f"zero is a stage of ZeRO, 0 (none) to 3; got {zero!r}")
    if zero and mesh.data is None:
        names = ", ".join(mesh.placement.mesh_dim_names or ())
        raise InputError(
            f"zero={zero} splits over the axis of rows, and the mesh ({names}) has none; give a mesh with one more axis, as "
            "parallel.world('cpu', (2, -1))"
        )
