"""What a call does to the objects it touches, as far as names and the repository's own functions tell.

The slicer asks here which statements change a live object, which only look at it, which load a checkpoint, and which train.
"""

import ast
import re

from ..reading.nodes import arguments_of, inside
from ..reading.scopes import Function, Module, dotted, last_name, parameters, root_of, use_of

MUTATING_CALL = re.compile(
    r"load|restore|resume|init|wrap|convert|fuse|replace|patch|set_|update|register|prepare|inject|add_|modify|merge|switch|deploy|"
    r"freeze|reset|setup|configure|override|apply|surgery|remove|prune",
    re.I,
)
"""Functions with such a word in their name change the object they are given, unless their source says otherwise."""
_METHOD_ON_OTHERS = re.compile(r"load|restore|resume|wrap|convert|fuse|patch", re.I)
TRAINING_CALLS = frozenset(["backward", "training_step"])
"""Calls that mean that the code around them trains: back-propagation, and `headrace.training_step`, which does it."""
INERT_METHODS = frozenset(
    """
    train eval test save summary print parameters named_parameters modules named_modules children state_dict buffers
    named_buffers zero_grad backward step cuda cpu to float double share_memory print_help format_help keys values items
    get copy index count forward format info debug warning error log write flush close add_scalar add_graph watch dump
    numel size dim item detach requires_grad_ share_memory_ send join split strip type_as
    """.split()  # noqa: SIM905
)
MUTATING_METHODS = re.compile(
    r"^(load|add_|set_|register|apply|fuse|switch|merge|remove|insert|append|extend|update|pop|init|reset|freeze|unfreeze|replace|build|"
    r"setup|prepare|resume|restore|convert|reparam|deploy|half|bfloat16|__setitem__|setdefault|quantize|tie)"
)
CHECKPOINT = re.compile(r"load|resume|restore|checkpoint|pretrained", re.I)
_NOT_CHECKPOINT = re.compile(r"yaml|json|dotenv|env|config|cfg|merge_from|data|image|label|class|arg|param_group", re.I)
_DATA = re.compile(r"data|loader|sampler", re.I)
"""Functions that make data sets may write into the configuration they get; running them without the data would only fail."""
_SEED = re.compile(r"(^|_)seed(_|$)|set_?seed|manual_seed|seed_?everything|fix_random|same_seeds", re.I)
_WATCHERS = (
    "wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "tensorboardX", "torch.utils.tensorboard", "visdom",
    "torchsummary", "torchsummaryX", "torchinfo", "thop", "ptflops", "fvcore", "torchstat", "tqdm", "logging", "pprint",
)  # fmt: skip
"""Libraries that note what they are given, and change nothing of it."""
_WATCHED = tuple(f"{name}." for name in _WATCHERS)


def makes_data(call: ast.Call) -> bool:
    """Whether a call, by its name, makes data sets or loaders."""
    return bool(_DATA.search(last_name(call.func)))


def is_seed(call: ast.Call) -> bool:
    """Whether a call seeds random numbers on which fresh weights depend."""
    name = last_name(call.func)
    return bool(_SEED.search(name)) and "cuda" not in (dotted(call.func) or "")


def is_checkpoint_call(call: ast.Call) -> bool:
    """Whether a call, already known to change a model, fills it with stored weights."""
    name = last_name(call.func)
    return bool(CHECKPOINT.search(name)) and not _NOT_CHECKPOINT.search(name)


class SideEffects:
    """Answers for one module; what other files' functions do is looked up through the repository."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._trains: dict[ast.AST, bool] = {}

    def changes(self, call: ast.Call, *, statement: bool) -> list[tuple[str, str | None]]:
        """The places that a call changes: ("model", None) for `model.load_state_dict(s)` or `load_weights(model)`.

        `statement` says that the call's result is thrown away, so that an unknown method is there for its effect.
        """
        places: list[tuple[str, str | None]] = []
        function = call.func
        if f"{self.module.expand(function) or ''}.".startswith(_WATCHED):
            return places
        if isinstance(function, ast.Attribute):
            receiver = use_of(function.value) or ((root, None) if (root := root_of(function.value)) else None)
            if receiver is not None and receiver[0] not in self.module.imports:
                method = function.attr
                if MUTATING_METHODS.search(method) or (statement and method not in INERT_METHODS):
                    places.append(receiver)
        name = last_name(function)
        if _DATA.search(name):
            return places + self._written(call)
        if name in ("setattr", "delattr") and call.args and (place := use_of(call.args[0])) is not None:
            return [place]
        is_function = isinstance(function, ast.Name) or root_of(function) in self.module.imports
        if is_function or isinstance(function, ast.Attribute):
            known = self.module.find_callee(function)
            for position, value in enumerate(arguments_of(call)):
                if isinstance(value, ast.Name | ast.Attribute | ast.Subscript) and (place := use_of(value)) is not None:
                    if place[0] in self.module.imports:
                        continue
                    if known is not None and isinstance(known[1], ast.FunctionDef):
                        keyword = None if position < len(call.args) else call.keywords[position - len(call.args)].arg
                        if _changes_parameter(known[0], known[1], position, keyword, 0):
                            places.append(place)
                    elif known is None and not name[:1].isupper():
                        words = MUTATING_CALL if is_function else _METHOD_ON_OTHERS
                        if words.search(name):
                            places.append(place)
        return places

    def _written(self, call: ast.Call) -> list[tuple[str, str | None]]:
        """The attributes that a function of the repository writes into its arguments, and no option of this file sets:
        ("args", "num_classes") for `get_dataset(args)`, which knows the data."""
        found = self.module.find_callee(call.func)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            return []
        given = dict(zip((argument.arg for argument in parameters(found[1])), call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        places: list[tuple[str, str | None]] = []
        for node in inside(found[1], ast.Attribute):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                value = given.get(node.value.id)
                if isinstance(value, ast.Name) and not self._is_option(node.attr):
                    places.append((value.id, node.attr))
        return places

    def _is_option(self, name: str) -> bool:
        """Whether a text of the file is the flag of an option."""
        flags = {f"--{name}", f"--{name.replace('_', '-')}"}
        return any(isinstance(node, ast.Constant) and node.value in flags for node in self.module.nodes)

    def trains(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether running a piece of code would train: it back-propagates, or calls a function that does."""
        if node in self._trains:
            return self._trains[node]
        self._trains[node] = False
        answer = False
        for inner in inside(node, ast.Call):
            if last_name(inner.func) in TRAINING_CALLS:
                answer = True
            elif depth < 4:
                found = self.module.find_callee(inner.func)
                if found is not None and isinstance(found[1], ast.FunctionDef) and found[1] is not node:
                    other = self if found[0] is self.module else SideEffects(found[0])
                    answer = other.trains(found[1], depth + 1)
            if answer:
                break
        self._trains[node] = answer
        return answer


def _changes_parameter(module: Module, function: Function, position: int, keyword: str | None, depth: int) -> bool:
    names = [argument.arg for argument in parameters(function)]
    if keyword is None and position >= len(names):
        return False
    name = keyword if keyword is not None else names[position]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for place in ast.walk(target):
                    stored = isinstance(place, ast.Attribute | ast.Subscript) and isinstance(place.ctx, ast.Store)
                    if stored and root_of(place) == name:
                        return True
        elif isinstance(node, ast.Call) and depth < 3:
            statement = isinstance(module.parents.get(node), ast.Expr)
            called = module.find_callee(node.func)
            if called is not None and called[1] is function:
                continue
            receiver = isinstance(node.func, ast.Attribute) and root_of(node.func.value) == name
            if receiver and isinstance(node.func, ast.Attribute):
                method = node.func.attr
                if MUTATING_METHODS.search(method) or (statement and method not in INERT_METHODS):
                    return True
                continue
            for index, value in enumerate(arguments_of(node)):
                if not (isinstance(value, ast.Name | ast.Attribute) and root_of(value) == name):
                    continue
                if called is not None and isinstance(called[1], ast.FunctionDef):
                    inner = None if index < len(node.args) else node.keywords[index - len(node.args)].arg
                    if _changes_parameter(called[0], called[1], index, inner, depth + 1):
                        return True
                elif called is None:
                    leaf = last_name(node.func)
                    if leaf in ("setattr", "delattr") or (MUTATING_CALL.search(leaf) and not leaf[:1].isupper()):
                        return True
    return False
