"""Bring the calls of one model into graph mode: which go together, whether that may be, and the edits."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..reading.edits import Edit, Positions
from ..reading.facts import Loop
from ..reading.finding import Finding
from ..reading.scopes import Function, Module, bound_names, dotted
from ..survey.loops import CallSite
from .placement import Group, Refusal, construction, main_statements, runs_once
from .rule import Context, Fix

_HOOKS = frozenset(
    ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook"]
)


def groups(context: Context) -> list[Group]:
    """The evaluation and prediction calls of a file, by function and model."""
    found: dict[tuple[Function | None, str], list[CallSite]] = {}
    for site in context.sites:
        if site.fact.kind != "train" and not _is_test(site):
            found.setdefault((site.function, site.fact.model), []).append(site)
    return [Group(tuple(sites)) for sites in found.values()]


def _is_test(site: CallSite) -> bool:
    folder, _, name = f"/{site.module.path}".rpartition("/")
    functions = (site.fact.function or "").split(".")
    named = name.startswith("test_") or name.endswith("_test.py") or not {"test", "tests"}.isdisjoint(folder.split("/"))
    return named and any(function.startswith("test") for function in functions)


def is_trained(context: Context, group: Group) -> bool:
    """Whether the weights may change between calls: the file trains, or a script that trains reaches this call.

    Calls that a process makes in one place and once, as the test after the last epoch, are not meant: their graph is compiled
    for the weights of then.
    """
    if all(_runs_once(context, site) for site in group.sites):
        return False
    if any(site.trained_here for site in group.sites):
        return True
    facts = {site.fact for site in group.sites}
    return any("train" in script.roles and facts & set(script.loops) for script in context.survey.scripts)


def _runs_once(context: Context, site: CallSite) -> bool:
    """Whether a call's loop runs once in a process, and its own function puts the model in evaluation mode."""
    module, function = site.module, site.function
    current = module.parents.get(site.loop or site.call)
    while current is not None and current is not function:
        if isinstance(current, ast.For | ast.AsyncFor | ast.While):
            return False
        current = module.parents.get(current)
    around = (
        ast.walk(function) if function is not None else (node for item in main_statements(module) for node in ast.walk(item))
    )
    if site.loop is None or not _calls_eval(around):
        return False
    return function is None or (function.name == "main" and _guarded(module)) or runs_once(context, module, function)


def _guarded(module: Module) -> bool:
    return sum(isinstance(node, ast.Call) and dotted(node.func) == "main" for node in module.nodes) == 1


def in_evaluation_mode(context: Context, group: Group) -> bool:
    """Whether something puts a model in evaluation mode: in this file, in a function that makes the model, or in a caller's.

    A graph computes what the model computes in evaluation mode; a model that is never put there computes something else.
    """
    module, known = context.module, context.known
    if _calls_eval(module.calls):
        return True
    root = group.model.partition(".")[0]
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and root in bound_names(node):
            made = module.find_callee(node.value.func)
            if made is not None and _calls_eval(ast.walk(made[1])):
                return True
    names = {site.function.name for site in group.sites if site.function is not None}
    return any(
        _calls_eval(where.nodes) for name in names for where, _ in known.calls.by_name.get(name, []) if where is not module
    )


def _calls_eval(nodes: Iterable[ast.AST]) -> bool:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "eval" and not node.args:
                return True
            if node.func.attr == "train" and node.args and isinstance(node.args[0], ast.Constant) and not node.args[0].value:
                return True
    return False


def propose(context: Context, group: Group, site: Loop, code: str, what: str) -> Fix:
    """The remark on one group, with its edits where there are any."""
    edits = graph_edits(context, group)
    if isinstance(edits, Refusal):
        message = f"the {what} stays eager: {group.model} cannot be replaced by a graph here, because {edits.reason}"
        return Fix(Finding(site.path, site.call_line, site.call_column, code, message, "warning", "manual"))
    added = import_edit(context)
    if added is not None:
        edits.append(added)
    if in_evaluation_mode(context, group):
        message = f"the {what} calls {group.model} eagerly"
        return Fix(Finding(site.path, site.call_line, site.call_column, code, message, "note", "safe"), tuple(edits))
    message = (
        f"the {what} calls {group.model}, which nothing puts in evaluation mode, as a graph would be; add {group.model}.eval()"
    )
    return Fix(Finding(site.path, site.call_line, site.call_column, code, message, "warning", "unsafe"), tuple(edits))


def graph_edits(context: Context, group: Group) -> list[Edit] | Refusal:
    """The edits that bring one group into graph mode, without the import; or why they cannot be made."""
    module, positions = context.module, context.positions
    refusal = refused(module, group)
    if refusal is not None:
        return refusal
    place = construction(context, group)
    if isinstance(place, Refusal):
        return place
    anchor, after = place.statement, place.after
    text = f"{place.graph} = headrace.compile({group.model})"
    insertion = positions.insert_after(anchor, text) if after else positions.insert_before(anchor, text)
    return [insertion, *(call_edit(positions, site, place.graph) for site in group.sites)]


def call_edit(positions: Positions, site: CallSite, graph: str) -> Edit:
    """The edit that calls the graph instead of the model."""
    start, end = positions.span(site.call.func)
    return Edit(start, end, graph)


def refused(module: Module, group: Group, *, falls_back: bool = False) -> Refusal | None:
    """Why no graph can stand for the model in these calls, if none can; `falls_back` is for one that calls the model itself
    where it finds that it cannot."""
    for site in group.sites:
        if len(site.call.args) != 1 or site.call.keywords:
            return Refusal("it is called with more than one argument")
        if _in_string(module, site.call):
            return Refusal("it stands inside an f-string, and strings are not edited")
        if _is_collection(module, site):
            return Refusal("it takes a list of inputs instead of one batch")
        if not falls_back and _taken_by_name(module, site):
            return Refusal("its output is taken apart by name")
        if not falls_back and "." in group.model and not group.model.startswith("self."):
            return Refusal(f"{group.model} is reached through another object")
    for node in module.calls:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _HOOKS:
                return Refusal("this file registers hooks, which a graph would not call")
            if not falls_back and node.func.attr == "half" and dotted(node.func.value) == group.model:
                return Refusal("it is brought to half precision by hand")
    if bound_elsewhere(module):
        return Refusal("the file uses the name headrace for something else")
    return None


def _in_string(module: Module, node: ast.AST) -> bool:
    while not isinstance(node, ast.stmt):
        if isinstance(node, ast.JoinedStr):
            return True
        node = module.parents[node]
    return False


def _is_collection(module: Module, site: CallSite) -> bool:
    """`model([image])`, and `images = list(...)` before `model(images)`: detectors, and sessions of other runtimes."""
    given = site.call.args[0]
    values = [given]
    if isinstance(given, ast.Name):
        scope: ast.AST = site.function or module.tree
        nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and node.lineno < site.call.lineno]
        named = [node for node in nodes if any(dotted(target) == given.id for target in node.targets)]
        values += [node.value for node in named if module.parents[node] is module.parents[module.statement_of(site.call)]]
    return any(
        isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp)
        or (isinstance(value, ast.Call) and dotted(value.func) in ("list", "tuple", "dict"))
        for value in values
    )


def _taken_by_name(module: Module, site: CallSite) -> bool:
    for node in ast.walk(site.function or module.tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)):
            continue
        if node.value is site.call or (site.fact.outputs is not None and dotted(node.value) == site.fact.outputs):
            return True
    return False


def bound_elsewhere(module: Module) -> bool:
    if "headrace" not in module.words:
        return False
    return module.imports.get("headrace", "headrace") != "headrace" or any(
        isinstance(node, ast.Name) and node.id == "headrace" and isinstance(node.ctx, ast.Store) for node in module.nodes
    )


def import_edit(context: Context) -> Edit | None:
    """The import of headrace, among the other imports; None when the file has it."""
    module, positions = context.module, context.positions
    if module.imports.get("headrace") == "headrace":
        return None
    body = module.tree.body
    imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom) and positions.starts_line(item)]
    imports = [item for item in imports if not (isinstance(item, ast.ImportFrom) and item.module == "__future__")]
    used = _first_use(context)
    torch = [item for item in imports if _imports_torch(item) and item.lineno < used]
    imports = [item for item in imports if item.lineno < used]
    if torch:
        return positions.insert_before(torch[0], "import headrace")
    if imports:
        return positions.insert_after(imports[-1], "import headrace")
    first = [item for item in body if not _is_header(item)]
    if first:
        return positions.insert_before(first[0], "import headrace")
    return positions.insert_after(body[-1], "import headrace")


def _first_use(context: Context) -> int:
    """The line of the first statement at module level, definitions aside, that mentions a model; no graph is made above it."""
    roots = {site.fact.model.partition(".")[0] for site in context.sites}
    for item in context.module.tree.body:
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom) and any(
            isinstance(node, ast.Name) and (node.id in roots or node.id == "__name__") for node in ast.walk(item)
        ):
            return item.lineno
    return len(context.positions.lines) + 1


def _imports_torch(item: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else [item.module or ""]
    return any(name.partition(".")[0] in ("torch", "torchvision") for name in names) and not (
        isinstance(item, ast.ImportFrom) and item.level
    )


def _is_header(item: ast.stmt) -> bool:
    if isinstance(item, ast.ImportFrom) and item.module == "__future__":
        return True
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
