"""Copies of exported programs: runnable, in float64, on another device, without traces of where they came from."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from ..base.session import Target
from ..base.silence import silence

_TRACES = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "torch_fn")


def runnable(program: ExportedProgram) -> Callable[..., Sequence[torch.Tensor]]:
    """The program as a function of tensors. It shares the program's weights."""
    with silence("torch"):
        return program.module(check_guards=False)


def computing(program: ExportedProgram) -> Callable[..., Sequence[torch.Tensor]]:
    """The same for who only calls it with tensors: without the copy of the graph that a module has, where it writes nothing.

    No module is called: while another thread captures, torch traces every module call of the process.
    """
    signature = program.graph_signature
    held: list[Any] = []  # None for an input
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
            held.append(None)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            found = program.state_dict.get(spec.target)
            held.append(program.constants[spec.target] if found is None else found)
        else:
            return _as_module(program)
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
        return _as_module(program)
    forward, structure = program.graph_module.forward, program.call_spec.out_spec

    def compute(*inputs: torch.Tensor) -> Any:
        given = iter(inputs)
        return pytree.tree_unflatten(forward(*(next(given) if value is None else value for value in held)), structure)

    return compute


def _as_module(program: ExportedProgram) -> Callable[..., Sequence[torch.Tensor]]:
    module: Any = runnable(program)
    return module.forward


def in_float64(program: ExportedProgram) -> ExportedProgram:
    """The same program in float64, with its weights, constants and conversions: what an algebraic rewrite is proved on."""
    dtype = torch.float64

    def cast(value: Any) -> Any:
        return value.detach().to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    graph_module = copy.deepcopy(program.graph_module)
    # Programs nest: an autocast block is a graph module of its own.
    for module in (item for item in graph_module.modules() if isinstance(item, torch.fx.GraphModule)):
        for node in list(module.graph.nodes):
            if node.target is torch.ops.aten._assert_tensor_metadata.default:
                module.graph.erase_node(node)  # it asserts the dtype that is being changed
            elif node.op == "call_function":
                node.args = pytree.tree_map_only(torch.dtype, lambda old: dtype if old.is_floating_point else old, node.args)
                node.kwargs = pytree.tree_map_only(
                    torch.dtype, lambda old: dtype if old.is_floating_point else old, node.kwargs
                )
        module.recompile()
    state = {name: like_parameter(value, cast(value)) for name, value in program.state_dict.items()}
    constants = {name: cast(value) for name, value in program.constants.items()}
    return rebuilt(program, graph_module, state_dict=state, constants=constants)


def rebuilt(program: ExportedProgram, graph_module: torch.fx.GraphModule, **changes: Any) -> ExportedProgram:
    """A new program from a rewritten graph; what is not in `changes` is the old program's."""
    parts = {
        "graph_signature": copy.deepcopy(program.graph_signature),
        "state_dict": program.state_dict,
        "range_constraints": copy.deepcopy(program.range_constraints),
        "module_call_graph": program.module_call_graph,
        "example_inputs": program.example_inputs,
        "constants": program.constants,
        "verifiers": [program.verifier],
        **changes,
    }
    return ExportedProgram(root=graph_module, graph=graph_module.graph, **parts)


def like_parameter(original: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value as a parameter where the original is one."""
    return torch.nn.Parameter(value, requires_grad=False) if isinstance(original, torch.nn.Parameter) else value


def on_device(program: ExportedProgram, device: str) -> ExportedProgram:
    """The program with its weights and constants on the device ("cpu", "cuda" or "cuda:1"); the same one when it is there."""
    wanted = torch.device(device)
    tensors = [
        *program.state_dict.values(),
        *(value for value in program.constants.values() if isinstance(value, torch.Tensor)),
    ]
    if all(value.device.type == wanted.type and wanted.index in (None, value.device.index) for value in tensors):
        return program
    from torch.export.passes import move_to_device_pass

    with silence("torch"):
        return move_to_device_pass(copy.deepcopy(program), device)


def anonymous(program: ExportedProgram) -> ExportedProgram:
    """The program without stack traces and the example's values, which hold the user's paths, source lines and data."""
    graph_module = copy.deepcopy(program.graph_module)
    for node in graph_module.graph.nodes:
        for key in _TRACES:
            node.meta.pop(key, None)
    blank = pytree.tree_map_only(torch.Tensor, torch.zeros_like, program.example_inputs)  # AOTInductor wants some
    return rebuilt(program, graph_module, example_inputs=blank)


def write_program(program: ExportedProgram, path: Path, *, extra: Mapping[str, str] | None = None) -> None:
    """Write a program to a file, with the `extra` texts by name. Through memory: where torch itself finds the disk full, it
    ends the process."""
    buffer = io.BytesIO()
    with silence("torch"):
        torch.export.save(program, buffer, extra_files=dict(extra or {}))
    path.write_bytes(buffer.getbuffer())


def read_program(path: Path, target: Target) -> ExportedProgram:
    """What `write_program` wrote, on the target's GPU if it names one: torch loads onto the first what was written on one."""
    program = torch.export.load(path)
    return program if target.ordinal is None else on_device(program, target.place)


def isolated(program: ExportedProgram) -> ExportedProgram:
    """The program with a shape environment of its own. Copies share one, and compiling a copy may add guards to it
    (inductor was seen to add `batch < 16`) that the original would then be held to."""
    buffer = io.BytesIO()
    with silence("torch"):
        torch.export.save(anonymous(program), buffer)
        buffer.seek(0)
        return torch.export.load(buffer)


def at_batch(program: ExportedProgram, rows: int, most: int) -> ExportedProgram:
    """The program exported again with an example of so many rows, at which a compiler measures its kernels; any batch up to
    `most` runs as before. It shares the program's weights."""
    given, _ = program.example_inputs
    example = tuple(value.new_zeros((rows, *value.shape[1:])) for value in given)
    batch = torch.export.Dim("batch", min=1, max=most)
    with silence("torch"):
        return torch.export.export(runnable(program), example, dynamic_shapes=tuple({0: batch} for _ in example))
