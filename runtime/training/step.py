"""One training step as a flat list of tensor operations, traced from the user's own code.

The step runs once on stand-ins for all tensors, with a recorder under autograd: what it writes down are the operations of the
forward pass, of the backward pass that autograd makes of it, and of the optimizer's update, in their order and in place, as
eager execution does them. Replayed, they give bit for bit what eager gives, without modules, autograd and the optimizer's
Python. Numbers that the optimizer computes in Python from a step counter or the learning rate are recorded as such, in
double precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.utils.stateless import _reparametrize_module

from ...errors import BackendError
from ..base.silence import silence
from ..base.structure import Structure, flatten
from ..capture.obstacles import from_exception
from ..parallel.shares import put_together, taken_apart
from .side_effects import SideEffectError, ValuesStayInside, undone, written_constant
from .state import TrainingState

_EXACT = 1e-5
_ROUNDINGS = 8
Update = Callable[[torch.optim.Optimizer, Sequence[torch.Tensor]], None]


class NotCapturedError(Exception):
    """Why a step was not captured, and which part of it stood in the way: "forward and backward" or "update"."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"{part} not captured: {why}")
        self.part = part


@dataclass(frozen=True)
class CapturedStep:
    """`program(*state tensors, scale, *inputs)` writes the state in place and returns the outputs, then the gradients.

    `gradients` names the parameters whose gradients come back after the `leaves` outputs; where the update is part of the step
    (`updates`), only for a comparison. `counts` are how many of the tensors are parameters and buffers, and how many are
    gradients summed so far. Of global tensors the program takes and gives this rank's shares, and its collectives are
    operations among the others; `layouts` are those of its results.
    """

    program: GraphModule
    structure: Structure
    slots: tuple[tuple[str, str], ...]
    gradients: tuple[str, ...]
    counts: tuple[int, int]
    leaves: int
    updates: bool
    layouts: tuple[Any, ...] = ()

    @property
    def tolerance(self) -> float:
        """How far it may be from eager, as a share of each tensor's range: its operations are the same, so nearly all agree
        exactly; but kernels in half precision are chosen by what only real tensors tell, and differ by a few roundings."""
        return max([_EXACT, *(_ROUNDINGS * torch.finfo(dtype).eps for dtype in self._reduced())])

    @property
    def reduced(self) -> bool:
        """Whether some of it computes in 16 bits."""
        return bool(self._reduced())

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of the outputs."""
        results = next(node for node in self.program.graph.nodes if node.op == "output").args[0]
        return [node.meta["val"].dtype for node in results[: self.leaves]]

    def _reduced(self) -> set[torch.dtype]:
        values = (node.meta.get("val") for node in self.program.graph.nodes)
        dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()}
        return {dtype for dtype in dtypes if dtype.itemsize == 2}

    def written(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Of the state's tensors, those that the step writes, in the order of `TrainingState.written`."""
        always, summed = self.counts
        return [*tensors[:always], *tensors[always + summed : always + summed + len(self.slots)]]

    def run(self, tensors: Sequence[torch.Tensor], scale: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs and gradients, for the state's tensors in the state's order."""
        # The casts of an autocast around the call are operations of the program already.
        with torch.no_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            shares, _ = taken_apart([*tensors, scale, *inputs])
            return put_together(self.program(*shares), self.layouts)


def capture_step(
    forward: Callable[..., Any],
    state: TrainingState,
    inputs: Sequence[torch.Tensor],
    scale: torch.Tensor,
    update: Update | None,
    owners: Sequence[object],
    *,
    traces: bool = False,
    fused: bool = False,
    compared: bool = False,
    dtypes: Sequence[torch.dtype] | None = None,
) -> CapturedStep:
    """Trace `forward(scale, *inputs)`, which also runs backward, and `update(optimizer, parameters)` if there is one.

    With `traces`, operations know the line of Python that asked for them. `fused` asks the optimizer for its one kernel for
    all parameters, `compared` for the gradients also where the step updates, `dtypes` are what the outputs are cast to. Nothing
    of the state is changed, nor any attribute of `owners`, the objects whose code runs. Raises NotCapturedError when a Python
    value is read out of a tensor, code changes what is no tensor of the state, the optimizer keeps what is no tensor, or an
    operation cannot be traced.
    """
    try:
        slots = state.slots() if update else ()
    except BackendError as error:
        raise NotCapturedError("update", str(error)) from error
    real, layouts = taken_apart([*state.tensors(slots), scale, *inputs])
    names, buffers = list(state.parameters), list(state.buffers)
    parameters = list(state.parameters.values())
    having = [name for name, value in state.parameters.items() if value.grad is not None]
    groups = state.optimizer.param_groups
    found: dict[str, Any] = {"part": "forward and backward"}

    def step(*arguments: torch.Tensor) -> list[torch.Tensor]:
        left = put_together(arguments, layouts)

        def take(count: int) -> list[torch.Tensor]:
            taken, left[:] = left[:count], left[count:]
            return taken

        given = zip(take(len(names)), parameters, strict=True)
        own = [value.detach().requires_grad_() if old.requires_grad else value for value, old in given]
        held = dict(zip(buffers, take(len(buffers)), strict=True))
        for name, gradient in zip(having, take(len(having)), strict=True):
            own[names.index(name)].grad = gradient
        slot_values, rates, (scale,) = take(len(slots)), take(len(groups)), take(1)
        replaced = {**dict(zip(names, own, strict=True)), **held}
        with torch.enable_grad(), _reparametrize_module(state.container, replaced, tie_weights=True), ValuesStayInside():
            outputs = forward(scale, *left)
        # Replacements that the code made itself came back into the mapping.
        if new := [name for name, value in held.items() if replaced[name] is not value]:
            raise SideEffectError(f"build replaces the buffer {new[0].partition('.')[2]}; write to it in place, with copy_")
        leaves, found["structure"] = flatten(outputs, torch.is_tensor, _refuse)
        results = [
            value.detach().to(dtype) for value, dtype in zip(leaves, dtypes or [item.dtype for item in leaves], strict=True)
        ]
        found["leaves"] = len(results)
        if update is None or compared:
            having_now = [(name, value.grad) for name, value in zip(names, own, strict=True) if value.grad is not None]
            found["gradients"] = tuple(name for name, _ in having_now)
            results += [gradient for _, gradient in having_now]
        else:
            found["gradients"] = ()
        if update is not None:
            found["part"] = "update"
            shadow = _shadow(state.optimizer, dict(zip(map(id, parameters), own, strict=True)), rates, fused=fused)
            by_name = dict(zip(names, own, strict=True))
            for (name, key), value in zip(slots, slot_values, strict=True):
                shadow.state[by_name[name]][key] = value
            before = _attributes(shadow)
            update(shadow, own)
            if _attributes(shadow) != before:
                raise SideEffectError(f"{type(shadow).__name__} keeps numbers of its own from step to step")
            if sum(isinstance(value, torch.Tensor) for item in shadow.state.values() for value in item.values()) != len(slots):
                raise SideEffectError(f"{type(shadow).__name__} makes its state for a parameter in this update")
        shares, found["layouts"] = taken_apart(results)
        return shares

    # Constants that user code holds (class weights in a closure) may be real tensors; they are read where they lie.
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    try:
        with silence("torch"), undone([*owners, *state.container.modules()], parameters) as changed, mode:
            stand_ins = [mode.from_tensor(value, static_shapes=True) for value in real]
            program = make_fx(step, tracing_mode="real", record_stack_traces=traces)(*stand_ins)
        if changed:
            raise NotCapturedError("forward and backward", changed[0])
        if constant := written_constant(program):
            raise SideEffectError(f"{constant} writes to a tensor that is no parameter or buffer; register it as a buffer")
    except NotCapturedError:
        raise
    except (SideEffectError, BackendError) as error:
        raise NotCapturedError(found["part"], str(error)) from error
    except Exception as error:
        raise NotCapturedError(found["part"], _reason(error, found["part"])) from error
    counts = (len(names) + len(buffers), len(having))
    leaves, updates = found["leaves"], update is not None
    results = tuple(found["layouts"])
    return CapturedStep(_lean(program), found["structure"], slots, found["gradients"], counts, leaves, updates, results)


def _shadow(
    optimizer: torch.optim.Optimizer, stand_ins: dict[int, torch.Tensor], rates: Sequence[torch.Tensor], *, fused: bool
) -> torch.optim.Optimizer:
    """The optimizer over stand-ins, with settings and state of its own; the learning rate becomes a number of each step."""
    shadow = object.__new__(type(optimizer))  # copy.copy would leave out what a subclass keeps beside the state
    vars(shadow).update(vars(optimizer))
    shadow.param_groups = [
        {
            **group,
            **({"fused": True, "foreach": False} if fused else {}),
            "params": [stand_ins[id(value)] for value in group["params"]],
            "lr": _rate(group["lr"], rate, fused=fused),
        }
        for group, rate in zip(optimizer.param_groups, rates, strict=True)
    ]
    shadow.state = defaultdict(dict)
    return shadow


def _rate(given: Any, rate: torch.Tensor, *, fused: bool) -> Any:
    if isinstance(given, torch.Tensor):
        return rate.to(given.dtype)
    return rate if fused else rate.item()  # a kernel takes no number that is known only when it runs


def _attributes(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    return {
        key: repr(value)
        for key, value in vars(optimizer).items()
        if key not in ("state", "param_groups", "step") and not callable(value) and not key.startswith("_")
    }


def _reason(error: Exception, part: str) -> str:
    decides = "data-dependent" in str(error)
    if part != "update":
        return str(from_exception(error, code="PG120" if decides else "PG122"))
    if decides:  # the user's own line would be that of the call, and say nothing
        return "a Python decision of the optimizer depends on a tensor's values"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _refuse(where: str, value: object) -> None:
    raise BackendError(f"{where} of build is a {type(value).__name__}, not a tensor")


def _lean(program: GraphModule) -> GraphModule:
    """Drop what only costs time: the profiler's labels, what cuts autograd's history where none is written (an alias since
    torch 2.14), and values without memory, of which DTensor learns shapes."""
    for node in reversed(list(program.graph.nodes)):
        if not node.users and getattr(node.meta.get("val"), "is_meta", False) and node.op == "call_function":
            program.graph.erase_node(node)
        elif node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)
        elif node.op == "call_function" and "_record_function" in str(node.target) and not node.users:
            program.graph.erase_node(node)
    program.recompile()
    return program
