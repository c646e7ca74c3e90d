"""Bring the calls of one model into graph mode: which go together, whether that may be, and the edits."""

import ast
from collections.abc import Iterable

from ..reading.edits import Edit, Positions
from ..reading.facts import Loop
from ..reading.nodes import arguments_of, inside, is_docstring, is_future_import, text_of
from ..reading.scopes import Definition, Function, Module, bound_names, dotted, last_name, parameters, root_of
from ..slicing.modes import knows_no_mode
from ..survey.call_purposes import part_of_input
from ..survey.gradients import always_differentiated, always_gradless, freezes
from ..survey.loops import CallSite
from .placement import Group, RejectedError, construction, loop_around, main_statements, runs_once
from .rule import Context, Fix, at_call

_HOOKS = frozenset(
    ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook"]
)

_KEEPS = frozenset(["register_hook", "retain_grad"])


def groups(context: Context) -> list[Group]:
    """The evaluation and prediction calls of a file, by function and model; those whose results are always differentiated only
    where there are no others."""
    found: dict[tuple[Function | None, str], list[CallSite]] = {}
    for site in context.sites:
        if site.fact.kind != "train" and not _is_test(site):
            found.setdefault((site.function, site.fact.model), []).append(site)
    return [Group(tuple(_of_evaluation(sites) or sites)) for sites in found.values()]


def _of_evaluation(sites: list[CallSite]) -> list[CallSite]:
    return [site for site in sites if not always_differentiated(site.module, site.call)]


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


def training_script(context: Context, group: Group) -> str | None:
    """Of calls in a file that does not train, the first script that trains and reaches one of them."""
    if any(site.trained_here for site in group.sites):
        return None
    facts = {site.fact for site in group.sites}
    paths = [script.path for script in context.survey.scripts if "train" in script.roles and facts & set(script.loops)]
    return paths[0] if paths and context.module.path not in paths else None


def _runs_once(context: Context, site: CallSite) -> bool:
    """Whether a call's loop runs once in a process, and its own function puts the model in evaluation mode before."""
    module, function = site.module, site.function
    if loop_around(module, site.loop or site.call, function) is not None:
        return False
    around = [function] if function is not None else main_statements(module)
    before = (call for item in around for call in inside(item, ast.Call) if call.lineno < site.call.lineno)
    if site.loop is None or not _calls_eval(before):
        return False
    return function is None or (function.name == "main" and _guarded(module)) or runs_once(context, function)


def _guarded(module: Module) -> bool:
    return sum(dotted(call.func) == "main" for call in module.calls) == 1


def in_evaluation_mode(context: Context, group: Group) -> bool:
    """Whether something puts a model in evaluation mode: in this file, in the one from which it is imported, in a function that
    makes the model, or in a caller's; or it computes the same in both modes.

    A graph computes what the model computes in evaluation mode; a model that is never put there computes something else.
    """
    module, index = context.module, context.index
    if _calls_eval(module.calls):
        return True
    root = group.model.partition(".")[0]
    values = [node.value for node in module.nodes if isinstance(node, ast.Assign) and group.model in map(dotted, node.targets)]
    if values and all(knows_no_mode(module, value) for value in values if root_of(value) != group.model):
        return True
    home = module.source_of(module.imports.get(root, ""))
    if home is not None and _calls_eval(home.calls):  # the file that makes the model and this one imports
        return True
    function = group.first.function
    owner = module.class_of(function) if root == "self" and function is not None else None
    for node in module.nodes if root != "self" else inside(owner, ast.AST):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = bound_names(node) if root != "self" else map(dotted, node.targets)
            made = _maker(module, node.value.func) if group.model in names or root in names else None
            if made is not None and _calls_eval(inside(made, ast.Call)):
                return True
    if _is_handed_over(context, group):
        return True
    functions = [site.function for site in group.sites if site.function is not None]
    return any(
        _calls_eval(where.calls)
        for function in functions
        for where, call in index.calls.by_name.get(function.name, [])
        if where is not module and _may_call(where, call, function)
    )


def _maker(module: Module, func: ast.expr) -> Definition | None:
    """The function that a call runs, or the method of a class of the repository: `Net.load(path)`."""
    found = module.find_callee(func)
    if found is not None or not isinstance(func, ast.Attribute):
        return found[1] if found is not None else None
    owner = module.find_callee(func.value)
    methods = owner[1].body if owner is not None and isinstance(owner[1], ast.ClassDef) else []
    return next((item for item in methods if isinstance(item, Function) and item.name == func.attr), None)


def _is_handed_over(context: Context, group: Group) -> bool:
    """Whether a model that functions pass on as they were given it is one that a function makes in evaluation mode:
    `predict(weights.load_model(), loader)`. Of a name that several files define, all of them do."""
    module, root = context.module, group.model.partition(".")[0]
    given = {item.arg for site in group.sites if site.function is not None for item in parameters(site.function)}
    if root not in given:
        return False
    for call in module.calls:
        for value in arguments_of(call):
            if isinstance(value, ast.Call) and module.find_callee(call.func) is not None:
                made = _definitions(context, value.func)
                if made and all(_calls_eval(inside(item, ast.Call)) for item in made):
                    return True
    return False


def _definitions(context: Context, func: ast.expr) -> list[Definition]:
    """What a call may be one of: the function that it names, else every one of its last name in the repository."""
    found = context.module.find_callee(func)
    if found is not None:
        return [found[1]]
    name = last_name(func)
    return [module.definitions[name] for module in context.index.repository.modules.values() if name in module.definitions]


def _may_call(module: Module, call: ast.Call, function: ast.AST) -> bool:
    """Whether a call by the name of a function may be one of it: each script has a `main` of its own."""
    found = module.find_callee(call.func)
    return isinstance(call.func, ast.Attribute) if found is None else found[1] is function


def _calls_eval(calls: Iterable[ast.Call]) -> bool:
    for node in calls:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "eval" and not node.args:
                return True
            if node.func.attr == "train" and node.args and isinstance(node.args[0], ast.Constant) and not node.args[0].value:
                return True
    return False


def propose(context: Context, group: Group, site: Loop, code: str, what: str) -> Fix:
    """The remark on one group, with its edits where there are any."""
    try:
        edits = graph_edits(context, group)
    except RejectedError as reason:
        message = f"the {what} stays eager: {group.model} cannot be replaced by a graph here, because {reason}"
        return at_call(site, code, message, severity="warning")
    if in_evaluation_mode(context, group):
        return at_call(site, code, f"the {what} calls {group.model} eagerly", edits)
    message = (
        f"the {what} calls {group.model}, which nothing puts in evaluation mode, as a graph would be; add {group.model}.eval()"
    )
    return at_call(site, code, message, edits, severity="warning", offer="unsafe")


def graph_edits(context: Context, group: Group) -> list[Edit]:
    """The edits that bring one group into graph mode, with the import. Raises RejectedError where they cannot be made."""
    module, positions = context.module, context.positions
    check_not_eager(context, group)
    check_calls(module, group)
    place = construction(context, group)
    anchor, after = place.statement, place.after
    text = f"{place.graph} = headrace.compile({group.model})"
    insertion = positions.insert_after(anchor, text) if after else positions.insert_before(anchor, text)
    return [insertion, *(call_edit(positions, site, place.graph) for site in group.sites), *import_edits(context)]


def call_edit(positions: Positions, site: CallSite, graph: str) -> Edit:
    """The edit that calls the graph instead of the model."""
    start, end = positions.span(site.call.func)
    return Edit(start, end, graph)


def check_not_eager(context: Context, group: Group) -> None:
    """Raise RejectedError where a call was found to be one of a model that cannot become a graph."""
    for site in group.sites:
        if site.fact in context.eager:
            raise RejectedError(context.eager[site.fact])


def check_calls(module: Module, group: Group, *, falls_back: bool = False) -> None:
    """Raise RejectedError where no graph can stand for the model in these calls; `falls_back` is for one that calls the model
    itself where it finds that it cannot."""
    for site in group.sites:
        if not falls_back and not site.call.args:
            raise RejectedError("the model is called with its input by name")
        for beside in arguments_of(site.call)[1:]:
            if not is_constant(beside) and not (falls_back and dotted(beside) is not None):
                raise RejectedError(f"the model is called with more than one argument: {ast.unparse(beside)} is no constant")
        if any(isinstance(node, ast.JoinedStr) for node in module.ancestors(site.call)):
            raise RejectedError("the call stands inside an f-string, and strings are not edited")
        if _is_collection(module, site):
            raise RejectedError("the model takes a list of inputs instead of one batch")
        if not falls_back and site.call.args and (part := part_of_input(module, site.function, site.call.args[0])) is not None:
            raise RejectedError(f"what it is given is no tensor: {part} is read beside")
        if not falls_back and _taken_by_name(module, site):
            raise RejectedError("the output is taken apart by name")
        if (
            site.mapped
            or _hooks_gradients(module, site)
            or (always_differentiated(module, site.call) if falls_back else _takes_gradient(module, site))
        ):
            raise RejectedError("the code around the call takes gradients, which a graph does not give")
        if not falls_back and _mode_before(module, site) == "train":
            raise RejectedError(
                "the code before the call puts layers in training mode, and a graph computes as in evaluation mode"
            )
    for node in module.calls:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _HOOKS:
                raise RejectedError("this file registers hooks, which a graph would not call")
            if not falls_back and node.func.attr == "half" and dotted(node.func.value) == group.model:
                raise RejectedError("the script brings the model to half precision itself")
    check_name(module)


def is_constant(node: ast.expr) -> bool:
    """Whether an argument beside the input is written as what a graph takes for a part of itself: 1.5, True, None, (7, 7)."""
    if isinstance(node, ast.Tuple):
        return all(map(is_constant, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_constant(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None)


def _takes_gradient(module: Module, site: CallSite) -> bool:
    """Whether the function, or at module level the statement, around a call asks for gradients: of the inputs, for an attack or
    a map of saliency, say; or a statement after it does."""
    if always_gradless(module, site.call):
        return False
    if always_differentiated(module, site.call):
        return True
    scope = site.function or [site.call, *module.ancestors(site.call)][-2]
    called = {last_name(call.func) for call in inside(scope, ast.Call) if not freezes(call)}
    off = [target for node in inside(scope, ast.Assign) if freezes(node) for target in node.targets]
    stored = {node.attr for node in inside(scope, ast.Attribute) if isinstance(node.ctx, ast.Store) and node not in off}
    expanded = {module.expand(call.func) for call in inside(scope, ast.Call)}
    return (
        bool({"requires_grad_", "retain_grad", "backward"} & called)
        or "requires_grad" in stored
        or ("torch.autograd.grad" in expanded)
    )


def _hooks_gradients(module: Module, site: CallSite) -> bool:
    """Whether the class around a call, or its function, keeps gradients of what lies between layers, for a map of them."""
    around = next((node for node in module.ancestors(site.call) if isinstance(node, ast.ClassDef)), site.function)
    hooked = around is not None and any(last_name(call.func) in _KEEPS for call in inside(around, ast.Call))
    return hooked and not always_gradless(module, site.call)


def _mode_before(module: Module, site: CallSite) -> str | None:
    """Which of eval() and train() the function, or the file, calls last before a model's call, on whatever layers."""
    scope: ast.AST = site.function or module.tree
    calls = [
        call for call in inside(scope, ast.Call) if call.lineno < site.call.lineno and module.function_of(call) is site.function
    ]
    modes = [mode for call in sorted(calls, key=lambda call: call.lineno) if (mode := _mode_set_by(module, call)) is not None]
    return modes[-1] if modes else None


def _mode_set_by(module: Module, call: ast.Call) -> str | None:
    """The mode that a call sets: `m.train()`, or a function of the repository that ends in it, such as `enable_dropout(m)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("train", "eval"):
        off = [item for item in arguments_of(call) if isinstance(item, ast.Constant) and not item.value]
        return "eval" if call.func.attr == "eval" or off else "train"
    found = module.find_callee(call.func)
    if found is None or not isinstance(found[1], Function):
        return None
    inner = [item for item in inside(found[1], ast.Call) if isinstance(item.func, ast.Attribute)]
    modes = [item for item in sorted(inner, key=lambda item: item.lineno) if last_name(item.func) in ("train", "eval")]
    return _mode_set_by(found[0], modes[-1]) if modes else None


def _is_collection(module: Module, site: CallSite) -> bool:
    """`model([image])`, and `images = list(...)` before `model(images)`: detectors, and sessions of other runtimes."""
    if not site.call.args:
        return False
    given = site.call.args[0]
    values = [given]
    if isinstance(given, ast.Name):
        nodes = [node for node in inside(site.function or module.tree, ast.Assign) if node.lineno < site.call.lineno]
        named = [node for node in nodes if any(dotted(target) == given.id for target in node.targets)]
        values += [node.value for node in named if module.parents[node] is module.parents[module.statement_of(site.call)]]
    return any(
        isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp)
        or (isinstance(value, ast.Call) and dotted(value.func) in ("list", "tuple", "dict"))
        for value in values
    )


def _taken_by_name(module: Module, site: CallSite) -> bool:
    """Whether a part of the output, or of an item of it, is taken by its name: a detector gives `model(images)[0]["boxes"]`."""
    taken: ast.AST = site.call
    while isinstance(module.parents[taken], ast.Subscript):
        taken = module.parents[taken]
        assert isinstance(taken, ast.Subscript)
        if text_of(taken.slice) is not None:
            return True
    statement = module.parents[taken]
    names = set(map(dotted, statement.targets)) if isinstance(statement, ast.Assign) else set()
    return any(
        text_of(node.slice) is not None and dotted(node.value) in names - {None}
        for node in inside(site.function or module.tree, ast.Subscript)
    )


def check_name(module: Module) -> None:
    """Raise RejectedError where the file means something else by `headrace`."""
    if bound_elsewhere(module):
        raise RejectedError("the file uses the name headrace for something else")


def bound_elsewhere(module: Module) -> bool:
    if "headrace" not in module.words:
        return False
    return module.imports.get("headrace", "headrace") != "headrace" or any(
        isinstance(node, ast.Name) and node.id == "headrace" and isinstance(node.ctx, ast.Store) for node in module.nodes
    )


def import_edits(context: Context) -> list[Edit]:
    """The import of headrace, among the other imports; nothing when the file has it."""
    module, positions = context.module, context.positions
    if module.imports.get("headrace") == "headrace":
        return []
    body = module.tree.body
    imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom) and positions.starts_line(item)]
    used = _first_use(context)
    imports = [item for item in imports if not is_future_import(item) and item.lineno < used]
    torch = [item for item in imports if _imports_torch(item)]
    first = [item for item in body if not is_future_import(item) and not is_docstring(item)]
    if torch or (first and not imports):
        return [positions.insert_before((torch or first)[0], "import headrace")]
    return [positions.insert_after((imports or body)[-1], "import headrace")]


def _first_use(context: Context) -> int:
    """The line of the first statement at module level, definitions aside, that mentions or imports a model; no graph is made
    above it."""
    roots = {site.fact.model.partition(".")[0] for site in context.sites} | {"__name__"}
    for item in context.module.tree.body:
        if not isinstance(item, Definition) and any(
            (isinstance(node, ast.Name) and node.id in roots)
            or (isinstance(node, ast.alias) and (node.asname or node.name).partition(".")[0] in roots)
            for node in ast.walk(item)
        ):
            return item.lineno
    return len(context.positions.lines) + 1


def _imports_torch(item: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else [item.module or ""]
    return any(name.partition(".")[0] in ("torch", "torchvision") for name in names) and not (
        isinstance(item, ast.ImportFrom) and item.level
    )
