"""What a model's outputs are, by what its script does with them: the losses and the functions that read them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from ....runtime.base.task import CLASSIFYING, DENSE, EMBEDDING, MULTI_LABEL, RAW, SINGLE_LABEL
from ...reading.recipe import Place
from ..inspection import scores
from .choices import in_words
from .flow import PAIRINGS
from .seen import Call, Limit, Seen

_ONE_OF_MANY = frozenset({"cross_entropy", "nll_loss", "softmax", "log_softmax", "multi_margin_loss", "argmax"})
_EACH = frozenset(
    {"binary_cross_entropy", "binary_cross_entropy_with_logits", "sigmoid", "logsigmoid"}
    | {"multilabel_margin_loss", "multilabel_soft_margin_loss"}
)
_RANKING = frozenset({"topk", "sort", "argsort"})
_DISTANCES = frozenset(
    {"normalize", "triplet_margin_loss", "triplet_margin_with_distance_loss", "cosine_embedding_loss", "hinge_embedding_loss"}
    | {"norm", "linalg_norm", "linalg_vector_norm", "dist"}
)
JUDGING = _ONE_OF_MANY | _EACH | _RANKING
"""Functions whose reading of an output says that its entries have labels."""
_BEST_ALONE = "the best label alone is held against a number, and the package names every label above its threshold"
_REGRESSION = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_SAMPLES = 1000


def told(seen: Seen, call: Call, place: Place, value: torch.Tensor) -> str:
    """What the value at that place is, in the words of `base.task`; empty where nothing tells."""
    while_evaluating = {name.strip("_") for name in seen.evaluated.get(place, ())}
    names = while_evaluating | {name.strip("_") for name in _reads(seen, place)}
    width = 1 if is_column(seen, call, place, value) else width_of(value, len(call.images))
    if width is None:
        return DENSE if value.dim() == 4 and len(value) == len(call.images) and names & (_ONE_OF_MANY | _EACH) else ""
    limits = {limit for limit in seen.limits.get(place, ()) if len(limit.values) in (1, width)}
    # A loss may be that of another module's scores, made of these; what evaluates them knows what they are for.
    kind = _kind(while_evaluating, limits) or _kind(names, limits)
    if kind == SINGLE_LABEL and width == 1:
        return ""
    return kind if kind != MULTI_LABEL else f"{kind}{_thresholds(names, limits, value)}"


def width_of(value: Any, rows: int) -> int | None:
    """How many numbers each image has there; None for anything but rows of numbers."""
    try:
        found = scores(value)
    except TypeError:
        return None
    return int(found.shape[1]) if len(found) == rows else None


def is_column(seen: Seen, call: Call, place: Place, value: torch.Tensor) -> bool:
    """Whether it is one number for each image, [rows], that the script reads as the score of a label: a distance or a loss of
    each image is such a number, too, and none."""
    plain = value.dim() == 1 and value.is_floating_point() and len(value) == len(call.images)
    return plain and bool(_EACH & {name.strip("_") for name in _reads(seen, place)})


def answers(task: str) -> bool:
    """Whether such an output is what a model is asked for."""
    return task.partition(":")[0] in (*CLASSIFYING, EMBEDDING)


def classifies(task: str) -> bool:
    """Whether its entries have labels."""
    return task.partition(":")[0] in CLASSIFYING


def _reads(seen: Seen, place: Place) -> Collection[str]:
    """The functions that read that place; of an output that is one tensor any, since more may be given while learning."""
    return seen.reads.get(place) or ({name for names in seen.reads.values() for name in names} if not place else ())


def _kind(names: Collection[str], limits: Collection[Limit]) -> str:
    """A decision by a threshold after a sigmoid is one for each label, whatever else is read; else the loss and the choice of
    one class tell, then the losses of each label for itself."""
    found = set(names)
    if any(limit.after_sigmoid for limit in limits):
        return MULTI_LABEL
    for telling, kind in (
        (_ONE_OF_MANY, SINGLE_LABEL), (_EACH, MULTI_LABEL), (_RANKING, SINGLE_LABEL), (PAIRINGS | _DISTANCES, EMBEDDING),
    ):  # fmt: skip
        if telling & found:
            return kind
    if limits:
        return MULTI_LABEL
    return RAW if _REGRESSION & found else ""


def _thresholds(names: Collection[str], limits: Collection[Limit], value: torch.Tensor) -> str:
    """The probabilities that labels are held against, where the script has one set of them alone."""
    after = [limit for limit in limits if limit.after_sigmoid]
    are_scores = bool({"sigmoid", "binary_cross_entropy_with_logits"} & set(names)) or not _are_shares(value)
    found = set()
    for limit in after or limits:
        values = limit.values if limit.after_sigmoid or not are_scores else tuple(map(_sigmoid, limit.values))
        if all(0 <= number <= 1 for number in values):
            found.add("/".join(f"{number:.6g}" for number in values))
    return f":{found.pop()}" if len(found) == 1 else ""


def _are_shares(value: torch.Tensor) -> bool:
    some = value.detach().flatten()[:_SAMPLES]
    return bool(((some >= 0) & (some <= 1)).all())


def _sigmoid(number: float) -> float:
    return 1 / (1 + math.exp(-number)) if number > -500 else 0.0


def said_otherwise(seen: Seen, tasks: Mapping[Place, str]) -> tuple[tuple[str, str], ...]:
    """By line, what the script does to say something else than the package: of outputs that tell one class of many, than the
    one with the largest number and its share; of several labels, than each above its threshold."""
    said: dict[str, str] = {}
    for place, task in tasks.items():
        if task in ("", SINGLE_LABEL):
            said |= in_words(seen.chosen.get(place, {}), seen.best_compared.get(place, ()))
        elif task.startswith(MULTI_LABEL):
            said |= dict.fromkeys(sorted(seen.best_compared.get(place, ())), _BEST_ALONE)
    return tuple(said.items())


def chosen_place(seen: Seen, call: Call, leaves: Mapping[Place, torch.Tensor]) -> Place | None:
    """Where that lies which a model is asked for, in an output of several parts; None for the output as it is, which is also
    taken where several parts are asked for."""
    if not leaves or list(leaves) == [()]:
        return None
    fitting = [place for place, value in leaves.items() if width_of(value, len(call.images)) is not None]
    maps = [place for place, value in leaves.items() if place in seen.reads and told(seen, call, place, value) == DENSE]
    read = [place for place in fitting if place in seen.reads and answers(told(seen, call, place, leaves[place]))]
    if len(read) > 1 and isinstance(call.output, tuple | list | dict):
        return None  # several heads, each judged
    named = [place for place in fitting if str(place[-1]).strip(".") == "logits"]
    return next(iter([*read, *named, *fitting, *maps]), None)
