"""Numbers that proofs are made with: fresh inputs, float64 copies of programs, and differences as a share of the range."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree


def fresh_rows(example: torch.Tensor, count: int, *, seed: int = 0) -> torch.Tensor:
    """`count` new rows shaped like the example's. Floats are normal with its mean and spread; others are drawn from its range."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *example.shape[1:])
    if example.is_floating_point():
        values = example.detach().double().cpu()
        spread = float(values.std(correction=0)) if values.numel() > 1 else 0.0
        return (torch.randn(shape, generator=generator) * (spread or 1.0) + float(values.mean())).to(
            example.device, example.dtype
        )
    if example.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(example.device, torch.bool)
    low, high = int(example.min()), int(example.max())
    if example.dtype == torch.uint8 and low == high:
        low, high = 0, 255
    return torch.randint(low, high + 1, shape, generator=generator).to(example.device, example.dtype)


def largest_difference(reference: torch.Tensor, other: torch.Tensor) -> float:
    """Largest |reference - other| as a share of the largest |reference|. NaN in the same places is agreement, elsewhere infinite."""
    if reference.numel() == 0:
        return 0.0
    a, b = reference.detach().double(), other.detach().double()
    if not torch.equal(torch.isnan(a), torch.isnan(b)):
        return float("inf")
    difference = torch.nan_to_num(torch.where(a == b, torch.zeros_like(a), a - b).abs(), nan=0.0)
    scale = float(torch.nan_to_num(a.abs(), nan=0.0, posinf=0.0).max())
    return float(difference.max()) / (scale or 1.0)


def in_float64(program: ExportedProgram) -> ExportedProgram:
    """The same program with float64 weights, constants and conversions: what an algebraic rewrite is proved on."""

    def widened(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    graph_module = copy.deepcopy(program.graph_module)
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            node.args = pytree.tree_map_only(torch.dtype, _wide_dtype, node.args)
            node.kwargs = pytree.tree_map_only(torch.dtype, _wide_dtype, node.kwargs)
    graph_module.recompile()
    state = {name: _as(value, widened(value.detach())) for name, value in program.state_dict.items()}
    constants = {name: widened(value) for name, value in program.constants.items()}
    return rebuilt(program, graph_module, state_dict=state, constants=constants)


def rebuilt(program: ExportedProgram, graph_module: torch.fx.GraphModule, **changes: Any) -> ExportedProgram:
    """A new program from a rewritten graph; what is not in `changes` is the old program's."""
    parts = {
        "graph_signature": copy.deepcopy(program.graph_signature),
        "state_dict": program.state_dict,
        "range_constraints": copy.deepcopy(program.range_constraints),
        "module_call_graph": copy.deepcopy(program.module_call_graph),
        "example_inputs": None,
        "constants": program.constants,
        "verifiers": [program.verifier],
        **changes,
    }
    return ExportedProgram(root=graph_module, graph=graph_module.graph, **parts)


def _as(original: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(value, requires_grad=False) if isinstance(original, torch.nn.Parameter) else value


def _wide_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in (torch.float32, torch.float16, torch.bfloat16) else dtype
