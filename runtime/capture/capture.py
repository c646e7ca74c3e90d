"""A module becomes one graph: torch.export with a symbolic batch dimension, proved against the module at several batches.

The module is never changed: modes, attributes and weights are put back even when its code fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from ...errors import CaptureError, Obstacle
from ...specs import Signature, TensorSpec
from ..base.calibration import Calibration
from ..base.silence import silence
from ..base.structure import LEAF, Structure, flatten
from ..base.task import Task
from . import obstacles
from .batch_squeeze import without_batch_squeeze
from .behavior import activated, in_behavior
from .diagnosis import diagnose, printing_suppressed
from .graph_obstacles import in_program, written_inputs
from .no_grad_mode import no_grad_mode
from .source_locations import of_forward
from .state_guard import state_guard

MAX_BATCH = 1024
"""Rows that one run of a graph accepts; torch's indexing stays in 32 bits for the usual images. Sessions split more."""

PROVED_BATCHES = (1, 2, 5)
_DTYPES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}


@dataclass(frozen=True)
class CapturedGraph:
    """One exported program, its signature, and how its outputs are put together again.

    The program takes the inputs in the signature's order and returns a flat tuple of tensors in the signature's order.
    `example` has two rows of each input; `batches` are those at which it was proved equal to the module.
    `task` says what each output is.
    `written` says that the module computes in place of an input, which the program leaves as it is.
    `passes` names the rewrites that were applied since, `disabled` those that may not be. `calibration` is what int8 takes its
    ranges from.
    """

    program: ExportedProgram = field(repr=False)
    signature: Signature
    task: Task
    structure: Structure = LEAF
    example: tuple[torch.Tensor, ...] = field(default=(), repr=False)
    batches: tuple[int, ...] = ()
    passes: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    written: bool = False
    calibration: Calibration | None = field(default=None, repr=False)

    @property
    def device(self) -> str:
        """Where it was captured: "cpu" or "cuda"."""
        return self.example[0].device.type if self.example else "cpu"


class _Flat(torch.nn.Module):  # type: ignore[misc]
    """The user's module with its outputs as a flat tuple of tensors, which is all that backends see.

    Inputs at the positions `copied` are copied first, since the module computes in their place.
    """

    def __init__(self, module: torch.nn.Module, copied: Collection[int] = ()) -> None:
        super().__init__()
        self.module = module
        self.copied = frozenset(copied)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = (value.clone() if index in self.copied else value for index, value in enumerate(inputs))
        leaves, _ = flatten(self.module(*own), torch.is_tensor, lambda where, value: None)
        return tuple(leaves)


def capture(
    module: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    *,
    names: Sequence[str] | None = None,
    task: str = "",
) -> CapturedGraph:
    """Capture the module in evaluation mode, without gradients, with the first dimension of every input symbolic.

    `example_inputs` is one tensor or one per argument of `forward`, each [batch, ...]; any batch will do, and values only
    set the range of those that the graph is proved with. `names` are the inputs' names; by default `forward`'s own. `task`
    tells what the outputs are, in the words of `base.task`, where their shapes do not.
    A graph never writes to its inputs, even where the module does. An autocast or inference mode around the call has no
    effect: precision is the plan's. Raises CaptureError with every obstacle that was found, ValueError for a task that does not
    fit the outputs.
    """
    given = tuple(example_inputs) if isinstance(example_inputs, list) else example_inputs
    inputs = (given,) if isinstance(given, torch.Tensor) else given
    refuse("the module or its example inputs cannot be used", obstacles.in_arguments(module, inputs, _DTYPES))
    title = getattr(module, "captured_as", type(module).__name__)
    refuse(f"{title} cannot be captured", obstacles.in_module(module, inputs[0].device))
    with no_grad_mode(), state_guard(module):
        given = tuple(value.detach().clone() for value in inputs)
        example = tuple(_two_rows(value) for value in given)
        before = {name: value.detach().clone() for name, value in module.named_parameters()}
        reference = _run_eagerly(module, example, given, title)
        state = obstacles.made_in_forward(module, before)
        problems: list[Obstacle] = []
        leaves, structure = flatten(
            reference, torch.is_tensor, lambda where, value: problems.append(obstacles.stray(where, value, module))
        )
        if leaves or not problems:
            problems += obstacles.in_outputs(leaves, structure.names(), example[0].shape[0], _DTYPES, module)
        program, found, written = _export(module, example)
        if state:  # what is only known to be somewhere in the module has its explanation
            found = [item for item in found if (item.path, item.line) != of_forward(module)]
        problems += found
        if program is not None and not problems:
            problems += in_program(program, structure.names())
        known = {item.code for item in problems}
        problems += [item for item in state if item.code not in known]
        refuse(f"{title} cannot become one graph", problems)
        assert program is not None
        signature = _signature(module, example, leaves, structure, names)
        problems = in_behavior(module, program, example, PROVED_BATCHES)
        refuse(f"the graph of {title} does not do what the module does", problems)
        found_task = Task.of(signature, task, activated=activated(module, program, example, leaves, signature))
    return CapturedGraph(program, signature, found_task, structure, example, PROVED_BATCHES, written=written)


def refuse(summary: str, problems: Sequence[Obstacle]) -> None:
    """Raise CaptureError if there is any obstacle; each is listed once, in file and line order."""
    if problems:
        raise CaptureError(summary, sorted(dict.fromkeys(problems), key=lambda item: (item.path, item.line, item.code)))


def _two_rows(value: torch.Tensor) -> torch.Tensor:
    """The first two rows, or the only row twice: a batch of 1 would be captured as the constant 1."""
    return (value[:2] if value.shape[0] > 1 else torch.cat([value, value])).contiguous().clone()


def _run_eagerly(
    module: torch.nn.Module, example: tuple[torch.Tensor, ...], given: tuple[torch.Tensor, ...], title: str
) -> Any:
    try:
        return module(*(value.clone() for value in example))
    except (Exception, SystemExit) as error:
        what = ", ".join(f"{_DTYPES[value.dtype]} {list(value.shape)}" for value in example)
        prefix = f"the module itself fails on inputs of {what}, so mend that first: "
        failure = obstacles.from_exception(error, code="PG100", prefix=prefix, module=module)
        if _runs(module, given):  # with as many rows as the caller gave, and not with two
            how = f" (it runs with {given[0].shape[0]} rows and fails with {example[0].shape[0]})"
            failure = obstacles.fixed_batch(how, failure.path, failure.line)
        raise CaptureError(f"{title} cannot be run", [failure]) from error


def _runs(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bool:
    try:
        module(*(value.clone() for value in inputs))
    except (Exception, SystemExit):  # noqa: BLE001 - the user's code may raise anything, and has been asked only whether it does
        return False
    return True


def _export(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> tuple[ExportedProgram | None, list[Obstacle], bool]:
    """The program, what stands in its way, and whether the module computes in place of an input."""
    shapes = (tuple({0: Dim("batch", min=1, max=MAX_BATCH)} for _ in example),)
    flat = _Flat(module)
    try:
        with silence("torch"), printing_suppressed():
            program = torch.export.export(flat, example, dynamic_shapes=shapes, strict=False)
            if written := written_inputs(program):
                flat = _Flat(module, written)
                program = torch.export.export(flat, example, dynamic_shapes=shapes, strict=False)
            return without_batch_squeeze(program), [], bool(written)
    except Exception as error:  # noqa: BLE001 - torch.export raises what the user's code and its own internals raise
        return None, diagnose(flat, module, example, shapes, error), False


def _signature(
    module: torch.nn.Module,
    example: tuple[torch.Tensor, ...],
    leaves: Sequence[torch.Tensor],
    structure: Structure,
    names: Sequence[str] | None,
) -> Signature:
    inputs = list(names) if names is not None else input_names(module.forward, len(example))
    if len(inputs) != len(example):
        raise ValueError(f"names: expected {len(example)} names, one per input; got {inputs}")
    outputs = [name if name not in inputs else f"{name}_output" for name in structure.names()]
    return Signature(
        inputs=tuple(_spec(name, value) for name, value in zip(inputs, example, strict=True)),
        outputs=tuple(_spec(name, value) for name, value in zip(outputs, leaves, strict=True)),
    )


def _spec(name: str, value: torch.Tensor) -> TensorSpec:
    return TensorSpec(name=name, dtype=_DTYPES[value.dtype], shape=("batch", *value.shape[1:]))


def input_names(function: Any, count: int) -> list[str]:
    """The names of the first `count` positional parameters; `input_0`... where there are fewer."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = [name for name, item in inspect.signature(function).parameters.items() if item.kind in kinds]
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) >= count:
        return parameters[:count]
    return ["input"] if count == 1 else [f"input_{index}" for index in range(count)]
