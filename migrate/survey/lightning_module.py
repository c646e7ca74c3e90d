"""Lightning: scripts hand a LightningModule to a Trainer, which holds the loops; the network is inside it, or is the module.

For serving, neither Trainer nor metrics are needed. So the LightningModule is reduced to the network that its steps call, and
becomes a plain `torch.nn.Module`; `self.save_hyperparameters()` becomes what it does, and `load_from_checkpoint` likewise.
"""

import ast
import copy
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..reading.facts import Loop, LoopKind
from ..reading.nodes import inside, is_docstring, keyword_of, text_of, values_of
from ..reading.scopes import Function, Module, Repository, dotted, last_name, parameters
from ..slicing.classes import ClassReduction
from ..slicing.factories import ModelTable
from ..slicing.liveness import Options
from ..slicing.model_class import ModelClass
from .loops import TrainerSite, call_site, trainer_loop

_CALLS: dict[str, LoopKind] = {"test": "evaluate", "validate": "evaluate", "predict": "predict", "fit": "train"}
_STEPS = ("test_step", "validation_step", "predict_step", "training_step", "forward")
_TRAINS = frozenset(["__init__", "training_step", "configure_model", "configure_optimizers", "on_fit_start"])
_LOADERS = ("dataloaders", "test_dataloaders", "val_dataloaders", "datamodule", "dm")
_SIDE = ("loss", "criterion", "metric", "acc", "precision", "recall", "f1", "log", "hparams", "print", "_step", "transform")
NOWHERE = 0
"""The line of what stands in no file."""
# What `save_hyperparameters` leaves in the object, and what `load_from_checkpoint` does, as far as the network is concerned.
_HPARAMS = "self.hparams = type('Hyperparameters', (dict,), {'__getattr__': dict.__getitem__})(%s)"
_LOAD = """
@classmethod
def load_from_checkpoint(cls, checkpoint_path, map_location=None, hparams_file=None, strict=True, **given):
    import inspect
    import torch
    stored = torch.load(checkpoint_path, map_location="cpu")
    given = {**stored.get("hyper_parameters", {}), **given}
    taken = inspect.signature(cls.__init__).parameters
    model = cls(**{name: value for name, value in given.items() if name in taken})
    own = model.state_dict()
    model.load_state_dict({name: value for name, value in stored["state_dict"].items() if name in own}, strict=strict)
    return model
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class LightningSite(TrainerSite):
    """A Trainer's `test(model, ...)`; `attribute` is the network inside the module, None where that is the module itself.

    Its loaders are loaders, a data module, and the model, which may have loaders of its own.
    """

    owner: ModelClass
    attribute: str | None


def find_trainer_calls(repository: Repository, table: ModelTable) -> list[LightningSite]:
    """Every Trainer call of the repository whose model's class and network can be told."""
    if not any(model.lightning for model in table.classes.values()):
        return []
    found, modules = [], _Modules(table, is_scripted(repository))
    for module in repository.modules.values():
        for call in module.calls:
            method = call.func
            known = isinstance(method, ast.Attribute) and method.attr in _CALLS and _is_trainer(module, method.value)
            if known and (site := _site(module, call, modules)) is not None:
                found.append(site)
    return found


class _Modules:
    """What is read of the LightningModules of a table, once for all the calls that may mean them."""

    def __init__(self, table: ModelTable, scripted: bool) -> None:
        self.table = table
        self.several = functools.cache(lambda: _several(table))
        self.steps = functools.cache(lambda owner: tuple(_steps_of(owner, table, scripted)))
        self.has_network = functools.cache(
            lambda owner: bool(network(owner)) or owner.methods("forward") is not None or bool(parts(owner, table))
        )


def _is_trainer(module: Module, receiver: ast.expr) -> bool:
    name = dotted(receiver)
    if isinstance(receiver, ast.Call):
        return "Trainer" in ast.unparse(receiver.func)
    if name is None or "trainer" in name.lower():
        return name is not None
    made = values_of(module.tree, name)
    return any(isinstance(value, ast.Call) and "Trainer" in ast.unparse(value.func) for value in made)


def _site(module: Module, call: ast.Call, modules: _Modules) -> LightningSite | None:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    model = call.args[0] if call.args else keywords.get("model")
    function = module.function_of(call)
    assert isinstance(call.func, ast.Attribute)
    owner = _class_of(module, function, model, modules.table) if model is not None else None
    owners = [owner] if owner is not None else []
    if model is not None and owner is None and _is_lightnings(module, function, call.func.value):
        owners = modules.several()  # by a name of a table, say; a run of the script finds the one that it is
    owners = [item for item in owners if modules.has_network(item)]
    if model is None or not owners:
        return None
    owner = owners[0]
    attribute = network(owner)
    text = ast.unparse(model) + (f".{attribute}" if attribute else "")
    fact = trainer_loop(module, call, _CALLS[call.func.attr], text)
    steps = [loop for item in owners for loop in modules.steps(item)]
    fact = replace(fact, through=tuple(sorted({item.module.path for item in owners})), steps=tuple(steps))
    loaders = [*(value for name, value in keywords.items() if name in _LOADERS), *call.args[1:], model]
    return LightningSite(fact, module, call, function, None, True, owner=owner, attribute=attribute, loaders=tuple(loaders))


def _steps_of(owner: ModelClass, table: ModelTable, scripted: bool) -> Iterator[Loop]:
    """Where evaluation calls the module's network, its parts, or the module itself where it is the network."""
    for called in networks(owner, table) or ["self", "self.forward"]:
        for call in evaluation_calls(owner.node, called, scripted=scripted):
            function = owner.module.function_of(call)
            yield call_site(owner.module, call, function, called, call.args[0]).fact


def is_scripted(repository: Repository) -> bool:
    """Whether a module of the repository becomes TorchScript from its source, in which nothing can be put."""
    return any(
        module.expand(call.func) == "torch.jit.script"
        or (last_name(call.func) == "to_torchscript" and "'trace'" not in ast.unparse(call))
        for module in repository.modules.values()
        for call in module.calls
    )


def evaluation_calls(owner: ast.ClassDef, called: str, *, scripted: bool) -> Iterator[ast.Call]:
    """The calls of a network on images alone in a module's methods, where more than training may reach them; none in a
    `forward` that may be `scripted`."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name not in _TRAINS and not (scripted and method.name == "forward"):
            for call in inside(method, ast.Call):
                if dotted(call.func) == called and len(call.args) == 1 and not call.keywords:
                    yield call


def _is_lightnings(module: Module, function: Function | None, receiver: ast.expr) -> bool:
    """Whether this is an object of Lightning's own Trainer, and no other library's."""
    values = [receiver]
    if isinstance(receiver, ast.Name):
        values = [*values_of(function, receiver.id), *values_of(module.tree, receiver.id)]
    made = [module.expand(value.func) or "" for value in values if isinstance(value, ast.Call)]
    return any(re.fullmatch(r"(pytorch_)?lightning(\.\w+)*\.Trainer(\.from_argparse_args)?", name) for name in made)


def _class_of(module: Module, function: Function | None, model: ast.expr, table: ModelTable) -> ModelClass | None:
    """The LightningModule class of what is handed to the Trainer: made in place, or bound to a name before."""
    values: list[ast.expr] = [model]
    if isinstance(model, ast.Name):
        values = [*values_of(function, model.id), *values_of(module.tree, model.id)]
        typed = inside(function, ast.AnnAssign)
        values += [node.value for node in typed if node.value is not None and dotted(node.target) == model.id]
    for value in values:
        if not isinstance(value, ast.Call):
            continue
        for callee in (value.func, getattr(value.func, "value", None)):  # Net(...), Net.load_from_checkpoint(...)
            found = module.find_callee(callee) if callee is not None else None
            if found is not None and found[1] in table.classes and table.classes[found[1]].lightning:
                return table.classes[found[1]]
        if (module.expand(value.func) or "").endswith("hydra.utils.instantiate"):
            return _one_of(table)
    return None


def _one_of(table: ModelTable) -> ModelClass | None:
    """The first LightningModule that no other one extends: Hydra makes one of them, and its configuration says which.

    A run of the script finds the one that it is.
    """
    return next(iter(_several(table)), None)


def _several(table: ModelTable) -> list[ModelClass]:
    """Every LightningModule that no other one extends."""
    every = [model for model in table.classes.values() if model.lightning]
    extended = [base for model in every for base in model.bases]
    return [model for model in every if model not in extended]


def network(owner: ModelClass) -> str | None:
    """The attribute that the steps call on images; None where the module's own `forward` is the network."""
    forward = owner.methods("forward")
    if forward is not None and _calls_itself(owner) and not _unpacks(forward):
        called = list(dict.fromkeys(_called_attributes(forward)))
        inner = len(called) == 1 and owner.methods(called[0]) is None and _only_returns(forward)
        return called[0] if inner else None
    for name in _STEPS:
        called = [item for method in _reached(owner, name) for item in _called_attributes(method)]
        called = [item for item in dict.fromkeys(called) if owner.methods(item) is None]
        if len(called) == 1:
            return called[0]
    return None


def parts(owner: ModelClass, table: ModelTable) -> tuple[str, ...]:
    """The networks that an evaluation calls one after another, such as a body and a head, where none is the whole and no
    `forward` does it: each is made in the constructor, as a class of the repository or a network of a library."""
    forward = owner.methods("forward")
    if network(owner) is not None or (forward is not None and _calls_itself(owner)):
        return ()
    made = {
        name.removeprefix("self.")
        for node in inside(owner.methods("__init__"), ast.Assign)
        if isinstance(node.value, ast.Call) and _is_network(owner.module, node.value.func, table)
        for target in node.targets
        if (name := dotted(target) or "").startswith("self.")
    }
    evaluating = [method for name in _STEPS if name != "training_step" for method in _reached(owner, name)]
    called = dict.fromkeys(item for method in evaluating for item in _called_attributes(method))
    return tuple(item for item in called if item in made and owner.methods(item) is None)


def networks(owner: ModelClass, table: ModelTable) -> list[str]:
    """What evaluation calls on images, as written: the network or its parts; nothing where it is the module itself."""
    attribute = network(owner)
    return [f"self.{name}" for name in ([attribute] if attribute is not None else parts(owner, table))]


def _is_network(module: Module, callee: ast.expr, table: ModelTable) -> bool:
    found = module.find_callee(callee)
    if found is not None:
        return found[1] in table.classes and not last_name(callee).endswith("Loss")
    return (module.expand(callee) or "").startswith(("torchvision.models.", "timm.create_model", "timm.models."))


def _reached(owner: ModelClass, name: str) -> list[Function]:
    """A step and the methods of the same object that it calls, such as one that all steps share."""
    waiting, found = [owner.methods(name)], list[Function]()
    while waiting:
        method = waiting.pop()
        if method is None or method in found:
            continue
        found.append(method)
        called = [call.func for call in inside(method, ast.Call) if isinstance(call.func, ast.Attribute)]
        names = dict.fromkeys(item.attr for item in called if dotted(item.value) == "self" and item.attr != "forward")
        waiting += [owner.methods(item) for item in names]
    return found


def _calls_itself(owner: ModelClass) -> bool:
    steps = [method for name in _STEPS[:-1] for method in _reached(owner, name)]
    return not steps or any(
        dotted(call.func) in ("self", "self.forward") for method in steps for call in inside(method, ast.Call)
    )


def _unpacks(forward: Function) -> bool:
    """Whether `forward` takes a batch apart: it then gets images and labels, and is no network."""
    names = [argument.arg for argument in parameters(forward)][1:2]
    made = inside(forward, ast.Assign)
    return any(isinstance(node.targets[0], ast.Tuple) and dotted(node.value) in names for node in made)


def _only_returns(method: Function | None) -> bool:
    body = [item for item in (method.body if method is not None else []) if not is_docstring(item)]
    return len(body) == 1 and isinstance(body[0], ast.Return) and isinstance(body[0].value, ast.Call)


def _called_attributes(method: Function | None) -> Iterator[str]:
    for node in inside(method, ast.Call):
        called = node.func
        if isinstance(called, ast.Call) and last_name(called.func) == "evaluation_step" and called.args:
            called = called.args[0]  # what PS204 made of the call
        if isinstance(called, ast.Attribute) and dotted(called.value) == "self":
            name = called.attr
            if node.args and name != "forward" and not any(word in name.lower() for word in _SIDE):
                yield name


def reduction(site: LightningSite, options: Options) -> ClassReduction | None:
    """The module's class with nothing but its network; None where a base class of the repository's own has a part in it, or its
    steps put the network together."""
    owner = site.owner
    if owner.bases or (site.attribute is None and owner.methods("forward") is None):
        return None
    node = _plain(owner.node)
    wanted = {site.attribute} if site.attribute is not None else set()
    kept = ClassReduction(owner.module, node, options, wanted)
    if site.attribute is None:
        waiting = ["forward"]
        done: set[str] = set()
        while waiting:
            name = waiting.pop()
            method = kept.originals.get(name)
            if method is None or name in done:
                continue
            done.add(name)
            kept.methods[name] = method
            kept.wanted |= kept.attributes_of(method)
            waiting += kept.called_in(method)
    if "load_from_checkpoint" in (site.module.file.text or ""):
        kept.extra = ast.parse(_LOAD).body
        for added in (part for item in kept.extra for part in ast.walk(item) if isinstance(part, ast.stmt)):
            added.lineno = NOWHERE
    return kept


def _plain(owner: ast.ClassDef) -> ast.ClassDef:
    made = copy.deepcopy(owner)
    made.bases = [ast.parse("__import__('torch').nn.Module", mode="eval").body]
    made.keywords, made.decorator_list = [], []
    init = next((item for item in made.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is not None:
        init.body = [_Saved(init).visit(item) for item in init.body]
    return ast.fix_missing_locations(made)


class _Saved(ast.NodeTransformer):
    """`self.save_hyperparameters(...)` written out."""

    def __init__(self, init: ast.FunctionDef) -> None:
        self.init = init

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not isinstance(node.value, ast.Call) or dotted(node.value.func) != "self.save_hyperparameters":
            return node
        given = node.value.args
        names = [argument.arg for argument in [*parameters(self.init)[1:], *self.init.args.kwonlyargs]]
        chosen = [text for item in given if (text := text_of(item)) is not None]
        ignored = ast.unparse(item.value) if (item := keyword_of(node.value, "ignore")) is not None else ""
        text = ", ".join(f"{name}={name}" for name in dict.fromkeys(chosen or names) if repr(name) not in ignored)
        if self.init.args.kwarg is not None and not chosen:
            text += f", **{self.init.args.kwarg.arg}"
        if given and not chosen:  # a namespace or a dict of them
            whole = ast.unparse(given[0])
            text = f"**({whole} if isinstance({whole}, dict) else vars({whole}))"
        made = ast.parse(_HPARAMS % text.lstrip(", ")).body[0]
        return ast.copy_location(made, node)


class WithoutCheckpoint(ast.NodeTransformer):
    """`Net.load_from_checkpoint(path, lr=0.1)` becomes `Net(lr=0.1)`, where no checkpoint is wanted."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "load_from_checkpoint"):
            return node
        own = ("checkpoint_path", "map_location", "hparams_file", "strict")
        keywords = [keyword for keyword in node.keywords if keyword.arg not in own]
        return ast.copy_location(ast.Call(node.func.value, [], keywords), node)
