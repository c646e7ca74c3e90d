"""Find the calls of a model: in loops over batches and in prediction code."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..reading.bindings import FUNCTIONS
from ..reading.facts import Loop, LoopKind
from ..reading.nodes import arguments_of, inside, values_of
from ..reading.scopes import Definition, Function, Module, bound_names, dotted, last_name, parameters
from ..slicing.factories import ModelTable
from ..slicing.heads import is_zoo_constructor
from .batch_loops import enclosing_loop, purpose
from .call_purposes import annotated_as, gives_rows, is_text, ranked
from .gradients import always_gradless, only_looks

_NAMED = re.compile(r"^(.*_)?(model|net|network|classifier|backbone|teacher|student|ema)s?(_.*|\d*)$|^(model|net)_?\w*$", re.I)
_WORD = re.compile(r"_?[A-Za-z]+\d*_?")
_OTHER = re.compile(
    r"criterion|loss|transform|preprocess|metric|optimi|scheduler|loader|augment|mixup|scaler|accuracy|sampler|logger", re.I
)
_KIND = re.compile(
    r"(^|_)(names?|class|cls|type|factory|builder|ctor|constructor|callbacks?|func|function|fn|hooks?|handler)$", re.I
)
"""Ends of names of what makes a model, a class, a function, or the name of one; and of functions that somebody hands over."""
_SETTINGS = re.compile(
    r"^_?(cfgs?|confs?|configs?|configurations?|args|arguments|opts?|options|hparams|hyper_?param(eter)?s|settings|flags"
    r"|(n|num|number)_?(of_?)?(classes|labels|outputs?)|pretrained)$",
    re.I,
)
"""What a model is made of, and never called with."""
_BUILDING = re.compile(
    r"^(create|build|get|re?load|restore|make|init|save|test|wrap|parse|convert|check|print|summary|download|freeze|set"
    r"|(export|register|define|setup|fit|quanti[sz]e|prune|profile|count|show|visuali[sz]e|plot|import|copy|clone|update"
    r"|estimate|compute|calc|calculate|generate|extract|apply|log|draw|list|find|add|remove|split|merge|is|has"
    r"|normali[sz]e|choose|select|pick|resolve|validate|with|from|on|for|to|upload|publish|send|rename|describe)(?=_))_?",
    re.I,
)
_SYNTHETIC = frozenset(["randn", "rand", "zeros", "ones", "empty", "randint", "randn_like", "ones_like", "zeros_like", "full"])
_MODE = frozenset(["eval", "train"])
_NOT_MODELS = ("headrace.", "torch.optim", "torch.utils", "torchvision.transforms", "numpy")
_EXECUTORS = (
    *("poptorch.", "onnxruntime.", "openvino.", "tensorrt.", "torch_tensorrt.", "torch2trt.", "deepsparse.", "tvm."),
    *("optimum.onnxruntime.", "optimum.intel.", "optimum.graphcore.", "tflite_runtime.", "rknn", "hailo_platform."),
    "cv2.dnn.",
)
"""Other runtimes: what they make of a network runs on their own devices, and is no network of torch's any more."""
_FOREIGN = frozenset(["mxnet", "gluoncv", "tensorflow", "keras", "jax", "flax", "paddle", "mindspore", "chainer", "tinygrad"])
"""Frameworks whose networks and loops read like torch's."""
_TORCHES = frozenset(["torch", "torchvision", "timm", "transformers", "lightning", "pytorch_lightning"])
_INPUTS = re.compile(r"^(x|pixel_values|imgs?|images?|inputs?|samples?|batch)$")
_INPUTS_BY_NAME = re.compile(r"input|batch|encod|pixel|image|sample|feature", re.I)
_OTHER_RUNTIMES = frozenset(["compile_model", "InferenceSession", "read_model", "read_network", "load_network", "Interpreter"])
TRAINING_STEP = "headrace.training_step"


@dataclass(frozen=True, eq=False)
class CallSite:
    """A model call with the nodes it was read from; `loop` is the batch loop around it."""

    fact: Loop
    module: Module
    call: ast.Call
    function: Function | None
    loop: ast.For | ast.AsyncFor | None
    trained_here: bool
    """Whether the same function or the same module level also back-propagates through this model."""
    captured: bool = False
    """Whether it calls a training graph, which `headrace.training_step` made of the model."""
    mapped: bool = False
    """Whether gradients are taken through it and train nothing: a map of what the model looks at, or an attack on it."""


def trainer_loop(module: Module, call: ast.Call, kind: LoopKind, model: str) -> Loop:
    """What a call of a trainer, which holds the loop itself, is as the call of a model."""
    return Loop(
        path=module.path,
        function=module.qualified(module.function_of(call)),
        line=call.lineno,
        kind=kind,
        model=model,
        inputs="",
        call_line=call.lineno,
        call_column=module.place(call)[1],
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainerSite(CallSite):
    """A call that hands a model to a trainer, which has the loops."""

    loaders: tuple[ast.expr, ...] = ()
    """Expressions in the call that lead to the data, those of evaluation first."""


def find_calls(module: Module, table: ModelTable) -> list[CallSite]:
    """Every call of a model in one file, calls inside networks' own methods left out."""
    skipped: set[ast.AST] = {
        node for node in module.nodes if isinstance(node, ast.ClassDef) and is_network(module, node, table)
    }
    skipped.update(_put_in_place(module))
    evidence = _ModelNames(module, table)
    found = []
    for node, function in _calls(module, skipped):
        if not _is_foreign(module, node, function) and (site := _read(module, node, function, evidence)) is not None:
            found.append(site)
    return sorted(found, key=lambda site: (site.fact.call_line, site.fact.call_column))


def _put_in_place(module: Module) -> Iterator[ast.AST]:
    """Functions that become a network's own: `model.forward = partial(forward_backbone, model)`."""
    given = {
        name.id
        for node in module.of_kind(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "forward"
        for name in inside(node.value, ast.Name)
    }
    return (node for node in module.of_kind(ast.FunctionDef) if node.name in given)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_foreign(module: Module, call: ast.Call, function: Function | None) -> bool:
    """Whether a call is another framework's: it uses one itself, or stands in a function that uses one and not torch, or in one
    that uses neither in a file of such."""
    of_file = set(map(_root, module.imports.values()))
    if not _FOREIGN & of_file:
        return False
    given, used = (
        {_root(module.imported_as(node.id, node) or "") for node in inside(part, ast.Name)} for part in (call, function)
    )
    roots = used if used & (_FOREIGN | _TORCHES) else of_file
    return bool(_FOREIGN & given) or (bool(_FOREIGN & roots) and not _TORCHES & roots)


def is_network(module: Module, node: ast.ClassDef, table: ModelTable, depth: int = 0) -> bool:
    """Whether a class is a module: of torch as far as can be told, or one with a `forward` and a base from who knows where."""
    if node in table.classes:
        return True
    if any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body):
        return any(last_name(base) != "object" for base in node.bases)
    found = [module.find_callee(base) for base in node.bases if depth < 20]
    return any(
        item is not None and isinstance(item[1], ast.ClassDef) and is_network(item[0], item[1], table, depth + 1)
        for item in found
    )


def _calls(module: Module, skipped: set[ast.AST]) -> Iterator[tuple[ast.Call, Function | None]]:
    stack: list[tuple[ast.AST, Function | None]] = [(module.tree, None)]
    while stack:
        node, function = stack.pop()
        if node in skipped:
            # a Lightning module calls its inner network in its own steps; those are the framework's loops, not this file's
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
        elif isinstance(node, ast.Call):
            yield node, function
        stack.extend((child, function) for child in ast.iter_child_nodes(node))


class _ModelNames:
    """Which names of a file stand for models."""

    def __init__(self, module: Module, table: ModelTable) -> None:
        self.module = module
        self.table = table
        self.touched: set[str] = set()
        """Dotted names on which only a module's methods are called."""
        self.built: set[str] = set()
        """Dotted names bound to what a factory returns."""
        self.other: set[str] = set()
        """Dotted names bound to a loss or the like."""
        self.executors: set[str] = set()
        """Dotted names bound to what another runtime made of a model."""
        self.steps: dict[str, str] = {}
        """Names of training graphs, and of the models that they train."""
        self.of_rows = gives_rows(module)
        """Whether the file gives networks images as rows of their pixels, as `model(images.view(-1, 784))`."""
        self.ranked = ranked(module)
        """Names whose answers the file ranks as scores of classes."""
        for call in module.calls:
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in _MODE
                and (name := dotted(call.func.value)) is not None
            ):
                self.touched.add(name)
        bound = [node for node in module.nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
        for assignment in sorted(bound, key=lambda node: node.lineno):
            self._bind(assignment)

    def _bind(self, node: ast.Assign) -> None:
        assert isinstance(node.value, ast.Call)
        call = node.value
        while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
            call = call.func.value  # Net().to(device)
        names = {name for target in node.targets if (name := dotted(target)) is not None}
        expanded = self.module.expand(call.func) or ""
        leaf = last_name(call.func)
        if expanded == TRAINING_STEP and call.args and (trained := dotted(call.args[0])) is not None:
            self.steps.update(dict.fromkeys(names, trained))
        target = self.module.find_callee(call.func)
        if expanded.startswith(_EXECUTORS):
            self.executors |= names
        elif target is not None:
            owner, definition = target
            if isinstance(definition, ast.ClassDef):
                model = self.table.classes.get(definition)
                is_one = model is not None and (
                    self.table.classifier_shaped(model, of_rows=self.of_rows)
                    or any(map(self._holds, arguments_of(call)))
                    or (not names.isdisjoint(self.ranked) and self.table.may_classify(model))
                )
                (self.built if is_one else self.other).update(names)
            elif isinstance(definition, ast.FunctionDef) and self.table.builders(owner, definition):
                self.built |= names
        elif is_zoo_constructor(expanded):
            self.built |= names
        elif (
            leaf.endswith("Loss") or leaf in _OTHER_RUNTIMES or expanded.startswith(_NOT_MODELS) or _root(expanded) in _FOREIGN
        ):
            self.other |= names

    def _holds(self, value: ast.expr) -> bool:
        """Whether an argument is a model, or holds some: `Normalized(net, mean)`, `Ensemble([load(i) for i in range(3)])`."""
        items = [value, *self._items(value)]
        if any(dotted(item) in self.built for item in items):
            return True
        calls = [item for item in items if isinstance(item, ast.Call)]
        found = [self.module.find_callee(call.func) for call in calls]
        made = any(item is not None and self.table.makes_model(*item) for item in found)
        return made or any(is_zoo_constructor(self.module.expand(call.func)) for call in calls)

    def _items(self, value: ast.expr) -> Iterator[ast.expr]:
        """What a list holds, be it written out, gone through, a name of one, or handed on as a ModuleList."""
        if isinstance(value, ast.Name):
            given = values_of(self.module.tree, value.id)
            value = next((item for item in given if isinstance(item, ast.List | ast.ListComp)), value)
        match value:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                yield from items
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
                yield item
            case ast.Starred(value=inner) | ast.Call(func=ast.Attribute(attr="ModuleList"), args=[inner]):
                yield from self._items(inner)

    def is_model(self, name: str) -> bool:
        if name in self.executors or (name in self.other and name not in self.built):
            return False
        if name in self.touched or name in self.built:
            return True
        leaf = name.rpartition(".")[2]
        if _BUILDING.match(leaf.lstrip("_")):
            return False
        if not _NAMED.match(leaf) or _OTHER.search(leaf) or _KIND.search(leaf):
            return False
        # client.search_model_versions("x"): a part of several words that nothing here sets is something that an object does
        return leaf == name or _WORD.fullmatch(leaf) is not None or leaf in self.module.repository.held


def _is_set(module: Module, attribute: str) -> bool:
    """Whether anything of that name is given a value in the file, in a class or on an object."""
    named = [node.ctx for node in module.of_kind(ast.Name) if node.id == attribute]
    named += [node.ctx for node in module.of_kind(ast.Attribute) if node.attr == attribute]
    return any(isinstance(context, ast.Store) for context in named)


def _read(module: Module, call: ast.Call, function: Function | None, evidence: _ModelNames) -> CallSite | None:
    callee: ast.AST = call.func
    if isinstance(callee, ast.Attribute) and callee.attr in ("forward", "__call__", "module"):
        callee = callee.value if callee.attr != "module" else callee
    name = dotted(callee)
    captured = name is not None and name in evidence.steps
    given = input_of(call)
    if name is None or given is None or not (captured or evidence.is_model(name)):
        return None
    if any(kind.startswith(_EXECUTORS) for kind in annotated_as(module, function, name)):
        return None
    root = name.partition(".")[0]
    if function is not None and name == root and module.imported_as(name, call) is not None and not values_of(function, name):
        if _value_of(module, name) is None:  # a class or a function that the function around it imports
            return None
    elif root not in _assigned(module, function) and not _imported_value(module, name, evidence):
        known = module.imports if "." in name else {**module.imports, **module.definitions}
        if root in known or ("." not in name and module.find(name) is not None):
            return None
    elif "." not in name and name in module.definitions:
        return None
    if isinstance(module.definitions.get(root), ast.ClassDef) and not _is_set(module, name.rpartition(".")[2]):
        return None  # a method of a class itself, such as one that makes an instance
    if _is_method(module, call) or ("." in name and module.imported_as(root, call) and not isinstance(callee, ast.Name)):
        return None
    parent = module.parents[call]
    if isinstance(parent, ast.withitem):
        return None
    if isinstance(parent, ast.Assign) and parent.value is call and name in map(dotted, parent.targets):
        return None  # `model = model(settings)`: a class that had the name; no model is lost for what it returns
    if (
        module.star_imports
        and re.match(r"[A-Z]\w*[a-z]", root)
        and root not in _assigned(module, None) | _assigned(module, function)
    ):
        return None  # a class that a star import brought
    if isinstance(given, ast.Constant) or is_text(module, function, given) or _is_synthetic(module, given, function):
        return None
    if _SETTINGS.match((dotted(given) or "").rpartition(".")[2]) or _is_looked_up(function or module.tree, name):
        return None  # a class or a function that makes a model of its settings
    site = call_site(module, call, function, evidence.steps.get(name, name), given)
    if captured:
        site = replace(site, fact=replace(site.fact, kind="train"), trained_here=True, captured=True)
    return site


def call_site(module: Module, call: ast.Call, function: Function | None, model: str, given: ast.expr) -> CallSite:
    """The call of a `model` on what is `given`, with the loop around it."""
    loop = enclosing_loop(module, call, function)
    statement = module.statement_of(call)
    kind, targets, trained = purpose(module, call, function, loop)
    outputs = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.value is call:
        outputs = dotted(statement.targets[0])
    outer: ast.AST = loop or statement
    fact = Loop(
        path=module.path,
        function=module.qualified(function),
        line=getattr(outer, "lineno", 1),
        kind=kind,
        model=model,
        inputs=ast.unparse(given),
        outputs=outputs,
        targets=targets,
        iterator=ast.unparse(loop.iter) if loop is not None else None,
        call_line=call.lineno,
        call_column=module.place(call)[1],
    )
    mapped = not always_gradless(module, call) and only_looks(module, loop or function)
    return CallSite(fact, module, call, function, loop, trained, mapped=mapped)


def _is_method(module: Module, call: ast.Call) -> bool:
    """Whether a call is one of a method of the class around it, or of a base in the repository: `self.run_model(x)`."""
    func = call.func
    own = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls")
    around = next((node for node in module.ancestors(call) if isinstance(node, ast.ClassDef)), None) if own else None
    queue: list[tuple[Module, Definition]] = [(module, around)] if around is not None else []
    seen: set[Definition] = set()
    while queue:
        where, kind = queue.pop()
        if kind in seen or not isinstance(kind, ast.ClassDef):
            continue
        seen.add(kind)
        named = [item for item in kind.body if isinstance(item, FUNCTIONS) and item.name == last_name(func)]
        if named:
            return not any(last_name(item).endswith("property") for item in named[0].decorator_list)
        queue += [found for base in kind.bases if (found := where.find_callee(base)) is not None]
    return False


def input_of(call: ast.Call) -> ast.expr | None:
    """What a call would hand to a model: `model(x)`, `model(pixel_values=x)` or `model(**inputs)`."""
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    for item in call.keywords:
        if _INPUTS.match(item.arg) if item.arg else _INPUTS_BY_NAME.search(dotted(item.value) or ""):
            return item.value
    return None


def _imported_value(module: Module, name: str, evidence: _ModelNames) -> bool:
    """Whether a name is imported from a file of the repository that makes a model at module level: `from model import net`."""
    value = _value_of(module, name)
    return value is not None and (name in evidence.touched or value[1] in _ModelNames(value[0], evidence.table).built)


def _value_of(module: Module, name: str) -> tuple[Module, str] | None:
    """The file of the repository from which a name is imported, and what it is there, where that file gives it a value."""
    source, _, original = module.imports.get(name, "").rpartition(".")
    where = module.repository.module(source, module.path) if source else None
    if where is None or original in where.definitions or original not in _assigned(where, None):
        return None
    return where, original


def _is_synthetic(module: Module, node: ast.expr, function: Function | None) -> bool:
    """Whether an input is made up, as `torch.randn(1, 3, 32, 32)` is: a self-test or a count of operations, not a use."""
    scope: ast.AST = function or module.tree
    for _ in range(5):
        while isinstance(node, ast.Call) and last_name(node.func) not in _SYNTHETIC:
            inner = node.func.value if isinstance(node.func, ast.Attribute) and not node.args else None
            inner = node.args[0] if inner is None and last_name(node.func) == "Variable" and node.args else inner
            if isinstance(node.func, ast.Attribute) and last_name(node.func) in ("to", "cuda", "half", "float"):
                inner = node.func.value
            if inner is None:
                return False
            node = inner
        if isinstance(node, ast.Call):
            return (module.expand(node.func) or "").startswith(("torch", "numpy"))
        if not isinstance(node, ast.Name):
            return False
        values = values_of(scope, node.id)
        if not values:
            return False
        node = values[0]
    return False


def _is_looked_up(scope: ast.AST, name: str) -> bool:
    """Whether a name is only bound to what a table of names has: `globals()[args.arch]`, `models.__dict__[arch]`."""
    values = values_of(scope, name)
    tables = [value.value for value in values if isinstance(value, ast.Subscript)]
    return bool(tables) and len(tables) == len(values) and all(map(_is_namespace, tables))


def _is_namespace(node: ast.expr) -> bool:
    """Whether it is the table of names of a module or of a function; that of an object may well hold a model."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("globals", "locals", "vars") and "self" not in map(dotted, node.args)
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and dotted(node.value) != "self"


def _assigned(module: Module, function: Function | None) -> set[str]:
    if function is None:
        return set().union(
            *(bound_names(statement) for statement in module.tree.body if not isinstance(statement, ast.ImportFrom))
        )
    names = {argument.arg for argument in parameters(function)}
    return names.union(*(bound_names(statement) for statement in function.body))
