"""Evaluate a model that is trained meanwhile by `headrace.evaluation_step`, which is made right before the loop."""

import ast

from ..reading.edits import Edit, Positions
from ..reading.facts import Loop
from ..reading.scopes import Module, bound_names, parameters
from ..reading.statements import block_of
from ..survey.loops import CallSite
from .graph_mode import call_edit, check_calls, check_not_eager, import_edits, is_constant
from .graph_names import Group, graph_name
from .model_statements import binds
from .placement import COMPREHENSION, RejectedError, loop_around
from .rule import Context, Fix, at_call


def propose_step(context: Context, group: Group, site: Loop, code: str, what: str) -> Fix:
    """The remark on one group, with the edits that make a step of its model where there are any."""
    try:
        edits = evaluation_edits(context, group)
    except RejectedError as reason:
        return at_call(site, code, f"the {what} stays eager: {reason}", severity="warning")
    return at_call(site, code, f"the {what} calls {group.model} eagerly", edits)


def by_name(group: Group) -> bool:
    """Whether a model gets its input by name, as `model(pixel_values=images)` or `model(**inputs)`, or more by name than
    constants, which a step takes."""
    calls = [site.call for site in group.sites]
    return any(call.keywords and not (call.args and all(is_constant(item.value) for item in call.keywords)) for call in calls)


def evaluation_edits(context: Context, group: Group) -> list[Edit]:
    """The edits of one group, with the import. Raises RejectedError where they cannot be made.

    The step belongs to the model, so making it again before each loop costs nothing and needs no other place.
    """
    module, positions = context.module, context.positions
    check_not_eager(context, group)
    check_calls(module, group, falls_back=True)
    inner = [site for site in group.sites if _is_bound_in_expression(module, site, group.model)]
    anchors: list[ast.stmt] = []
    for site in (site for site in group.sites if site not in inner):
        anchor = _anchor(module, group, site)
        if _shares_line(positions, anchor):
            raise RejectedError("several statements share the line before which the graph would be made")
        if not any(anchor is known or _follows(module, known, anchor, group.model) for known in anchors):
            anchors.append(anchor)
    name = graph_name(context, group, "eval_step")
    edits = [positions.insert_before(anchor, f"{name} = headrace.evaluation_step({group.model})") for anchor in anchors]
    edits += (
        call_edit(positions, site, f"headrace.evaluation_step({group.model})" if site in inner else name)
        for site in group.sites
    )
    return [*edits, *import_edits(context)]


def _anchor(module: Module, group: Group, site: CallSite) -> ast.stmt:
    """The batch loop, or the statement of the call where the loop binds the model; of a call that is only repeated, as one that
    is timed, the loop that repeats it."""
    root = group.model.partition(".")[0]
    statement = module.statement_of(site.call)
    for node in module.ancestors(site.call, within=statement):
        if isinstance(node, ast.Lambda) and root in {argument.arg for argument in parameters(node)}:
            raise RejectedError("an expression binds the model's name")
    loop: ast.stmt | None = site.loop
    if loop is None and "." not in group.model:  # what an object holds may be another one in the next round
        loop = loop_around(module, statement, site.function)
    return statement if loop is None or binds(loop, group.model) else loop


def _is_bound_in_expression(module: Module, site: CallSite, model: str) -> bool:
    """Whether an expression takes one model after the other: `[model(images) for model in models]`."""
    root = model.partition(".")[0]
    around = module.ancestors(site.call, within=module.statement_of(site.call))
    return any(
        root in bound_names(item.target) for node in around if isinstance(node, COMPREHENSION) for item in node.generators
    )


def _shares_line(positions: Positions, statement: ast.stmt) -> bool:
    """Whether a statement does not begin its line, is the `elif` of another, or continues the line before."""
    here = positions.lines[statement.lineno - 1].encode()[statement.col_offset :]
    begins = positions.starts_line(statement) and not positions.continues(statement.lineno - 1)
    return not begins or here.startswith(b"elif")


def _follows(module: Module, known: ast.stmt, anchor: ast.stmt, model: str) -> bool:
    """Whether whoever comes to an anchor came by the known one, with the same model."""
    current: ast.AST = anchor
    while not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        if not isinstance(current, ast.stmt):  # an except clause or a case
            current = module.parents[current]
            continue
        if current is known:  # a loop in a loop
            return not binds(known, model)
        block = block_of(module, current)
        places = [index for index, item in enumerate(block) if item is known or item is current]
        if len(places) == 2 and block[places[0]] is known:
            return not any(binds(item, model) for item in block[places[0] : places[1] + 1])
        current = module.parents[current]
    return False
