"""A part of a pipeline's stage that gathers parameters right before it uses them, and sums gradients as soon as it has them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..parallel.buckets import buckets
from .stage_split import Part

Exchange = Callable[[dict[str, Any]], dict[str, torch.Tensor]]


class ExchangingPart:
    """`part` so that no more than a bucket of whole parameters and of whole gradients need be there at a time (ZeRO 2 and 3).

    `parameters` are those of its inputs that it gathers, each with a tensor like it. `gradients` says of parameters which
    output is the gradient that it sums, and has a tensor like that; `wanted` are the outputs that are needed as they are.
    Ranks that run the same part exchange the same buckets in one order.
    """

    def __init__(
        self,
        part: Part,
        parameters: Mapping[str, torch.Tensor],
        gradients: Mapping[str, tuple[str, torch.Tensor]],
        wanted: Collection[str],
    ) -> None:
        self.inputs = tuple(name for name in part.inputs if name not in parameters)
        made = {node.name: at for at, node in enumerate(part.program.graph.nodes) if node.op not in ("placeholder", "output")}
        own = {parameter: given for parameter, given in gradients.items() if given[0] in made}
        self.gradients = tuple(sorted(own, key=lambda parameter: made[own[parameter][0]]))
        summed = {name for name, _ in own.values()} - set(wanted)
        self.outputs = tuple(name for name in part.outputs if name not in summed)
        self._program = self._rewritten(part, parameters, own)

    def __call__(
        self, gather: Exchange, reduce: Exchange, values: Sequence[torch.Tensor]
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """The outputs, and what `reduce` made of a table of gradients by parameters. `gather` makes whole parameters of a table
        of the inputs' names."""
        return self._program(gather, reduce, *values)  # type: ignore[no-any-return]

    def _rewritten(
        self, part: Part, parameters: Mapping[str, torch.Tensor], gradients: Mapping[str, tuple[str, torch.Tensor]]
    ) -> GraphModule:
        graph, nodes = Graph(), list(part.program.graph.nodes)
        gather, reduce = graph.placeholder("gather"), graph.placeholder("reduce")
        given = dict(zip((node for node in nodes if node.op == "placeholder"), part.inputs, strict=True))
        copies = {node: graph.placeholder(node.name) for node, name in given.items() if name not in parameters}
        used = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one in given and one not in copies)
        gathers = {one: bucket for bucket in buckets(used, lambda node: parameters[given[node]]) for one in bucket}
        sums: dict[str, list[list[str]]] = {}  # what can be summed after an operation
        for bucket in buckets(self.gradients, lambda parameter: gradients[parameter][1]):
            sums.setdefault(gradients[bucket[-1]][0], []).append(bucket)
        named: dict[str, Node] = {}
        reduced: dict[str, Node] = {}
        for node in nodes:
            if node.op in ("placeholder", "output"):
                continue
            for one in node.all_input_nodes:
                if one in gathers and one not in copies:
                    names = [given[each] for each in gathers[one]]
                    copies |= zip(gathers[one], _called(graph, gather, dict.fromkeys(names)), strict=True)
            copies[node] = named[node.name] = graph.node_copy(node, copies.__getitem__)
            for bucket in sums.get(node.name, ()):
                table = {parameter: named[gradients[parameter][0]] for parameter in bucket}
                reduced |= zip(table, _called(graph, reduce, table), strict=True)
        results = tuple(named[name] for name in self.outputs), tuple(reduced[parameter] for parameter in self.gradients)
        graph.output(results)
        return GraphModule(part.program, graph)


def _called(graph: Graph, function: Node, table: dict[str, Any]) -> list[Node]:
    made = graph.call_function(_listed, (function, table))
    return [graph.call_function(operator.getitem, (made, at)) for at in range(len(table))]


def _listed(function: Exchange, table: dict[str, Any]) -> list[torch.Tensor]:
    found = function(table)
    return [found[name] for name in table]
