"""Editing a copy of an exported program: find constant tensors, add new ones, drop what nothing uses any more."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer, Proxy
from torch.utils import _pytree as pytree

from .programs import rebuilt

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class ProgramEditor:
    """A private copy of a program's graph. Tensors are never written to: one may be the user's own, or have several users."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph_module: GraphModule = copy.deepcopy(program.graph_module)
        self.graph = self.graph_module.graph
        self._signature = copy.deepcopy(program.graph_signature)
        self._state: dict[str, Any] = dict(program.state_dict)
        self._specs = {spec.arg.name: spec for spec in self._signature.input_specs if spec.kind in _WEIGHTS}

    def tensor(self, node: object) -> torch.Tensor | None:
        """The parameter, buffer or constant that a graph input stands for; None for anything computed or passed in."""
        spec = self._specs.get(node.name) if isinstance(node, Node) and node.op == "placeholder" else None
        if spec is None or spec.target is None:
            return None
        found = self._state.get(spec.target, self.program.constants.get(spec.target))
        return found.detach() if isinstance(found, torch.Tensor) else None

    def add_parameter(self, name: str, value: torch.Tensor) -> Node:
        """A new graph input that holds the tensor."""
        target = name
        while target in self._state or target in self.program.constants:
            target += "_"
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(f"p_{target}")
        node.meta["val"] = self._fake(value)
        spec = InputSpec(kind=InputKind.PARAMETER, arg=TensorArgument(name=node.name), target=target)
        self._signature.input_specs.insert(0, spec)
        self._specs[node.name] = spec
        self._state[target] = torch.nn.Parameter(value.detach().clone(), requires_grad=False)
        return node

    def put(self, before: Node, function: Callable[..., Any], *values: Any) -> Any:
        """Put what a function of operators computes before a node: called with proxies for the nodes among `values`, it becomes
        nodes, and those of its results are returned."""
        tracer = GraphAppendingTracer(self.graph)
        given = [Proxy(value, tracer) if isinstance(value, Node) else value for value in values]
        last = before.prev
        with self.graph.inserting_before(before):
            results = function(*given)
        node = last.next
        while node is not before:
            self.infer(node)
            node = node.next
        return pytree.tree_map_only(Proxy, lambda proxy: proxy.node, results)

    def watch(self, inputs: Iterable[torch.Tensor], see: Callable[[Node, Any], None]) -> None:
        """Compute the graph from tensors for its inputs, without gradients; `see` is told every node's value."""

        class Watching(Interpreter):  # type: ignore[misc]
            def run_node(self, n: Node) -> Any:
                value = super().run_node(n)
                see(n, value)
                return value

        given = iter(inputs)
        tensors = [self.tensor(node) for node in self.graph.nodes if node.op == "placeholder"]
        values = [next(given) if item is None else item for item in tensors]
        with torch.no_grad():
            Watching(self.graph_module).run(*values, enable_io_processing=False)

    def infer(self, node: Node) -> None:
        """Give a node the shape and dtype of its result, as export keeps them in its metadata, without guards on the batch."""
        mode = self._mode()
        values = map_arg((node.args, node.kwargs), lambda item: item.meta["val"])
        # Without the Python dispatcher some operators refuse a symbolic batch.
        with torch.no_grad(), mode, mode.shape_env.suppress_guards(), enable_python_dispatcher():
            node.meta["val"] = node.target(*values[0], **values[1])  # type: ignore[operator]

    def finish(self) -> ExportedProgram:
        """The edited program, without the computations and tensors that nothing uses."""
        self.graph.eliminate_dead_code()
        for node in [node for node in self.graph.nodes if node.op == "placeholder" and not node.users]:
            spec = self._specs.pop(node.name, None)
            if spec is not None:
                self.graph.erase_node(node)
                self._signature.input_specs.remove(spec)
        used = {spec.target for spec in self._signature.input_specs}
        state = {name: value for name, value in self._state.items() if name in used}
        results = next(node for node in self.graph.nodes if node.op == "output").args[0]
        for spec, node in zip(self._signature.output_specs, results, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT and isinstance(node, Node):
                spec.arg = TensorArgument(name=node.name)
        self.graph.lint()
        self.graph_module.recompile()
        return rebuilt(self.program, self.graph_module, graph_signature=self._signature, state_dict=state)

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        """The stand-in that export keeps in a node's metadata, made by the same tracer as the others."""
        return self._mode().from_tensor(value, static_shapes=True)

    def _mode(self) -> Any:
        values = (node.meta.get("val") for node in self.graph.nodes)
        return next(item.fake_mode for item in values if hasattr(item, "fake_mode"))
