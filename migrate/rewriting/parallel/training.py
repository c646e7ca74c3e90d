"""A script that trains by DistributedDataParallel or DataParallel: the edits that make it a program over global tensors."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...reading.edits import Edit, apply_edits
from ...reading.names import meaning
from ...reading.nodes import inside, keyword_of
from ...reading.scopes import Definition, Function, dotted, last_name
from ...survey.loops import CallSite
from ..graph_mode import check_name, import_edits
from ..placement import RejectedError
from ..rule import Context
from ..training_edits import TrainingCall, step_edits
from ..training_loops import read_step, whole_step
from .before import check_before
from .contents import what_draws
from .criteria import why_no_mean, why_uneven
from .flows import Flow, Place, bindings, flows, place_of, together
from .launch import launch_edits
from .one_process import one_process_edits
from .uses import Uses, Wrapped, read_uses, state_edits

DISTRIBUTED, REPLICATED = "DistributedDataParallel", "DataParallel"
_KINDS = {
    "torch.nn.parallel.DistributedDataParallel": DISTRIBUTED,
    "torch.nn.parallel.distributed.DistributedDataParallel": DISTRIBUTED,
    "torch.nn.DataParallel": REPLICATED,
    "torch.nn.parallel.DataParallel": REPLICATED,
    "torch.nn.parallel.data_parallel.DataParallel": REPLICATED,
}
_IDLE_OPTIONS = frozenset(
    [
        "module", "device_ids", "output_device", "broadcast_buffers", "bucket_cap_mb", "find_unused_parameters",
        "gradient_as_bucket_view", "static_graph", "check_reduction",
    ]
)  # fmt: skip
"""Options of the wrappers that change nothing of what is computed, or say what a global module does anyway."""
_SAMPLERS = ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler")


@dataclass(frozen=True)
class ParallelTraining:
    """One script that wraps its model: the edits that make it global and the calls they take over, or why there are none."""

    kind: str
    call: ast.Call
    edits: tuple[Edit, ...] = ()
    training: TrainingCall | None = None
    evaluations: tuple[CallSite, ...] = ()
    rejected: str | None = None

    @property
    def sites(self) -> tuple[CallSite, ...]:
        return (*((self.training.site,) if self.training is not None else ()), *self.evaluations)


def parallel_trainings(context: Context) -> list[ParallelTraining]:
    """What a file trains in a wrapper: one at most is rewritten, and of several none."""
    module = context.module
    found = [(kind, call) for call in module.calls if (kind := _KINDS.get(meaning(module, call.func) or "")) is not None]
    trains = any(site.fact.kind == "train" for site in context.sites) or any(
        "train" in script.roles for script in context.survey.scripts if script.path == module.path
    )
    trains |= any(last_name(call.func) == "backward" for call in module.calls)
    if not found or not trains:
        return []
    if len(found) > 1:
        lines = ", ".join(str(call.lineno) for _, call in found)
        return [ParallelTraining(*found[0], rejected=f"models are wrapped in several places, lines {lines}")]
    kind, call = found[0]
    try:
        return [_converted(context, kind, call)]
    except RejectedError as reason:
        return [ParallelTraining(kind, call, rejected=str(reason))]


def _converted(context: Context, kind: str, call: ast.Call) -> ParallelTraining:
    module = context.module
    if module.file.notebook is not None:
        raise RejectedError("a notebook is one process, which torchrun does not start")
    check_name(module)
    wrapped = _wrapped(context, kind, call)
    _check_reached(context, wrapped.outer)
    known = flows(module)
    uses = read_uses(context, wrapped)
    _check_contents(context, wrapped, known)
    step = read_step(uses.training, context.sites, exchanged=True)
    if step.cast is not None or any(item.scaler is not None for item in step.backward):
        raise RejectedError("it trains in mixed precision, whose scaler takes no global tensors")
    if (why := why_no_mean(module, step, known) or why_uneven(module, step)) is not None:
        raise RejectedError(why)
    whole = whole_step(step)
    batches = f'batches="{wrapped.batches}"'
    optimizer = _place_of_optimizer(context, uses, step.optimizer)
    places = together(optimizer, known)
    edits = [*step_edits(context, step, whole, [batches]), *uses.edits, *state_edits(context, places)]
    made_before = _optimizer_before(context, wrapped, places, uses)
    check_before(context, uses, places, known)
    if kind == DISTRIBUTED:
        _check_sampler(context)
        edits += launch_edits(context)
    else:
        edits += one_process_edits(context, wrapped)
    edits += [*_wrapper_edits(context, wrapped, made_before), *import_edits(context)]
    _check_together(context, edits)
    training = TrainingCall(uses.training, step, whole, ())
    return ParallelTraining(kind, call, tuple(dict.fromkeys(edits)), training, uses.evaluations)


def _check_together(context: Context, edits: Iterable[Edit]) -> None:
    """Two edits of one place would undo each other."""
    try:
        ast.parse(apply_edits(context.positions.text, edits))
    except (ValueError, SyntaxError) as error:
        raise RejectedError(f"its edits do not go together ({error})") from None


def _wrapped(context: Context, kind: str, call: ast.Call) -> Wrapped:
    module, positions = context.module, context.positions
    statement = module.statement_of(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        raise RejectedError("the wrapper is not bound to one name at once")
    outer = place_of(module, statement.targets[0])
    if outer is None:
        raise RejectedError(f"{ast.unparse(statement.targets[0])} is reached through another object")
    if not positions.starts_line(statement) or positions.continues(statement.lineno - 1):
        raise RejectedError("several statements share the line of the wrapper")
    conditional = False
    for node in module.ancestors(statement):
        if isinstance(node, Definition):
            break
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            raise RejectedError("a loop wraps the model again and again")
        conditional |= isinstance(node, ast.If) and not _is_main(node)
        if isinstance(node, ast.Try | ast.With | ast.Match):
            raise RejectedError(f"the {type(node).__name__.lower()} statement around the wrapper may leave it out")
    odd = {item.arg for item in call.keywords} - _IDLE_OPTIONS
    if odd or len(call.args) > 3:
        told = ", ".join(sorted(map(str, odd))) or "by position"
        raise RejectedError(f"the wrapper is given options that a global model has not: {told}")
    model = _model_of(call)
    if model is None or any("#" in positions.lines[line - 1] for line in range(statement.lineno, statement.end_lineno or 0)):
        raise RejectedError("which model is wrapped is not written out")
    return Wrapped(statement, call, outer, place_of(module, model), conditional, "shares" if kind == DISTRIBUTED else "whole")


def _is_main(node: ast.If) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "__name__" for item in ast.walk(node.test))


def _model_of(call: ast.Call) -> ast.expr | None:
    named = keyword_of(call, "module")
    value = named.value if named is not None else call.args[0] if call.args else None
    return None if isinstance(value, ast.Starred) else value


def _check_reached(context: Context, outer: Place) -> None:
    """An attribute of objects is only followed where no other code reaches it."""
    if not isinstance(outer.scope, ast.ClassDef):
        return
    name = outer.name.removeprefix("self.")
    for module in context.index.repository.modules.values():
        for node in module.of_kind(ast.ClassDef):
            if any((found := module.find_callee(base)) is not None and found[1] is outer.scope for base in node.bases):
                raise RejectedError(f"the class {node.name} ({module.path}:{node.lineno}) inherits the wrapped model")
        for attribute in module.of_kind(ast.Attribute):
            place = place_of(module, attribute)
            if attribute.attr == name and module is context.module and place is None and dotted(attribute) is not None:
                root = dotted(attribute.value)
                if module.imports.get((root or "").partition(".")[0]) is None:
                    raise RejectedError(f"line {attribute.lineno} reaches the wrapped model from outside of its class")


def _check_contents(context: Context, wrapped: Wrapped, known: list[Flow]) -> None:
    """Dropout draws other numbers on each rank, and a global tensor takes none of it."""
    model = _model_of(wrapped.call)
    assert model is not None
    values: list[ast.AST] = [model]
    if wrapped.inner is not None:
        for place in together(wrapped.inner, known):
            statements = (context.module.statement_of(node) for node in bindings(context.module, place))
            values += [item.value for item in statements if isinstance(item, ast.Assign)]
    for value in values:
        if (drawn := what_draws(context, value)) is not None:
            raise RejectedError(f"the model has {drawn}, whose random numbers would depend on the ranks")


def _check_sampler(context: Context) -> None:
    """That ranks have as many rows as each other is what a DistributedSampler sees to."""
    module = context.module
    reached = [module, *(found for name in module.imports.values() if (found := module.source_of(name)) is not None)]
    if not any(meaning(found, call.func) in _SAMPLERS for found in reached for call in found.calls):
        raise RejectedError(
            "no DistributedSampler gives each process its share of the data, and their shares may differ in size"
        )


def _place_of_optimizer(context: Context, uses: Uses, name: str) -> Place:
    scope = uses.training.loop or uses.training.function
    for node in inside(scope, ast.Attribute):
        if node.attr == "step" and dotted(node.value) == name and (place := place_of(context.module, node.value)) is not None:
            return place
    raise RejectedError(f"the optimizer {name} is reached through another object")


def _optimizer_before(context: Context, wrapped: Wrapped, places: set[Place], uses: Uses) -> str | None:
    """The name of an optimizer that there is before the model is wrapped; None where it is made of the wrapped model."""
    module, here = context.module, wrapped.statement
    function = module.function_of(here)
    before = set()
    made_after = False
    for place in places:
        if function is not None and place.scope is function and place.name in {item.arg for item in _parameters(function)}:
            before.add(place.name)
        for node in bindings(module, place):
            statement = module.statement_of(node)
            same = module.function_of(node) is function
            value = statement.value if isinstance(statement, ast.Assign) else None
            if same and statement.lineno < here.lineno:
                before.add(place.name)
            elif value is not None:
                named = [*inside(value, ast.Name), *inside(value, ast.Attribute)]
                made_after |= any(place_of(module, part) in uses.names for part in named)
    if before:
        names = sorted(before, key=lambda name: (name.startswith("self."), name))
        return names[0]
    if not made_after:
        raise RejectedError("where the optimizer is made was not found, and it must have the parameters that are global")
    return None


def _parameters(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _wrapper_edits(context: Context, wrapped: Wrapped, optimizer: str | None) -> Iterator[Edit]:
    """`placement` and the global model in the place of the wrapper."""
    module, positions = context.module, context.positions
    statement = wrapped.statement
    newline, indent = positions.newline(statement.lineno), positions.indent(statement.lineno)
    model = _model_of(wrapped.call)
    assert model is not None
    target = ast.unparse(statement.targets[0])
    start, end = positions.span(model)
    source = positions.text[start:end]
    lines = []
    if dotted(model) is None:
        lines, source = [f"{target} = {source}"], target
    name = next(name for name in ("placement", "ranks_placement", *(f"placement{n}" for n in range(2, 99)))
                if name not in module.words)  # fmt: skip
    lines.append(f"{name} = headrace.parallel.world(next({source}.parameters()).device.type)")
    extra = f", optimizer={optimizer}" if optimizer is not None else ""
    lines.append(f"{target} = headrace.parallel.to_global({source}, {name}, own_statistics=True{extra})")
    begin, stop = positions.span(statement)
    yield Edit(begin, stop, f"{newline}{indent}".join(lines))
