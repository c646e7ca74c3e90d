"""Models that a script passes to the trainer of a library, which has the loops: of Ignite, Catalyst, homura, Composer.

There is no loop to rewrite then, but the script says how the model is built, from which arguments, and with which data.
"""

import ast
import re
from collections.abc import Iterator

from ..reading.finding import Finding
from ..reading.nodes import inside
from ..reading.scopes import Module, dotted, last_name
from ..slicing.factories import ModelTable
from .loops import TrainerSite, trainer_loop

_TRAINER = re.compile(
    r"(trainer|learner|runner|evaluator|engine|estimator|experiment|(^|_)(fit|train|evaluate|validate|test))$", re.I
)
_EVALUATING = re.compile(r"(^|_)(e?val|valid|validation|test|evaluation)", re.I)
_DATA = re.compile(r"data|load|dl|set", re.I)


_OWNERS = {
    "fastai": (("vision_learner", "cnn_learner", "Learner", "load_learner", "create_cnn"), "learn.model"),
    "ultralytics": (("YOLO", "RTDETR"), "YOLO(...).model"),
    "transformers": (("pipeline", "Trainer"), "the model that it is given, or pipe.model"),
}
"""Libraries whose objects hold model and loops: what makes one, and where the model is."""


def find_owned_loops(module: Module) -> Iterator[Finding]:
    """A remark at each object that holds a model and its loops, so that there is no call of the model to rewrite."""
    stars = {star.partition(".")[0] for star in module.star_imports}
    for call in module.calls:
        name = last_name(call.func)
        root = (module.expand(call.func) or "").partition(".")[0]
        for library, (makers, model) in _OWNERS.items():
            if name in makers and (root == library or (library in stars and root == name)):
                message = (
                    f"{name}() of {library} holds the model and its loops, which are not migrated; call the model itself "
                    f"({model}) on images in a loop of your own, or package it with headrace compile"
                )
                yield Finding(module.path, *module.place(call), "PS016", message)


def find_library_trainers(module: Module, table: ModelTable) -> Iterator[TrainerSite]:
    """Every call of one file that passes a model of the repository to a trainer from outside of it."""
    bound = [node for node in module.nodes if isinstance(node, ast.Assign) and _makes_model(module, table, node.value)]
    made = {name for node in bound for target in node.targets if (name := dotted(target)) is not None}
    for call in module.calls:
        if not _TRAINER.search(last_name(call.func)) or module.find_callee(call.func) is not None:
            continue
        given = [(keyword.arg or "", keyword.value) for keyword in call.keywords]
        given += [("", value) for value in call.args if not isinstance(value, ast.Starred)]
        models = [value for _, value in given if dotted(value) in made or _makes_model(module, table, value)]
        if models:
            yield _site(module, call, models[0], [(name, value) for name, value in given if value is not models[0]])


def _makes_model(module: Module, table: ModelTable, value: ast.expr) -> bool:
    """Whether an expression calls what makes a model, as `A() if args.small else B(3).to(device)` does."""
    targets = (module.find_callee(call.func) for call in inside(value, ast.Call))
    return any(target is not None and table.makes_model(*target) for target in targets)


def _site(module: Module, call: ast.Call, model: ast.expr, others: list[tuple[str, ast.expr]]) -> TrainerSite:
    named = [(name or dotted(value) or "", value) for name, value in others]
    evaluating = [value for name, value in named if _EVALUATING.search(name)]
    data = [value for name, value in named if _DATA.search(name) and value not in evaluating]
    fact = trainer_loop(module, call, "train", ast.unparse(model))
    return TrainerSite(fact, module, call, module.function_of(call), None, True, loaders=(*evaluating, *data))
