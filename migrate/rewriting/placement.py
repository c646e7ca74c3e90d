"""Where the graph of a model is constructed."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..reading.edits import Positions
from ..reading.nodes import inside
from ..reading.scopes import Definition, Function, Module, bound_names, dotted, last_name, parameters
from ..reading.statements import block_of, blocks
from ..survey.loops import CallSite
from .graph_names import Group, attribute_name, binder, graph_name
from .model_statements import binds, bound_again, is_asked_for, may_be_none, only_declares, touches
from .rule import Context

__all__ = ["Group", "Place", "RejectedError", "construction"]
COMPREHENSION = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class RejectedError(Exception):
    """The calls of a model stay eager; the text is the reason, as the end of a sentence."""


@dataclass(frozen=True)
class Place:
    """`graph` is made next to `statement`: below it, or above it when `after` is False."""

    graph: str
    statement: ast.stmt
    after: bool


def construction(context: Context, group: Group) -> Place:
    """Where the graph of a group's calls is made. Raises RejectedError where there is no such place."""
    module = context.module
    site = group.first
    root = group.model.partition(".")[0]
    if _bound_around(module, group, root):
        raise RejectedError("a loop, a with statement or the like binds the model's name")
    if _reruns(module):
        raise RejectedError(
            "Streamlit runs the script again at each interaction, and the graph would be compiled at each; make the model and "
            "its graph in a function under @st.cache_resource"
        )
    if root == "self":
        return _in_method(context, group)
    if "." in group.model:
        raise RejectedError(f"{group.model} is reached through another object")
    function = binder(module, group)
    if function is None:
        return _global(context, group)
    if runs_per_input(context, group):
        raise RejectedError(
            "the function that classifies one input makes the model, and a graph made there would be compiled at each call; "
            "make the model once, outside of the function"
        )
    if function is not site.function:  # a function nested in the one that binds the model
        nested = next(node for node in module.ancestors(site.call) if module.parents[node] is function)
        assert isinstance(nested, ast.stmt)
        return _local(context, group, function, nested)
    return _local(context, group, function, module.statement_of(site.call))


def _reruns(module: Module) -> bool:
    """Whether the file is a Streamlit script, which runs again as a whole at each interaction."""
    return "streamlit" in {name.partition(".")[0] for name in module.imports.values()}


def runs_per_input(context: Context, group: Group) -> bool:
    """Whether the code that has a group's model in a variable of its own may run for each input again."""
    if _reruns(context.module):
        return True
    function = None if group.model.startswith("self.") else binder(context.module, group)
    return function is not None and group.single and not runs_once(context, function)


def loop_around(module: Module, node: ast.AST, function: Function | None) -> ast.For | ast.AsyncFor | ast.While | None:
    """The innermost loop around a node in its function, or in the file where it is in none."""
    around = module.ancestors(node, within=function)
    return next((item for item in around if isinstance(item, ast.For | ast.AsyncFor | ast.While)), None)


def made_in_rounds(module: Module, group: Group) -> bool:
    """Whether the loop around a call takes a model in each of its rounds, which may be one that it had before:
    `model = models[kind]`. A graph made there would be new each time, and no call of it pay for a capture."""
    loop = loop_around(module, group.first.call, group.first.function)
    return loop is not None and any(binds(statement, group.model) for statement in loop.body)


def taken_in_rounds(module: Module, group: Group) -> bool:
    """Whether around each call one model after the other is taken: `for model in ensemble`, in a loop or an expression."""
    return "." not in group.model and all(_is_taken(module, site.call, group.model) for site in group.sites)


def _is_taken(module: Module, call: ast.Call, name: str) -> bool:
    for node in takewhile(lambda node: not isinstance(node, Definition), module.ancestors(call)):
        loops = (
            [node] if isinstance(node, ast.For | ast.AsyncFor) else node.generators if isinstance(node, COMPREHENSION) else []
        )
        if any(name in bound_names(loop.target) for loop in loops):
            return True
    return False


def filled_in_rounds(module: Module, group: Group) -> bool:
    """Whether that loop fills the model anew in each round: `model.load_state_dict(folds[k])`."""
    loop = loop_around(module, group.first.call, group.first.function)
    return loop is not None and _fills_inside(loop, group.model)


def outlives_calls(context: Context, group: Group) -> bool:
    """Whether a group's model is there before the code around its calls runs, and stays: a parameter, what a function with a
    cache gives (`@lru_cache`, `@st.cache_resource`), or, where the file runs once, what an object holds or a global is."""
    module, function = context.module, binder(context.module, group)
    if not _reruns(module) and group.first.function is not None and ("." in group.model or function is None):
        return True
    if function is not None and group.model.partition(".")[0] in {argument.arg for argument in parameters(function)}:
        return True
    made = [
        node.value
        for node in inside(function or module.tree, ast.Assign)
        for target in node.targets  # alone, or as one of several that a function gives
        if group.model in map(dotted, target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
    ]
    sources = [module.find_callee(call.func) for value in made for call in inside(value, ast.Call)]
    marks = [last_name(mark.func if isinstance(mark, ast.Call) else mark)
             for found in sources if found is not None for mark in found[1].decorator_list]  # fmt: skip
    return any(mark in ("cache", "lru_cache", "cached", "cache_resource", "experimental_singleton") for mark in marks)


def _bound_around(module: Module, group: Group, root: str) -> bool:
    """Whether `for model in models`, a comprehension, `with ... as model`, `lambda model` or a match stands around a call."""
    for site in group.sites:
        for current in takewhile(lambda node: not isinstance(node, Definition), module.ancestors(site.call)):
            targets: list[ast.AST] = []
            if isinstance(current, ast.For | ast.AsyncFor):
                targets = [current.target]
            elif isinstance(current, COMPREHENSION):
                targets = [item.target for item in current.generators]
            elif isinstance(current, ast.With | ast.AsyncWith):
                targets = [item.optional_vars for item in current.items if item.optional_vars is not None]
            elif isinstance(current, ast.Lambda):
                targets = list(parameters(current))
            elif isinstance(current, ast.match_case):
                targets = [current.pattern]
            names = {
                name
                for target in targets
                for node in ast.walk(target)
                for name in (getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "name", None))
            }
            if root in names:
                return True
    return False


def runs_once(context: Context, function: Function, depth: int = 0) -> bool:
    """Whether a function runs at most once in a process: one call in the repository, outside of loops, from code that does."""
    sites = [
        (where, call)
        for where, call in context.index.calls.by_name.get(function.name, [])
        if (found := where.find_callee(call.func)) is not None and found[1] is function
    ]
    decorated = any(last_name(item.func) != "command" for item in function.decorator_list if isinstance(item, ast.Call))
    if len(sites) != 1 or decorated or function.name in context.index.calls.passed or depth > 4:
        return False
    where, call = sites[0]
    for node in where.ancestors(call):
        if isinstance(node, Function):
            return runs_once(context, node, depth + 1)
        if isinstance(
            node, ast.For | ast.AsyncFor | ast.While | ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.Lambda
        ):
            return False
    return True


def _local(context: Context, group: Group, function: Function, statement: ast.stmt) -> Place:
    module, positions = context.module, context.positions
    anchor = _last_preparation(module, function.body, statement, group.model)
    name = graph_name(context, group)
    if anchor is not None and bound_again(function, anchor, group.model):
        raise RejectedError("the name stands for another model further down")
    if anchor is not None:
        _check_some(function, function.body, anchor, group.model)
        return _checked(positions, Place(name, anchor, after=True), group)
    if group.model.partition(".")[0] not in {argument.arg for argument in parameters(function)}:
        raise RejectedError("the statement that makes the model was not found before the call")
    body = [item for item in function.body if item.lineno <= statement.lineno]
    if bound_again(function, function.body[0], group.model) or binds(function.body[0], group.model):
        raise RejectedError("the name stands for another model further down")
    return _checked(positions, Place(name, body[-1], after=False), group)


def _global(context: Context, group: Group) -> Place:
    """The model is a global: the graph is one too, made after the last statement that prepares the model."""
    module, positions = context.module, context.positions
    site = group.first
    name = graph_name(context, group)
    if any(isinstance(node, ast.Global) and group.model in node.names for node in module.nodes):
        raise RejectedError("functions assign to this global name")
    if site.function is None:
        anchor = _last_preparation(module, module.tree.body, module.statement_of(site.call), group.model)
    else:
        prepared = [item for item in main_statements(module) if touches(item, group.model)]
        anchor = prepared[-1] if prepared else None
    if anchor is None:
        raise RejectedError("the statement that makes the model was not found in this file")
    if bound_again(module.tree, anchor, group.model):
        raise RejectedError("the name stands for another model further down")
    if (
        site.function is not None
        and module.statement_of(site.call).lineno > anchor.lineno
        and _called_before(module, site, anchor)
    ):
        raise RejectedError("the model is used before the last statement that prepares it")
    _check_some(module.tree, list(main_statements(module)), anchor, group.model)
    return _checked(positions, Place(name, _last_import(module, anchor), after=True), group)


def _last_import(module: Module, statement: ast.stmt) -> ast.stmt:
    """The last of the imports among which the model's is; any other statement itself."""
    body = module.tree.body
    if isinstance(statement, ast.Import | ast.ImportFrom) and statement in body:
        *_, statement = takewhile(lambda item: isinstance(item, ast.Import | ast.ImportFrom), body[body.index(statement) :])
    return statement


def _check_some(scope: Function | ast.Module, body: Sequence[ast.stmt], anchor: ast.stmt, model: str) -> None:
    """A model that may be None, as code that asks for it knows, has no graph yet."""
    made = [item for item in body if item.lineno <= anchor.lineno]
    if "." not in model and is_asked_for(scope, model) and may_be_none(made, model):
        raise RejectedError("the model may be None where its graph would be made")


def _called_before(module: Module, site: CallSite, anchor: ast.stmt) -> bool:
    assert site.function is not None
    return any(
        last_name(call.func) == site.function.name and call.lineno <= anchor.lineno
        for item in main_statements(module)
        for call in inside(item, ast.Call)
    )


def _in_method(context: Context, group: Group) -> Place:
    module, positions = context.module, context.positions
    site = group.first
    function = site.function
    owner = module.class_of(function) if function is not None else None
    if function is None or owner is None:
        raise RejectedError("the class that holds the model was not found")
    if any(item.loop is not None for item in group.sites):
        return _local(context, group, function, module.statement_of(site.call))
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None:
        raise RejectedError("the class has no __init__ in which a graph could be made")
    rebinding = [
        item
        for item in owner.body
        if isinstance(item, ast.FunctionDef) and item is not init and any(touches(inner, group.model) for inner in item.body)
    ]
    if any(binds(inner, group.model) for item in rebinding for inner in item.body):
        raise RejectedError("methods other than __init__ assign to the model's name")
    prepared = [item for item in init.body if touches(item, group.model)]
    if not prepared:
        raise RejectedError("the statement in __init__ that makes the model was not found")
    made = [item for item in init.body if item.lineno <= prepared[-1].lineno]
    if may_be_none(made, group.model, _optional_parameters(init, made)):
        raise RejectedError("the model may be None where its graph would be made")
    name = f"self.{attribute_name(context, group, owner)}"
    return _checked(positions, Place(name, prepared[-1], after=True), group)


def _optional_parameters(function: Function, body: Sequence[ast.stmt]) -> set[str]:
    """The parameters of a function that are None unless they are given, and that its body does not bind."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(reversed(positional), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    optional = {argument.arg for argument, default in pairs if isinstance(default, ast.Constant) and default.value is None}
    return {name for name in optional if not any(binds(item, name) for item in body)}


def _checked(positions: Positions, place: Place, group: Group) -> Place:
    if place.after and only_declares(place.statement, group.model):
        raise RejectedError("the model is None in the statement that declares it")
    lines = {site.call.lineno for site in group.sites}
    end = place.statement.end_lineno or place.statement.lineno
    if not _has_own_line(positions, place, group.first.module) or (place.after and end in lines):
        raise RejectedError("several statements share the line where the graph would be made")
    if place.after and positions.continues(end):
        raise RejectedError("the line where the graph would be made continues on the next")
    return place


def _has_own_line(positions: Positions, place: Place, module: Module) -> bool:
    """Whether a line beside the statement's is in its block; below it also where others of the block stand before it there."""
    if positions.starts_line(place.statement):
        return True
    line = place.statement.lineno
    beside = [item for item in block_of(module, place.statement) if item.lineno == line] if place.after else []
    return any(map(positions.starts_line, beside))


def _last_preparation(module: Module, body: Sequence[ast.stmt], statement: ast.stmt, model: str) -> ast.stmt | None:
    """The last statement before `statement`, in the blocks around it, that binds or prepares the model."""
    trail: list[ast.AST] = [statement]
    while not any(trail[-1] is item for item in body):
        trail.append(module.parents[trail[-1]])
    found: ast.stmt | None = None
    block: Sequence[ast.stmt] = body
    for step in reversed(trail):
        if not isinstance(step, ast.stmt) or not any(step is item for item in block):
            continue
        for item in block:
            if item is step:
                break
            if touches(item, model):
                found = item
        block = next((inner for inner in blocks(step) if any(node is item for node in trail for item in inner)), ())
        if isinstance(step, ast.For | ast.AsyncFor | ast.While) and step is not trail[0] and not _prepares_inside(step, model):
            break  # what a batch loop does to other things does not make a graph anew
    return found


def _prepares_inside(loop: ast.stmt, model: str) -> bool:
    """Whether each round of a loop makes the model or fills it anew, so that its graph belongs inside."""
    return _fills_inside(loop, model) or any(binds(item, model) for block in blocks(loop) for item in block)


def _fills_inside(loop: ast.stmt, model: str) -> bool:
    filled = f"{model}.load_state_dict"
    return any(dotted(call.func) == filled for block in blocks(loop) for item in block for call in inside(item, ast.Call))


def main_statements(module: Module) -> Iterator[ast.stmt]:
    """The statements at module level, and those in its main guard."""
    for item in module.tree.body:
        if isinstance(item, ast.If) and "__name__" in ast.unparse(item.test):
            yield from item.body
        elif not isinstance(item, Definition):
            yield item
