"""model.onnx as a torch module: for formats of torch's, where a package holds the portable graph alone.

Only what the exporter writes, and what classifiers of other exporters have, is translated; anything else is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import BackendError
from ...backends.shared.onnx_graph import read_graph
from .portable_operators import OPERATORS, as_tensor

_OLDEST = 11  # before, some operators meant something else


class PortableModule(nn.Module):  # type: ignore[misc]
    """The graph of an ONNX file: its inputs, a tuple of its outputs. Raises BackendError for what has no translation."""

    def __init__(self, path: Path) -> None:
        from onnx import helper, numpy_helper
        from onnx.inliner import inline_local_functions

        super().__init__()
        model = inline_local_functions(read_graph(path))
        opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
        if opset < _OLDEST:
            raise BackendError(f"{path.name} has operators of ONNX's opset {opset}; {_OLDEST} is the oldest that is read")
        unknown = sorted({node.op_type for node in model.graph.node} - OPERATORS.keys())
        if foreign := sorted({node.domain for node in model.graph.node} - {"", "ai.onnx"}):
            unknown.append(f"those of {foreign[0]}")
        if unknown:
            raise BackendError(f"the portable graph has operators without a translation to torch: {', '.join(unknown)}")
        self._numbers: dict[str, np.ndarray[Any, Any]] = {}
        self._tensors: dict[str, str] = {}
        for index, item in enumerate(model.graph.initializer):
            value = numpy_helper.to_array(item)
            if value.dtype.kind in "iub":
                self._numbers[item.name] = value
            else:
                self._tensors[item.name] = f"weight_{index}"
                self.register_buffer(f"weight_{index}", torch.from_numpy(value.copy()))
        self._nodes = []
        for node in model.graph.node:
            given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
            self._nodes.append((node.op_type, given | {"opset": opset}, [*node.input], [*node.output]))
        self._inputs = [item.name for item in model.graph.input if item.name not in (*self._numbers, *self._tensors)]
        self._outputs = [item.name for item in model.graph.output]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values: dict[str, Any] = {"": None, **self._numbers}
        values |= {name: getattr(self, own) for name, own in self._tensors.items()}
        values |= zip(self._inputs, inputs, strict=True)
        for kind, attributes, given, made in self._nodes:
            arguments = [values[name] for name in given]
            while arguments and arguments[-1] is None:
                arguments.pop()
            results = OPERATORS[kind](attributes, *arguments)
            results = results if isinstance(results, tuple) else (results,)
            values |= zip(made, results, strict=False)
        return tuple(as_tensor(values[name]) for name in self._outputs)
