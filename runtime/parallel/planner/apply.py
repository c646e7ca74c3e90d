"""`apply_plan`: what a plan says, carried out by the calls that a script would write for it."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement

from ....errors import CaptureError, InputError
from ..agreement import Agreement
from ..conversions import to_global
from ..modules import boxed, check_module
from ..sbp import Sbp, broadcast, partial_sum, split
from .candidate import AXES, Plan, place_of
from .operators import Model, read_model
from .saved import Program, read_plan
from .stages import starts


@dataclass(frozen=True)
class AppliedPlan:
    """A plan that a module or a graph follows: its `title`, and how the `inputs` and the `targets` of a batch lie, one sbp for
    each axis of `placement`. A `pipeline` takes plain batches."""

    title: str
    inputs: tuple[Placement, ...]
    targets: tuple[Placement, ...]
    placement: DeviceMesh
    shape: tuple[int, ...]
    pipeline: bool

    def batch(self, inputs: torch.Tensor, *targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A batch [rows, ...], whole on every rank, and what belongs to its rows, as the plan has them lie. Raises InputError
        for rows of another shape than the plan was made for, or that do not divide."""
        if tuple(inputs.shape[1:]) != self.shape:
            raise InputError(f"the plan is for rows of {list(self.shape)}, and these are {list(inputs.shape[1:])}; plan anew")
        if self.pipeline:
            return (inputs, *targets)
        for lying in (self.inputs, self.targets):
            ranks = math.prod(size for size, word in zip(self.placement.shape, lying, strict=True) if word == split(0))
            if len(inputs) % ranks:
                raise InputError(f"{len(inputs)} rows do not divide over {ranks} ranks; leave such a batch out (drop_last)")
        lies = [self.inputs, *(self.targets for _ in targets)]
        return tuple(to_global(value, self.placement, sbp) for value, sbp in zip((inputs, *targets), lies, strict=True))


def apply_plan(
    target: Any,
    plan: str | Path | Mapping[str, Any],
    placement: DeviceMesh,
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> AppliedPlan:
    """Let a graph, or a module that runs without one, follow a plan, before its first step; gives how batches are to lie.

    `plan` is a file that `headrace plan-parallel --save` wrote, or what is in it. Parameters, ZeRO and conversions come as
    `to_global` and `boxed` make them, the stages of a pipeline as `Graph.set_stage` does. A graph's optimizer goes on with the
    global parameters, as `optimizer` does for a module; a pipeline and activations that are computed again take a graph with an
    optimizer. Where the plan leaves scores split over classes, the loss must be `parallel.cross_entropy`.
    All ranks call it alike. Raises InputError on every rank, before anything is moved or changed, where one has another plan,
    the plan is of another model or mesh, and where a conversion or a stage is of an operator that is no module of its own.
    """
    ready: Callable[[], AppliedPlan] | None = None
    problem = digest = None
    try:
        chosen, program = read_plan(plan)
        digest = hashlib.sha256(json.dumps([chosen.to_json(), program.input, program.operators]).encode()).hexdigest()
        ready = _prepared(target, chosen, program, placement, optimizer)
    except (InputError, CaptureError) as error:
        problem = str(error)
    agreement = Agreement((), placement)
    problem = agreement.any(problem)
    if problem is None:
        other = "the ranks were given different plans; give each the same file" if agreement.first(digest) != digest else None
        problem = agreement.any(other)
    if problem is not None:
        raise InputError(problem)
    assert ready is not None
    return ready()


def _prepared(
    target: Any, plan: Plan, program: Program, placement: DeviceMesh, optimizer: torch.optim.Optimizer | None
) -> Callable[[], AppliedPlan]:
    """What is to be done, once all ranks can. Raises InputError where it cannot be, with nothing changed."""
    graph: Any = None if isinstance(target, nn.Module) else target
    if graph is None:
        module = target
    elif not hasattr(graph, "set_stage"):
        raise InputError(f"apply_plan takes a headrace.Graph or an nn.Module, got a {type(graph).__name__}")
    elif optimizer is not None:
        raise InputError("a graph has its optimizer already; leave optimizer out")
    else:
        module, optimizer = graph._planned()
    if (plan.stages or plan.checkpoint) and (graph is None or optimizer is None):
        what = "a pipeline" if plan.stages else "activations that are computed again"
        raise InputError(f"the plan has {what}, which takes a headrace.Graph with add_optimizer; apply it to that")
    sizes = tuple(placement.shape)
    names = placement.mesh_dim_names or ()
    zero_axis = AXES.index(plan.zero_axis) if plan.zero else 0
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters()}
    _check_same(program, replace(program, mesh=sizes, parameters=shapes))
    if not plan.stages:
        check_module(module, placement, {}, zero=plan.zero, axis=zero_axis, optimizer=optimizer)
    model = _captured(module, program.input)
    _check_same(program, Program.of(model, sizes))
    again = [_named(module, name) for name in plan.checkpoint]
    inputs, targets = _sbp(plan.inputs), _sbp(tuple(word if word == "split(0)" else "broadcast" for word in plan.outputs))
    applied = AppliedPlan(plan.title, inputs, targets, placement, program.input[1:], bool(plan.stages))
    beside = {one.weights[0]: one.weights[1:] for one in model.operators if one.weights and one.kind == "linear"}
    if plan.stages:
        mesh, within = placement, plan
        if plan.tensor:
            mesh, within = placement[names[AXES.index(plan.tensor)]], _over(plan, AXES.index(plan.tensor))
        table = _table(within, beside)
        check_module(module, mesh, table if plan.tensor else {}, zero=0, axis=0, optimizer=optimizer)
        conversions = _parts_of(module, within, model)
        stages = [_named(module, name) for name in _stages(plan, model, sizes)]

        def staged() -> AppliedPlan:
            if plan.tensor:
                to_global(module, mesh, table, optimizer=optimizer)
            for part, side, words in conversions:
                boxed(part, **{side: words})
            for number, part in enumerate(stages):
                graph.set_stage(part, number)
            if again:
                graph._compute_again(again)
            axis = names[AXES.index(plan.axis)]
            graph.add_pipeline(placement, microbatches=plan.microbatches, schedule=plan.schedule, axis=axis, zero=plan.zero)
            return applied

        return staged
    table = _table(plan, beside)
    check_module(module, placement, table, zero=plan.zero, axis=zero_axis, optimizer=optimizer)
    conversions = _parts_of(module, plan, model)

    def placed() -> AppliedPlan:
        to_global(module, placement, table, zero=plan.zero, axis=zero_axis, optimizer=optimizer)
        for part, side, words in conversions:
            boxed(part, **{side: words})
        if again:
            graph._compute_again(again)
        return applied

    return placed


def _over(plan: Plan, axis: int) -> Plan:
    """The plan's layouts and conversions over one axis of the mesh."""
    boxed = tuple((module, name, (before[axis],), (after[axis],)) for module, name, before, after in plan.boxed)
    return replace(plan, layouts={name: (words[axis],) for name, words in plan.layouts.items()}, boxed=boxed)


def _parts_of(module: nn.Module, plan: Plan, model: Model) -> list[tuple[nn.Module, str, tuple[Placement, ...]]]:
    return [(_named(module, name), side, _sbp(words)) for (name, side), words in _conversions(plan, model).items()]


def _check_same(program: Program, other: Program) -> None:
    if (difference := program.difference(other)) is not None:
        raise InputError(f"the plan was made for {difference}; make one for this with headrace plan-parallel --save")


def _captured(module: nn.Module, shape: tuple[int, ...]) -> Model:
    """The operators of a copy without memory for its values. Raises InputError where it cannot be copied."""
    memo: dict[int, Any] = {}
    for value in (*module.parameters(), *module.buffers()):
        empty = torch.empty_like(value, device="meta")
        memo[id(value)] = nn.Parameter(empty, value.requires_grad) if isinstance(value, nn.Parameter) else empty
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:
        raise InputError(f"the model cannot be copied, so what it computes cannot be seen: {error}") from error
    return read_model(twin, shape)


def _table(plan: Plan, beside: Mapping[str, tuple[str, ...]]) -> dict[str, Sbp]:
    """The sbp of the parameters that are split: where a weight's rows are, the bias goes with them."""
    table: dict[str, Sbp] = {}
    for name, words in plan.layouts.items():
        rows = all(word in ("broadcast", "split(0)") for word in words)
        table.update(dict.fromkeys((name, *(beside.get(name, ()) if rows else ())), _sbp(words)))
    return table


def _conversions(plan: Plan, model: Model) -> dict[tuple[str, str], tuple[str, ...]]:
    """The sbp of the "inputs" or the "outputs" of modules that compute one operator each. Raises InputError for another."""
    numbers = {operator.name: at for at, operator in enumerate(model.operators)}
    users: dict[int, list[int]] = {}
    for at, operator in enumerate(model.operators):
        for source in operator.inputs:
            users.setdefault(source, []).append(at)

    def alone(at: int) -> bool:
        return at > 0 and model.inside[model.operators[at].module] == [at]

    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for module, name, before, after in plan.boxed:
        at = _number(numbers, name)
        operator = model.operators[at]
        side, made_at = ("outputs" if "partial_sum" in before else "inputs"), at
        if not alone(at) and side == "inputs" and len(operator.inputs) == 1 and users[operator.inputs[0]] == [at]:
            side, made_at = "outputs", operator.inputs[0]  # no other takes what the module before gives
        place = model.operators[made_at].module, side
        if not alone(made_at) or found.get(place, after) != after:
            raise InputError(
                f"the plan converts a value at {name} in {module or 'the model'}, from {_by(before)} to {_by(after)}, and "
                f"{module or 'the model'} does more than {name}; make that a module of its own, such as nn.Linear or "
                "nn.Flatten, and plan again, or keep its parameters whole with --keep NAME=broadcast"
            )
        found[place] = after
    return found


def _stages(plan: Plan, model: Model, sizes: tuple[int, ...]) -> list[str]:
    """The modules with which the stages begin. Raises InputError where one begins with none."""
    ranks = sizes[AXES.index(plan.axis)]
    if len(plan.stages) % ranks:
        raise InputError(f"the plan has {len(plan.stages)} stages, which do not share out over {ranks} ranks; plan again")
    if model.uncuttable:
        raise InputError(f"a pipeline takes no {model.uncuttable[0]}, whose numbers would be a microbatch's; plan again")
    numbers = {place_of(model, at): at for at in range(len(model.operators))}
    begins = [_number(numbers, first) for first, _ in plan.stages]
    able = starts(model)
    begins[0] = next((at for at in able if len(begins) == 1 or at < begins[1]), begins[0])
    for at, following in itertools.zip_longest(begins, begins[1:]):
        if at not in able or (following is not None and following <= at):
            raise InputError(
                f"the plan has a stage begin with {place_of(model, at)}, and no module begins there; make it a module of its "
                "own that is called once, and plan again"
            )
    return [model.operators[at].module for at in begins]


def _number(numbers: Mapping[str, int], name: str) -> int:
    if not numbers.get(name):
        raise InputError(
            f"the plan names {name}, which is no operator of its model; write it again with headrace plan-parallel"
        )
    return numbers[name]


def _named(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        raise InputError(f"the plan names the module {name!r}, and there is none; plan for this model again") from None


def _sbp(words: tuple[str, ...]) -> tuple[Placement, ...]:
    plain = {"broadcast": broadcast, "partial_sum": partial_sum}
    return tuple(plain[word] if word in plain else split(int(word[6:-1])) for word in words)


def _by(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"({', '.join(words)})"
