"""What a model's outputs are, as its script's sources state it: by the losses and comparisons that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ..reading.facts import Script, Survey
from ..reading.scopes import Module, dotted
from ..survey.survey import project_index

SINGLE_LABEL, MULTI_LABEL, EMBEDDING, RAW = "single-label", "multi-label", "embedding", "raw"
"""As `runtime.base.task` has them."""
_ONE_OF_MANY = frozenset({"CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss", "softmax", "log_softmax", "argmax"})
_EACH = frozenset(
    {"BCEWithLogitsLoss", "BCELoss", "MultiLabelSoftMarginLoss", "MultiLabelMarginLoss", "binary_cross_entropy"}
    | {"binary_cross_entropy_with_logits", "multilabel_soft_margin_loss", "multilabel_margin_loss"}
)
_VECTORS = frozenset(
    {"cosine_similarity", "CosineSimilarity", "TripletMarginLoss", "triplet_margin_loss", "CosineEmbeddingLoss"}
)

_LAYER = re.compile(r"(Linear|Conv\d?d?|Dense|Net\w*|Model|Classifier|Head|ViT)$|resnet|vgg|create_model|build", re.I)
_OUTPUTS = re.compile(r"class|label|out", re.I)


def stated_task(modules: Iterable[Module], width: int) -> str:
    """The task that the functions named in these files tell of, for an output with so many numbers; empty where they tell of
    none, or of several, or of one class among one."""
    used = {name for module in modules for name in _called(module)}
    telling = [(_ONE_OF_MANY, SINGLE_LABEL), (_EACH, MULTI_LABEL), (_VECTORS, EMBEDDING)]
    found = [kind for names, kind in telling if names & used]
    return found[0] if len(found) == 1 and not (found[0] == SINGLE_LABEL and width == 1) else ""


def states_width(modules: Iterable[Module], width: int) -> bool:
    """Whether a file gives a layer or a network that number of outputs: `nn.Linear(512, 10)`, `build(num_classes=10)`."""
    for module in modules:
        for call in module.calls:
            given = [*(call.args if _LAYER.search(dotted(call.func) or "") else ())]
            given += [item.value for item in call.keywords if item.arg is not None and _OUTPUTS.search(item.arg)]
            if any(isinstance(value, ast.Constant) and type(value.value) is int and value.value == width for value in given):
                return True
    return False


def stated_threshold(modules: Iterable[Module]) -> float | None:
    """The only number between 0 and 1 that what a sigmoid gave is compared with; None where there is none, or several."""
    found = {number for module in modules for number in _compared(module)}
    return found.pop() if len(found) == 1 else None


def with_threshold(task: str, modules: Iterable[Module]) -> str:
    """The task with the threshold that these files state, where it has none."""
    threshold = stated_threshold(modules) if task == MULTI_LABEL else None
    return task if threshold is None else f"{task}:{threshold:g}"


def modules_near(surveyed: Survey, script: Script) -> list[Module]:
    """A script's file, and those of the loops that it calls."""
    modules = project_index(surveyed).repository.modules
    paths = dict.fromkeys((script.path, *(loop.path for loop in script.loops)))
    return [modules[path] for path in paths if path in modules]


def kind_of(word: str) -> str:
    """What a task's word says that an output is, without its thresholds."""
    return word.partition(":")[0]


def may_have_labels(task: str) -> bool:
    """Whether entries of the output that a model is for may have labels, as far as a task tells."""
    kinds = [kind_of(part.rpartition("=")[2]).strip() for part in task.split(",")]
    return any(kind in ("", SINGLE_LABEL, MULTI_LABEL) for kind in kinds)


def _called(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Call):
            name = dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            yield name.rpartition(".")[2]


def _compared(module: Module) -> Iterator[float]:
    made = {
        target.id
        for node in module.nodes
        if isinstance(node, ast.Assign) and _has_sigmoid(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in module.nodes:
        if not isinstance(node, ast.Compare) or len(node.comparators) != 1:
            continue
        sides = (node.left, node.comparators[0])
        numbers = [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, float)]
        if any(_has_sigmoid(side, made) for side in sides):
            yield from (number for number in numbers if 0 < number < 1)


def _has_sigmoid(node: ast.AST, made: Iterable[str]) -> bool:
    """Whether an expression applies a sigmoid, or reads a name that one was assigned to."""
    for item in ast.walk(node):
        if isinstance(item, ast.Attribute | ast.Name):
            name = item.attr if isinstance(item, ast.Attribute) else item.id
            if name.lower() == "sigmoid" or (isinstance(item, ast.Name) and name in made):
                return True
    return False
