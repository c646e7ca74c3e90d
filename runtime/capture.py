"""A module becomes one graph: torch.export with a symbolic batch dimension, proved against the module at several batches.

The module is never changed: modes, attributes and buffers are put back even when its code fails.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from ..errors import CaptureError, Obstacle
from ..specs import Signature, TensorSpec
from . import obstacles
from .calibration import Calibration
from .quiet import quiet
from .structure import LEAF, Structure, flatten

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
    `passes` names the rewrites that were applied since. `calibration` is what int8 takes its ranges from.
    """

    program: ExportedProgram = field(repr=False)
    signature: Signature
    structure: Structure = LEAF
    example: tuple[torch.Tensor, ...] = field(default=(), repr=False)
    batches: tuple[int, ...] = ()
    passes: tuple[str, ...] = ()
    calibration: Calibration | None = field(default=None, repr=False)

    @property
    def device(self) -> str:
        """Where it was captured: "cpu" or "cuda"."""
        return self.example[0].device.type if self.example else "cpu"


class _Flat(torch.nn.Module):  # type: ignore[misc]
    """The user's module with its outputs as a flat tuple of tensors, which is all that backends see."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves, _ = flatten(self.module(*inputs), torch.is_tensor, lambda where, value: None)
        return tuple(leaves)


def capture(
    module: torch.nn.Module, example_inputs: torch.Tensor | Sequence[torch.Tensor], *, names: Sequence[str] | None = None
) -> CapturedGraph:
    """Capture the module in evaluation mode, without gradients, with the first dimension of every input symbolic.

    `example_inputs` is one tensor or one per argument of `forward`, each [batch, ...]; any batch will do, and values only
    set the range of those that the graph is proved with. `names` are the inputs' names; by default `forward`'s own.
    Raises CaptureError with every obstacle that was found.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    refuse("the example inputs cannot be used", obstacles.in_inputs(inputs, _DTYPES))
    title = getattr(module, "captured_as", type(module).__name__)
    refuse(f"{title} cannot be captured", obstacles.in_module(module, inputs))
    example = tuple(_two_rows(value.detach()) for value in inputs)
    with undisturbed(module), torch.no_grad():
        reference = _run_eagerly(module, example)
        problems: list[Obstacle] = []
        leaves, structure = flatten(
            reference, torch.is_tensor, lambda where, value: problems.append(obstacles.stray(where, value, module))
        )
        problems += obstacles.in_outputs(leaves, structure.names(), example[0].shape[0], _DTYPES)
        program, found = _export(_Flat(module), example)
        problems += found
        if program is None or problems:
            refuse(f"{title} cannot become one graph", problems)
        assert program is not None
        problems = obstacles.in_program(program, structure.names())
        refuse(f"{title} cannot become one graph", problems)
        signature = _signature(module, example, leaves, structure, names)
        problems = obstacles.in_behaviour(module, program, example, PROVED_BATCHES)
        refuse(f"the graph of {title} does not do what the module does", problems)
    return CapturedGraph(program, signature, structure, example, PROVED_BATCHES)


def refuse(summary: str, problems: Sequence[Obstacle]) -> None:
    """Raise CaptureError if there is any obstacle; each is listed once, in file and line order."""
    if problems:
        raise CaptureError(summary, sorted(set(problems), key=lambda item: (item.path, item.line, item.code)))


@contextlib.contextmanager
def undisturbed(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode within the block; modes, attributes, submodules and buffers are put back after it, whatever happens.

    The flags are set directly: a module's own `eval()` may do more than set them.
    """
    modules = list(module.modules())
    attributes = [dict(item.__dict__) for item in modules]
    members = [[dict(item.__dict__[kind]) for kind in ("_parameters", "_buffers", "_modules")] for item in modules]
    buffers = {buffer: (buffer.detach().clone(), _version(buffer)) for buffer in module.buffers()}
    try:
        for item in modules:
            item.training = False
        yield
    finally:
        for item, saved, held in zip(modules, attributes, members, strict=True):
            item.__dict__.clear()
            item.__dict__.update(saved)
            for kind, entries in zip(("_parameters", "_buffers", "_modules"), held, strict=True):
                item.__dict__[kind].clear()
                item.__dict__[kind].update(entries)
        with torch.no_grad():
            for buffer, (copy, version) in buffers.items():
                if _version(buffer) != version:
                    buffer.copy_(copy)


def _version(value: torch.Tensor) -> int:
    return 0 if value.is_inference() else value._version


def _two_rows(value: torch.Tensor) -> torch.Tensor:
    """The first two rows, or the only row twice: a batch of 1 would be captured as the constant 1."""
    return (value[:2] if value.shape[0] > 1 else torch.cat([value, value])).contiguous().clone()


def _run_eagerly(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> Any:
    try:
        return module(*(value.clone() for value in example))
    except Exception as error:
        found = obstacles.from_exception(error, code="PG100", prefix="the module itself fails on the example inputs: ")
        raise CaptureError(f"{type(module).__name__} cannot be run", [found]) from error


def _export(flat: _Flat, example: tuple[torch.Tensor, ...]) -> tuple[ExportedProgram | None, list[Obstacle]]:
    shapes = (tuple({0: Dim("batch", min=1, max=MAX_BATCH)} for _ in example),)
    try:
        with quiet("torch"), obstacles.printing_suppressed():
            return torch.export.export(flat, example, dynamic_shapes=shapes, strict=False), []
    except Exception as error:  # noqa: BLE001 - torch.export raises what the user's code and its own internals raise
        return None, obstacles.diagnose(flat, example, shapes, error)


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
