"""A portable graph cut into consecutive graphs, each of which takes what the one before it gives. Needs onnx."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArtifactError
from ..split.cutting import like, needed, reads

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# What libraries fuse with the operation before it, as one kernel that rounds once: no cut stands between them.
_FUSED = {
    "Add", "BatchNormalization", "Cast", "Clip", "Div", "Dropout", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Mul", "Pow", "PRelu", "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """What one of the values that cross a place is: its dtype, its dimensions, of which those that follow the batch are names,
    and its bytes for the rows by which it was measured."""

    dtype: np.dtype
    shape: tuple[int | str, ...]
    size: int


@dataclass(frozen=True)
class Chain:
    """The nodes of a graph that depend on its inputs, in order of execution, and for each place before one of them (the first
    apart) the values that are made before it and needed behind it, in the order in which they are made."""

    model: ModelProto = field(repr=False)
    nodes: tuple[NodeProto, ...] = field(repr=False)
    crossing: Mapping[int, tuple[str, ...]] = field(repr=False)

    @classmethod
    def of(cls, model: ModelProto) -> Chain:
        """Of a portable graph, whose functions are written out first."""
        if model.functions:
            from onnx.inliner import inline_local_functions

            model = inline_local_functions(model)
        graph = model.graph
        made = {value.name: 0 for value in graph.input if value.name not in {weight.name for weight in graph.initializer}}
        last: dict[str, int] = {}
        nodes: list[NodeProto] = []
        for node in graph.node:
            read = [name for name in reads(node) if name in made]
            if not read:
                continue  # a constant, which each stage that needs it has
            last.update(dict.fromkeys(read, len(nodes)))
            nodes.append(node)
            made.update(dict.fromkeys(filter(None, node.output), len(nodes)))
        last.update({value.name: len(nodes) for value in graph.output})
        crossing: dict[int, list[str]] = {place: [] for place in range(1, len(nodes))}
        for name, first in made.items():
            for place in range(max(1, first), min(last.get(name, 0), len(nodes) - 1) + 1):
                crossing[place].append(name)
        return cls(model, tuple(nodes), {place: tuple(names) for place, names in crossing.items()})

    def places(self, stages: int) -> list[int]:
        """Where a cut may stand: before no node that a library fuses with the one before it, unless that leaves too few."""
        every = [place for place, names in self.crossing.items() if names]
        chosen = [place for place in every if self.nodes[place].op_type not in _FUSED]
        return chosen if len(chosen) >= stages - 1 else every

    def cut(self, places: Sequence[int], values: Mapping[str, Value]) -> Iterator[tuple[ModelProto, tuple[str, ...]]]:
        """The graph of each stage, and the names of what goes on to the next one, for cuts at those places over which `values`
        cross; made when it is asked for. What a stage neither reads nor makes is not in its graph."""
        graph = self.model.graph
        whole = {value.name: value for value in (*graph.input, *graph.output)}
        weights = {weight.name: weight for weight in graph.initializer}
        outputs = tuple(value.name for value in graph.output)
        takes: tuple[str, ...] = tuple(value.name for value in graph.input if value.name not in weights)

        def told(name: str) -> Any:
            return whole[name] if name in whole else _told(name, values[name])

        for first, end in itertools.pairwise((0, *places, len(self.nodes))):
            gives = outputs if end == len(self.nodes) else self.crossing[end]
            nodes = self._with_constants(self.nodes[first:end], takes)
            read = {name for node in nodes for name in reads(node)}
            made = {name for node in nodes for name in node.output}
            inputs = [told(name) for name in takes if name in read]
            own = [weight for name, weight in weights.items() if name in read]
            yield like(self.model, nodes, inputs, [told(name) for name in gives if name in made], own), gives
            takes = gives

    def _with_constants(self, nodes: Sequence[NodeProto], takes: Sequence[str]) -> list[NodeProto]:
        """Those nodes, behind those that the constants they read come of."""
        made = {name for node in nodes for name in node.output}
        wanted = {name for node in nodes for name in reads(node)} - made - set(takes)
        return [*needed(self.model, wanted), *nodes]


def _told(name: str, value: Value) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def check_names(model: ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raise ArtifactError unless a graph's inputs and outputs are called as its signature calls them."""
    weights = {weight.name for weight in model.graph.initializer}
    own = [value.name for value in model.graph.input if value.name not in weights]
    given = [value.name for value in model.graph.output]
    if (own, given) != (list(inputs), list(outputs)):
        raise ArtifactError(
            f"the graph goes from {', '.join(own)} to {', '.join(given)}, and the signature says {', '.join(inputs)} to "
            f"{', '.join(outputs)}; package the model again"
        )
