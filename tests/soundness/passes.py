"""Faults in the rewrites of a captured graph: a pass that changes what the graph computes must be rejected."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from headrace import GraphConfig
from headrace.errors import ParityError
from headrace.runtime.base.passes import Pass
from headrace.runtime.capture.programs import like_parameter, rebuilt
from headrace.runtime.passes import run_passes
from headrace.runtime.tuning.source import CapturedSource
from headrace.runtime.tuning.tune import tune

from .candidates import source
from .faults import Fault

aten = torch.ops.aten
Rewrite = Callable[[ExportedProgram, float], ExportedProgram]


def _rejected(rewrite: Rewrite) -> Callable[[float], str | None]:
    def plant(magnitude: float) -> str | None:
        _, records = run_passes(source().captured, [Pass("fold_scale", lambda program: rewrite(program, magnitude))])
        if records[0].status != "rejected":
            return None
        for text, by in (
            ("in float64", "proof in float64"),
            ("writ", "check of the graph's structure"),
            ("SpecViolation", "torch.export's verifier"),
        ):
            if text in records[0].why:
                return by
        return "an error of the pass"

    return plant


def _edited(change: Callable[[torch.fx.Graph, Any], None]) -> Rewrite:
    """A pass that changes the graph's nodes; `change` gets the graph and what finds its first node of an operator."""

    def rewrite(program: ExportedProgram, _: float) -> ExportedProgram:
        module = copy.deepcopy(program.graph_module)

        def first(operator: Any) -> torch.fx.Node:
            return next(node for node in module.graph.nodes if node.target is operator)

        change(module.graph, first)
        module.recompile()
        return rebuilt(program, module)

    return rewrite


def _scaled_weight(program: ExportedProgram, magnitude: float) -> ExportedProgram:
    name = next(name for name in program.state_dict if name.endswith("first.weight"))
    value = program.state_dict[name]
    changed = like_parameter(value, value.detach() * (1 + magnitude))
    return rebuilt(program, copy.deepcopy(program.graph_module), state_dict={**program.state_dict, name: changed})


def _without_relu(graph: torch.fx.Graph, first: Any) -> None:
    node = first(aten.relu.default)
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)


def _swapped_outputs(graph: torch.fx.Graph, first: Any) -> None:
    output = next(node for node in graph.nodes if node.op == "output")
    output.args = (tuple(reversed(output.args[0])),)


def _other_stride(graph: torch.fx.Graph, first: Any) -> None:
    node = first(aten.avg_pool2d.default)
    node.target = aten.max_pool2d.default
    node.args = node.args[:4]


def _writing(kind: str) -> Rewrite:
    def change(graph: torch.fx.Graph, first: Any) -> None:
        convolution = first(aten.conv2d.default)
        value = convolution.args[0] if kind == "input" else convolution.args[1]
        with graph.inserting_before(convolution):
            graph.call_function(aten.add_.Tensor, (value, 0.25)).meta = value.meta

    return _edited(change)


def _broken(program: ExportedProgram, _: float) -> ExportedProgram:
    raise KeyError("no such node")


def _right_in_float64(magnitude: float) -> str | None:
    """A pass that is wrong in float32 alone, which its proof does not see: the parity of what is compiled does."""

    def rewrite(program: ExportedProgram) -> ExportedProgram:
        doubled = any(value.dtype == torch.float64 for value in program.state_dict.values())
        return _scaled_weight(program, 0.0 if doubled else magnitude)

    optimized, records = run_passes(source().captured, [Pass("fold_scale", rewrite)])
    if records[0].status == "rejected":
        return "proof in float64"
    faulty: Any = replace(source(), optimized=optimized)
    return _tuned(faulty)


def _tuned(faulty: CapturedSource) -> str | None:
    config = GraphConfig(backend="onnxruntime", buckets=(1,), threads=1, max_tuning_seconds=0.05)
    try:
        with tempfile.TemporaryDirectory() as folder:
            tune(faulty, config, directory=Path(folder), device="cpu")
    except ParityError:
        return "parity with eager"
    return None


@functools.cache
def faults() -> list[Fault]:
    """Every fault of this stage."""
    rewrites: list[tuple[str, Rewrite, float | None, str]] = [
        ("weights scaled", _scaled_weight, 0.5, "of the weights"),
        ("a ReLU taken out", _edited(_without_relu), None, ""),
        ("outputs exchanged", _edited(_swapped_outputs), None, ""),
        ("another kind of pool", _edited(_other_stride), None, ""),
        ("an input written to", _writing("input"), None, ""),
        ("a weight written to", _writing("weight"), None, ""),
        ("an error", _broken, None, ""),
    ]
    found = [Fault(name, "pass", _rejected(rewrite), size, unit) for name, rewrite, size, unit in rewrites]
    return [*found, Fault("weights scaled, in float32 alone", "pass", _right_in_float64, 0.5, "of the weights")]
