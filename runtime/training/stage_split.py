"""A traced step of a microbatch cut into the programs of a pipeline's stages, each with its values from the others."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...errors import InputError
from ..base.structure import Structure
from .stage_recorder import place_of
from .step import CapturedStep

_MEAN = 1  # the reduction of nll_loss
_LENGTHS = {torch.ops.aten.constant_pad_nd.default, torch.ops.aten.slice.Tensor, torch.ops.aten.clone.default}


@dataclass(frozen=True)
class Part:
    """A stage's pass of one microbatch: `program(*inputs)` gives `outputs`, all named as in the traced step."""

    program: GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class StagedStep:
    """A step of a microbatch in `2 * stages` parts: forward through all stages, then back.

    Values are known by name. `parameters`, `buffers` and `inputs` are given (each with its own name for the first two),
    `gradients` and `leaves` are results, `divisors` are the numbers that means of losses were divided by. `owners` is the stage
    of each parameter that one uses. `made` and `used` are the parts that make and use a value that passes between parts, and
    `layouts` their shapes, strides and dtypes. Of global tensors a value is this rank's share; `wholes` says how the leaves
    that are global lie.
    """

    stages: int
    parts: tuple[Part, ...]
    parameters: dict[str, str]
    buffers: dict[str, str]
    inputs: tuple[str, ...]
    gradients: dict[str, str]
    leaves: tuple[str, ...]
    divisors: tuple[str, ...]
    owners: dict[str, int]
    made: dict[str, int]
    used: dict[str, tuple[int, ...]]
    layouts: dict[str, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]
    structure: Structure
    wholes: dict[str, Any]

    def shape(self, leaf: str) -> tuple[int, ...]:
        """That of a leaf of one microbatch, whole."""
        return tuple(self.wholes[leaf].tensor_meta.shape) if leaf in self.wholes else self.layouts[leaf][0]

    def operations(self) -> tuple[tuple[str, ...], ...]:
        """Those of each part, but for what makes shares equally long; ranks that have others may wait for ever."""
        nodes = [[node for node in part.program.graph.nodes if node.op == "call_function"] for part in self.parts]
        return tuple(tuple(str(node.target) for node in part if node.target not in _LENGTHS) for part in nodes)

    def part(self, stage: int, *, backward: bool) -> int:
        """The number of a stage's part."""
        return 2 * self.stages - 1 - stage if backward else stage

    def stage(self, part: int) -> int:
        """The stage of a part."""
        return part if part < self.stages else 2 * self.stages - 1 - part


def split_step(step: CapturedStep, parameters: Sequence[str], buffers: Sequence[str], groups: int, stages: int) -> StagedStep:
    """Cut a step that was captured within a `StageRecorder`, for a state of these parameters, buffers and parameter groups.

    Raises InputError, with the module and line, where microbatches would not do what the batch does: buffers that are written,
    batch statistics, random numbers, gradients that build itself computes with; also for a parameter of two stages.
    """
    nodes = list(step.program.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    results = list(nodes[-1].args[0])
    inputs = placeholders[len(parameters) + len(buffers) + groups + 1 :]
    parameter_of = dict(zip(placeholders, parameters, strict=False))
    buffer_of = dict(zip(placeholders[len(parameters) :], buffers, strict=False))
    parts = _parts(nodes, stages)
    for node in parts:
        _check(node)
    named = {node: name.partition(".")[2] for node, name in {**parameter_of, **buffer_of}.items()}
    _check_writes(parts, named | dict.fromkeys(inputs, "an input of build"))
    owners = _owners(parameter_of, parts, stages)
    leaves, gradients = results[: step.leaves], dict(zip(step.gradients, results[step.leaves :], strict=True))
    if not gradients:
        raise InputError("build computes no gradient; a pipeline trains, so build calls backward() on its loss")
    if any(leaf not in parts or parts[leaf] >= stages for leaf in leaves):
        raise InputError(
            "build returns what its forward pass does not compute, such as an input or a gradient; return the loss"
        )
    divisors = [divisor for node in parts if (divisor := _divisor(node, parts)) is not None]
    kept = {*leaves, *gradients.values(), *divisors}
    views = _views(parts, parameter_of, stages)
    uses = {
        node: {parts[user] for user in node.users if user in parts} - {part, views.get(node, part)}
        for node, part in parts.items()
    }
    made = {node: part for node, part in parts.items() if node in kept or uses[node]}
    for name, node in gradients.items():  # an addition hands on the gradient of a later stage as it is
        at = 2 * stages - 1 - owners[name]
        if parts[node] > at:
            raise InputError(f"the gradient of {name} is computed in another stage than {owners[name]}, which uses it")
        if parts[node] < at:
            uses[node].add(at)
    return StagedStep(
        stages,
        tuple(
            _part(
                step.program,
                [node for node, at in parts.items() if at == part],
                made,
                [view for view, at in views.items() if at == part],
            )
            for part in range(2 * stages)
        ),
        {node.name: name for node, name in parameter_of.items()},
        {node.name: name for node, name in buffer_of.items()},
        tuple(node.name for node in inputs),
        {name: node.name for name, node in gradients.items()},
        tuple(leaf.name for leaf in leaves),
        tuple(divisor.name for divisor in divisors),
        owners,
        {node.name: part for node, part in made.items()},
        {node.name: tuple(sorted(uses[node])) for node in made},
        {node.name: _layout(node) for node in made},
        step.structure,
        {leaf.name: lies for leaf, lies in zip(leaves, step.layouts, strict=False) if lies is not None},
    )


def _parts(nodes: Sequence[Node], stages: int) -> dict[Node, int]:
    """The part of each operation: that of its place, or a later one where its arguments come from there."""
    parts: dict[Node, int] = {}
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        place = place_of(node)
        given = max((parts[one] for one in node.all_input_nodes if one in parts), default=0)
        if place.after and given >= stages:
            raise InputError(
                f"build computes with gradients after backward(), {_where(node)}, and they are a microbatch's there; "
                "leave that to add_optimizer, such as its clip_grad_norm"
            )
        at = 0 if place.stage is None else 2 * stages - 1 - place.stage if place.backward else place.stage
        parts[node] = max(at, given)
    return parts


def _check(node: Node) -> None:
    """Raises InputError for an operation that computes another thing of a microbatch than of the batch."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or place_of(node).backward:
        return
    given = {argument.name: argument.default_value for argument in schema.arguments}
    given |= dict(zip(given, node.args)) | node.kwargs  # noqa: B905 - trailing defaults are left out
    if "batch_norm" in schema.name and any(given.get(name) for name in ("training", "train")):
        raise InputError(
            f"a batch normalization in training mode, {_where(node)}, would take the statistics of a microbatch; "
            "put it in evaluation mode, or use GroupNorm"
        )
    random = torch.Tag.nondeterministic_seeded in node.target.tags  # type: ignore[union-attr]
    if random and 0.0 not in (given.get("dropout_p"), given.get("p")):
        raise InputError(
            f"{node.target} draws random numbers, {_where(node)}, which would be others for each microbatch; "
            "set a dropout's p to 0, or leave it out"
        )


def _check_writes(parts: dict[Node, int], given: dict[Node, str]) -> None:
    """Raises InputError where something is written in place that the step is given, or that another part reads afterwards."""
    names = {_memory(node): name for node, name in given.items()}
    made: dict[Any, int] = {}
    written: dict[Any, tuple[Node, Node]] = {}
    for node, part in parts.items():
        for one in node.all_input_nodes:
            writer, copy = written.get(_memory(one), (one, one))
            # A part that writes to what it was sent has a copy: views of it that it was sent beside are other copies.
            if parts.get(one, -1) != parts.get(writer, -1) and (one is not copy or part != parts[writer]):
                raise InputError(
                    f"{writer.target} writes in place, {_where(writer)}, to a value that is read elsewhere in another stage; "
                    "write out of place there"
                )
        for one in _written(node):
            memory = _memory(one)
            if memory in names:
                raise InputError(
                    f"{node.target} writes to {names[memory]}, {_where(node)}, which every microbatch would do again; "
                    "a pipeline takes modules that keep no statistics, such as GroupNorm"
                )
            if made.get(memory, part) != part:
                written[memory] = node, one
        made.setdefault(_memory(node), part)


def _memory(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def _written(node: Node) -> list[Node]:
    found: list[Node] = []
    for at, argument in enumerate(getattr(getattr(node.target, "_schema", None), "arguments", ())):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.kwargs.get(argument.name, node.args[at] if at < len(node.args) else None)
            found += [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Node)]
    return found


def _owners(parameter_of: dict[Node, str], parts: dict[Node, int], stages: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for node, name in parameter_of.items():
        at = sorted({min(parts[user], 2 * stages - 1 - parts[user]) for user in node.users if user in parts})
        if len(at) > 1:
            raise InputError(
                f"the parameter {name.partition('.')[2]} is used in stages {', '.join(map(str, at))}, and can belong to one; "
                "put the modules that share it into one stage"
            )
        found.update((name, stage) for stage in at)
    return found


def _divisor(node: Node, parts: dict[Node, int]) -> Node | None:
    """The sum of weights that a mean of cross entropies was divided by: rows, unless labels are ignored or classes weighted."""
    if getattr(node.target, "_opname", "") not in ("nll_loss_forward", "nll_loss2d_forward") or node.args[3] != _MEAN:
        return None
    return next((user for user in node.users if user in parts and user.args[1] == 1), None)


def _views(parts: dict[Node, int], parameters: Iterable[Node], stages: int) -> dict[Node, int]:
    """Of what only looks at a parameter otherwise, such as its transpose, the part on the way back that looks anew: else each
    microbatch under way would hold on to the parameter."""
    memories, found = set(map(_memory, parameters)), dict.fromkeys(parameters, 0)
    for node, part in parts.items():
        if part < stages and _memory(node) in memories and all(one in found for one in node.all_input_nodes):
            found[node] = 2 * stages - 1 - part
    return {node: at for node, at in found.items() if node in parts}


def _part(program: GraphModule, nodes: list[Node], made: dict[Node, int], views: Collection[Node]) -> Part:
    """`views` are computed anew in this part where it uses them."""
    graph, used = Graph(), set(nodes)
    for node in reversed([*views]):
        if not used.isdisjoint(node.users):
            used.add(node)
    wanted = dict.fromkeys([*(node for node in views if node in used), *nodes])
    given = dict.fromkeys(one for node in wanted for one in node.all_input_nodes if one not in wanted and one.op != "get_attr")
    copies = {node: graph.placeholder(node.name) for node in given}
    for node in itertools.chain.from_iterable([*node.all_input_nodes, node] for node in wanted):
        if node not in copies:  # a constant, which every part that uses it has, or an operation of this part
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [node for node in nodes if node in made]
    graph.output(tuple(copies[node] for node in outputs))
    return Part(GraphModule(program, graph), tuple(one.name for one in given), tuple(node.name for node in outputs))


def _layout(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), tuple(value.stride()), value.dtype


def _where(node: Node) -> str:
    (path, line), module = place_of(node).line, place_of(node).module
    return " ".join(filter(None, [f"in {module}" if module else "in build", f"({path}:{line})" if path else ""]))
