"""Which stage of a pipeline each operation of a traced step belongs to: forward by the module call, backward by autograd."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

from ..capture import source_locations
from .side_effects import SideEffectError

_KEY = "headrace_place"
_NO_STAGE = 1 << 62  # sequence numbers of what autograd adds itself, such as the accumulation of gradients, lie above


@dataclass(frozen=True)
class Place:
    """Where an operation was computed: in which pass and stage (None: wherever its arguments are), by the call of which module,
    at which line of the user's.

    `after` is an operation of the user's own that came after a backward pass had begun.
    """

    stage: int | None
    backward: bool
    module: str
    line: source_locations.Place = source_locations.NOWHERE
    after: bool = False


def place_of(node: Node) -> Place:
    """What the recorder wrote down for a node; what it did not see is wherever its arguments are."""
    return node.meta.get(_KEY) or Place(None, False, "")


class StageRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Within it, and within `following`, operations that are traced get their `Place`.

    `stages` are the modules that have a number. A module belongs to the stage of the innermost of them that it is in, and a
    stage lasts from the first call of one of its modules to the first of the next stage's. Raises SideEffectError where a
    module of a stage is called in a later one; `problem` then has the message, and after the trace what never began.
    """

    def __init__(self, container: nn.Module, stages: Mapping[nn.Module, int]) -> None:
        super().__init__()
        self.container, self.count = container, max(stages.values()) + 1
        self.names = {part: name.partition(".")[2] or type(part).__name__ for name, part in container.named_modules()}
        self.stage_of: dict[nn.Module, int] = {}
        # Of nested modules the inner one comes later here, and counts.
        for part in container.modules():
            if part in stages:
                self.stage_of.update((inner, stages[part]) for inner in part.modules())
        self.problem: str | None = None
        self.reset()

    def reset(self) -> None:
        self.stage, self.starts, self.inside = 0, [0], [""]
        self.backward = False
        self._last: Node | None = None

    def stages_in(self, module: nn.Module) -> list[int]:
        """The stages that it and the modules inside of it are put into."""
        return sorted({self.stage_of[part] for part in module.modules() if part in self.stage_of})

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Within the block the calls of modules are seen."""
        parts = [part for part in self.container.modules() if part is not self.container]
        hooks = [part.register_forward_pre_hook(self._enter, prepend=True) for part in parts]
        hooks += [part.register_forward_hook(self._leave, always_call=True) for part in parts]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: nn.Module, _: Any) -> None:
        if torch._C._current_autograd_node() is not None:  # an activation that the backward pass computes again
            return
        self.inside.append(self.names[module])
        stage = self.stage_of.get(module, self.stage)
        if stage == self.stage:
            return
        if stage != self.stage + 1:
            name = self.names[module]
            self.problem = (
                f"{name} is of stage {stage} and is called when stage {self.stage} has begun"
                if stage < self.stage
                else f"{name} of stage {stage} is called before any module of stage {self.stage + 1}"
            ) + "; number the stages with set_stage in the order in which build calls their modules"
            raise SideEffectError(self.problem)
        self.stage = stage
        self.starts.append(torch.autograd._get_sequence_nr())

    def _leave(self, *_: Any) -> None:
        if torch._C._current_autograd_node() is None and len(self.inside) > 1:
            self.inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        mode = get_proxy_mode()
        assert mode is not None
        place = self._place(torch._C._current_autograd_node())
        nodes = reversed(mode.tracer.graph.nodes)
        latest = next(iter(nodes), None)
        for node in reversed(mode.tracer.graph.nodes):
            if node is self._last:
                break
            node.meta.setdefault(_KEY, place)
        self._last = latest
        return result

    def _place(self, autograd: Any) -> Place:
        line = source_locations.of_call()
        if autograd is None:
            return Place(self.stage, False, self.inside[-1], line, after=self.backward)
        self.backward = True
        number = autograd._sequence_nr()
        stage = None if number >= _NO_STAGE else bisect.bisect_right(self.starts, number) - 1
        return Place(stage, True, autograd.name(), line)
