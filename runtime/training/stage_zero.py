"""ZeRO in the stages of a pipeline: what the update needs is split over the ranks that compute other rows of the same stage."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Placement, Shard

from ...errors import InputError
from ..parallel import buckets, private
from ..parallel.modules import stored
from ..parallel.private import implicit, spec_like
from ..parallel.sbp import broadcast
from ..parallel.schedule import PipelineMesh
from ..parallel.shares import share_of

# What these give a number of a parameter depends on that number, its gradient and its state alone, so that they may have a part
# of a parameter as if it were all of it.
_BY_NUMBER = {
    torch.optim.ASGD, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax,
    torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD,
}  # fmt: skip


class StageZero:
    """This rank's parts of what an optimizer updates. Rajbhandari et al. 2020: `zero` 1 splits the optimizer's state over the
    data axis of the pipeline's mesh, 2 also the gradients; parameters stay whole, as each microbatch computes with them.

    A part is of the parameter's first dimension that is as long as the axis or longer; where none is, every rank has all of
    it. Outside of `updating` the state of a parameter holds global tensors of its shape. What is exchanged goes in buckets.
    Raises InputError where the update is the user's.
    """

    def __init__(self, mesh: PipelineMesh, zero: int, optimizer: torch.optim.Optimizer, *, updates: bool) -> None:
        assert mesh.stage is not None, "of check_zero"
        assert mesh.across is not None, "of check_zero"
        assert mesh.data is not None, "of check_zero"
        if not updates:
            raise InputError("with update=False the update is yours, and its state is not split; leave out update or zero")
        self.zero, self._mesh, self._stage, self._optimizer = zero, mesh, mesh.stage, optimizer
        self._group, self._place = mesh.across, mesh.data.get_local_rank()
        self._axes: tuple[str, ...] = mesh.stage.mesh_dim_names or ()
        self._data = next(at for at, axis in enumerate(self._axes) if axis in (mesh.data.mesh_dim_names or ()))
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}  # parts
        self._layouts: dict[nn.Parameter, _Layout] = {}
        self._proved = False

    def reducing(self, parameters: Mapping[str, nn.Parameter]) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
        """What makes of a microbatch's gradients, by the parameters' names, what is to be kept of them: with 2 this rank's
        parts of the sums over the data axis, in new memory, else all of them."""
        updated = {id(value) for value in self._updated()} if self.zero > 1 else set()

        def reduced(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            names = [name for name in gradients if id(parameters[name]) in updated]
            cuts = {name: self._layout(parameters[name]).cut for name in names}
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
        self.add({value: self._own(value, share_of(gradient)).clone() for value, gradient in taken.items()})
        for value in taken:
            value.grad = None

    def parts(self) -> list[torch.Tensor]:
        """This rank's parts of what the next update takes so far, beside what stands in `.grad`."""
        return list(self._gradients.values())

    def gradients(self) -> dict[nn.Parameter, DTensor]:
        """The same as global tensors."""
        return {value: self._layout(value).around(part) for value, part in self._gradients.items()}

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
            part.grad = gradient if plain else self._layout(value).around(gradient)
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
            self._spread({value: share_of(part) for value, part in parts.items()})

    def _spread(self, parts: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Let the parameters have the values of all ranks' parts."""
        cuts = {value: self._layout(value).cut for value in parts}
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
        return [value for group in self._optimizer.param_groups for value in group["params"]]

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

    def _layout(self, parameter: nn.Parameter) -> _Layout:
        found = self._layouts.get(parameter)
        if found is None:
            found = self._layouts[parameter] = self._new_layout(parameter)
        return found

    def _new_layout(self, parameter: nn.Parameter) -> _Layout:
        whole, share = self._whole(parameter), share_of(parameter)
        lying = stored(whole, self._data, parameter, self._stage)
        strides = parameter.stride() if isinstance(parameter, DTensor) else share.stride()
        spec = spec_like(self._stage, lying, parameter.shape, strides, parameter.dtype)
        over = lying[self._data]
        if not isinstance(over, Shard):
            return _Layout(spec, None)
        return _Layout(spec, buckets.Cut(share.shape, over.dim, self._stage.size(self._data), self._place))

    def _whole(self, parameter: nn.Parameter) -> tuple[Placement, ...]:
        """How a parameter lies on the mesh of its stage: whole over the data axis, over the others as it does."""
        own = {}
        if isinstance(parameter, DTensor):
            own = dict(zip(parameter.device_mesh.mesh_dim_names or (), parameter.placements, strict=True))
        return tuple(broadcast if at == self._data else own.get(axis, broadcast) for at, axis in enumerate(self._axes))

    def _own(self, parameter: nn.Parameter, share: torch.Tensor) -> torch.Tensor:
        """This rank's part of a value that every rank of the data axis has, as the parameter lies; a view."""
        cut = self._layout(parameter).cut
        return share if cut is None else cut.of(share)

    def _part(self, parameter: nn.Parameter, *, plain: bool) -> nn.Parameter:
        """This rank's part of the parameter, contiguous and in memory of its own."""
        own = self._own(parameter, share_of(parameter)).clone(memory_format=torch.contiguous_format)
        return nn.Parameter(own if plain else self._layout(parameter).around(own))

    def _split(self, parameter: nn.Parameter, key: str, item: object) -> object:
        """A value of the optimizer's state: what has the parameter's shape is split as that is, a counter of steps is not."""
        if not isinstance(item, torch.Tensor) or key == "step" or item.shape != parameter.shape:
            return item
        if isinstance(item, DTensor) and item.device_mesh.mesh_dim_names == self._axes:
            return item
        own = self._own(parameter, share_of(item)).clone(memory_format=torch.contiguous_format)
        return self._layout(parameter).around(own)

    def _joined(self, parameter: nn.Parameter, state: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a parameter, of that of its part: what has the part's shape as a global tensor, the same one where the
        optimizer wrote in place."""
        layout = self._layout(parameter)
        shape = layout.shape(share_of(parameter))

        def around(key: str, item: object) -> object:
            if not isinstance(item, torch.Tensor) or isinstance(item, DTensor) or key == "step" or item.shape != shape:
                return item
            known = before.get(key)
            return known if isinstance(known, DTensor) and share_of(known) is item else layout.around(item)

        return {key: around(key, item) for key, item in state.items()}


@dataclass(frozen=True)
class _Layout:
    """How a parameter's parts lie: as a global tensor, and what of the share this rank has; None for all of it."""

    spec: Any
    cut: buckets.Cut | None

    def around(self, part: torch.Tensor) -> DTensor:
        return private.around(part, self.spec)

    def shape(self, share: torch.Tensor) -> torch.Size:
        return share.shape if self.cut is None else self.cut.of(share).shape


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
