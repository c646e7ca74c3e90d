"""Where a graph is constructed, what it is called, and how a call of the model becomes a call of the graph."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .edits import Edit, Positions
from .effects import MUTATING_CALL
from .facts import Loop
from .finding import Finding
from .loops import CallSite
from .rule import Context, Fix
from .scopes import Function, Module, bound_names, dotted, last_name, local_names, parameters

_PREPARING = frozenset(
    [
        "eval",
        "to",
        "cuda",
        "cpu",
        "load_state_dict",
        "float",
        "double",
        "train",
        "requires_grad_",
        "share_memory",
        "load",
        "fuse",
    ]
)
_HOOKS = frozenset(
    ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook"]
)


@dataclass(frozen=True)
class Group:
    """The calls of one model in one function (or at module level), which share one graph."""

    sites: tuple[CallSite, ...]

    @property
    def first(self) -> CallSite:
        return self.sites[0]

    @property
    def model(self) -> str:
        return self.first.fact.model

    @property
    def evaluates(self) -> bool:
        return any(site.fact.kind == "evaluate" for site in self.sites)


@dataclass(frozen=True)
class Refusal:
    """Why a group stays eager."""

    reason: str


def groups(context: Context) -> list[Group]:
    """The evaluation and prediction calls of a file, by function and model."""
    found: dict[tuple[Function | None, str], list[CallSite]] = {}
    for site in context.sites:
        if site.fact.kind != "train" and not _is_test(site):
            found.setdefault((site.function, site.fact.model), []).append(site)
    return [Group(tuple(sites)) for sites in found.values()]


def _is_test(site: CallSite) -> bool:
    name = site.module.path.rpartition("/")[2]
    function = site.fact.function or ""
    return function.startswith("test") and (name.startswith("test_") or "/tests/" in f"/{site.module.path}")


def is_trained(context: Context, group: Group) -> bool:
    """Whether the weights may change between calls: the file trains, or a script that trains reaches this call."""
    if any(site.trained_here for site in group.sites):
        return True
    facts = {site.fact for site in group.sites}
    return any("train" in script.roles and facts & set(script.loops) for script in context.survey.scripts)


def in_evaluation_mode(context: Context, group: Group) -> bool:
    """Whether something puts a model in evaluation mode: in this file, in a function that makes the model, or in a caller's.

    A graph computes what the model computes in evaluation mode; a model that is never put there computes something else.
    """
    module, known = context.module, context.known
    if _calls_eval(module.nodes):
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
    refusal = _refused(module, group)
    if refusal is not None:
        return refusal
    place = _construction(context, group)
    if isinstance(place, Refusal):
        return place
    anchor, after = place.statement, place.after
    text = f"{place.graph} = penstock.compile({group.model})"
    insertion = positions.insert_after(anchor, text) if after else positions.insert_before(anchor, text)
    return [insertion, *(_step(positions, site, place.graph) for site in group.sites)]


def _step(positions: Positions, site: CallSite, graph: str) -> Edit:
    start, end = positions.span(site.call.func)
    return Edit(start, end, graph)


def _refused(module: Module, group: Group) -> Refusal | None:
    for site in group.sites:
        if len(site.call.args) != 1 or site.call.keywords:
            return Refusal("it is called with more than one argument")
        if _is_collection(module, site):
            return Refusal("it takes a list of inputs instead of one batch")
        if _taken_by_name(module, site):
            return Refusal("its output is taken apart by name")
        if "." in group.model and not group.model.startswith("self."):
            return Refusal(f"{group.model} is reached through another object")
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = dotted(node.func.value) or ""
            if node.func.attr in _HOOKS:
                return Refusal("this file registers hooks, which a graph would not call")
            if node.func.attr == "half" and receiver == group.model:
                return Refusal("it is brought to half precision by hand")
    if _bound_elsewhere(module):
        return Refusal("the file uses the name penstock for something else")
    return None


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
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            if node.value is site.call or (site.fact.outputs is not None and dotted(node.value) == site.fact.outputs):
                return True
    return False


def _bound_elsewhere(module: Module) -> bool:
    return module.imports.get("penstock", "penstock") != "penstock" or any(
        isinstance(node, ast.Name) and node.id == "penstock" and isinstance(node.ctx, ast.Store) for node in module.nodes
    )


@dataclass(frozen=True)
class _Place:
    graph: str
    statement: ast.stmt
    after: bool


def _construction(context: Context, group: Group) -> _Place | Refusal:
    module, positions = context.module, context.positions
    site = group.first
    root = group.model.partition(".")[0]
    if root == "self":
        return _in_method(module, positions, group)
    function = site.function
    while function is not None and root not in local_names(function):
        function = module.function_of(function)
    if function is None:
        return _global(module, positions, group)
    given = root in {argument.arg for argument in parameters(function)}
    if given and all(item.loop is None for item in group.sites) and not _runs_once(context, module, function):
        return Refusal(
            "it is a parameter of a function that classifies one input, and a graph made at each call would be compiled at "
            "each; make the graph where the model is made, and hand it over instead"
        )
    if function is not site.function:  # a function nested in the one that binds the model
        return _local(module, positions, group, function, _statement_within(module, site.function, function))
    return _local(module, positions, group, function, module.statement_of(site.call))


def _runs_once(context: Context, module: Module, function: Function, depth: int = 0) -> bool:
    """Whether a function runs at most once in a process: one call in the repository, outside of loops, from code that does."""
    sites = []
    for where, call in context.known.calls.by_name.get(function.name, []):
        found = where.find_callee(call.func)
        if found is not None and found[1] is function:
            sites.append((where, call))
    decorated = any(last_name(item.func) != "command" for item in function.decorator_list if isinstance(item, ast.Call))
    if len(sites) != 1 or decorated or function.name in context.known.calls.handed or depth > 4:
        return False
    where, call = sites[0]
    current: ast.AST | None = where.parents.get(call)
    while current is not None and not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if isinstance(current, ast.For | ast.AsyncFor | ast.While | ast.comprehension | ast.ListComp | ast.GeneratorExp):
            return False
        current = where.parents.get(current)
    if isinstance(current, ast.Lambda):
        return False
    return current is None or _runs_once(context, where, current, depth + 1)


def _local(module: Module, positions: Positions, group: Group, function: Function, statement: ast.stmt) -> _Place | Refusal:
    anchor = _last_preparation(module, function.body, statement, group.model)
    name = graph_name(module, group.model)
    if anchor is not None:
        return _checked(positions, _Place(name, anchor, after=True), group)
    body = [item for item in function.body if item.lineno <= statement.lineno]
    return _checked(positions, _Place(name, body[-1], after=False), group)


def _global(module: Module, positions: Positions, group: Group) -> _Place | Refusal:
    """The model is a global: the graph is one too, made after the last statement that prepares the model."""
    site = group.first
    name = graph_name(module, group.model)
    if any(isinstance(node, ast.Global) and group.model in node.names for node in module.nodes):
        return Refusal("it is a global that functions rebind")
    if site.function is None:
        anchor = _last_preparation(module, module.tree.body, module.statement_of(site.call), group.model)
    else:
        prepared = [item for item in _module_blocks(module) if _touches(item, group.model)]
        anchor = prepared[-1] if prepared else None
    if anchor is None:
        return Refusal("the statement that makes it was not found in this file")
    if (
        site.function is not None
        and module.statement_of(site.call).lineno > anchor.lineno
        and _called_before(module, site, anchor)
    ):
        return Refusal("it is used before it is ready")
    return _checked(positions, _Place(name, anchor, after=True), group)


def _called_before(module: Module, site: CallSite, anchor: ast.stmt) -> bool:
    assert site.function is not None
    return any(
        isinstance(node, ast.Call) and last_name(node.func) == site.function.name and node.lineno <= anchor.lineno
        for item in _module_blocks(module)
        for node in ast.walk(item)
    )


def _in_method(module: Module, positions: Positions, group: Group) -> _Place | Refusal:
    site = group.first
    function = site.function
    owner = module.class_of(function) if function is not None else None
    if function is None or owner is None:
        return Refusal("the class that holds it was not found")
    if any(item.loop is not None for item in group.sites):
        return _local(module, positions, group, function, module.statement_of(site.call))
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None:
        return Refusal("its class has no __init__ in which a graph could be made")
    rebinding = [
        item
        for item in owner.body
        if isinstance(item, ast.FunctionDef) and item is not init and any(_touches(inner, group.model) for inner in item.body)
    ]
    if any(_binds(inner, group.model) for item in rebinding for inner in item.body):
        return Refusal("methods outside of __init__ rebind it")
    prepared = [item for item in init.body if _touches(item, group.model)]
    if not prepared:
        return Refusal("the statement in __init__ that makes it was not found")
    name = f"self.{attribute_name(owner)}"
    return _checked(positions, _Place(name, prepared[-1], after=True), group)


def _checked(positions: Positions, place: _Place, group: Group) -> _Place | Refusal:
    lines = {site.call.lineno for site in group.sites}
    end = place.statement.end_lineno or place.statement.lineno
    if not positions.starts_line(place.statement) or (place.after and end in lines):
        return Refusal("several statements share the line where the graph would be made")
    if place.after and positions.lines[end - 1].rstrip("\r\n").endswith("\\"):
        return Refusal("the line where the graph would be made continues on the next")
    return place


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
            if _touches(item, model):
                found = item
        block = next((inner for inner in _inner_blocks(step) if any(node is item for node in trail for item in inner)), ())
        if isinstance(step, ast.For | ast.AsyncFor | ast.While) and step is not trail[0] and not _prepares_inside(step, model):
            break  # what a batch loop does to other things does not make a graph anew
    return found


def _prepares_inside(loop: ast.stmt, model: str) -> bool:
    """Whether each round of a loop makes the model or fills it anew, so that its graph belongs inside."""
    return any(
        _binds(item, model)
        or any(isinstance(node, ast.Call) and dotted(node.func) == f"{model}.load_state_dict" for node in ast.walk(item))
        for item in _blocks_of(loop)
    )


def _blocks_of(node: ast.stmt) -> Iterator[ast.stmt]:
    for block in _inner_blocks(node):
        yield from block


def _inner_blocks(node: ast.AST) -> list[list[ast.stmt]]:
    blocks = [getattr(node, name) for name in ("body", "orelse", "finalbody") if isinstance(getattr(node, name, None), list)]
    return blocks + [part.body for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]]


def _module_blocks(module: Module) -> Iterator[ast.stmt]:
    """The statements at module level, and those in its main guard."""
    for item in module.tree.body:
        if isinstance(item, ast.If) and "__name__" in ast.unparse(item.test):
            yield from item.body
        elif not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item


def _statement_within(module: Module, inner: ast.AST | None, outer: Function) -> ast.stmt:
    """The statement of `outer`'s body that holds a nested function."""
    assert inner is not None
    current = inner
    while module.parents[current] is not outer:
        current = module.parents[current]
    assert isinstance(current, ast.stmt)
    return current


def _binds(statement: ast.stmt, model: str) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if "." not in model:
        return model in bound_names(statement)
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node) == model
        for node in ast.walk(statement)
    )


def _touches(statement: ast.stmt, model: str) -> bool:
    """Whether a statement binds the model, moves it, fills it, or hands it to something that does."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if _binds(statement, model):
        return True
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and dotted(node.func.value) == model and node.func.attr in _PREPARING:
            return True
        if MUTATING_CALL.search(last_name(node.func)) and any(dotted(value) == model for value in node.args):
            return True
    return False


def graph_name(module: Module, model: str) -> str:
    """A name for the graph that the file does not use yet."""
    taken = {node.id for node in module.nodes if isinstance(node, ast.Name)} | set(module.definitions) | set(module.imports)
    taken |= {node.arg for node in module.nodes if isinstance(node, ast.arg)}
    stem = model.rpartition(".")[2]
    candidates = ["graph", f"{stem}_graph", "penstock_graph", *(f"graph{number}" for number in range(2, 100))]
    return next(name for name in candidates if name not in taken)


def attribute_name(owner: ast.ClassDef) -> str:
    taken = {node.attr for node in ast.walk(owner) if isinstance(node, ast.Attribute)}
    taken |= {item.name for item in owner.body if isinstance(item, ast.FunctionDef)}
    return next(name for name in ("graph", "model_graph", "penstock_graph") if name not in taken)


def import_edit(context: Context) -> Edit | None:
    """The import of penstock, among the other imports; None when the file has it."""
    module, positions = context.module, context.positions
    if module.imports.get("penstock") == "penstock":
        return None
    body = module.tree.body
    imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom) and positions.starts_line(item)]
    imports = [item for item in imports if not (isinstance(item, ast.ImportFrom) and item.module == "__future__")]
    torch = [item for item in imports if _imports_torch(item)]
    if torch:
        return positions.insert_before(torch[0], "import penstock")
    if imports:
        return positions.insert_after(imports[-1], "import penstock")
    first = [item for item in body if not _is_header(item)]
    if first:
        return positions.insert_before(first[0], "import penstock")
    return positions.insert_after(body[-1], "import penstock")


def _imports_torch(item: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else [item.module or ""]
    return any(name.partition(".")[0] in ("torch", "torchvision") for name in names) and not (
        isinstance(item, ast.ImportFrom) and item.level
    )


def _is_header(item: ast.stmt) -> bool:
    if isinstance(item, ast.ImportFrom) and item.module == "__future__":
        return True
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
