"""What a model's outputs are, and the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import SandboxError
from ...proving.texts.written import as_lines
from ...proving.verify import Recorded
from ...resolving.resolved import Resolved
from ...resolving.task import MULTI_LABEL, SINGLE_LABEL, kind_of, may_have_labels, modules_near, stated_task, with_threshold
from ..migration import Migration
from ..scripts.originals import Originals
from ..worker_client import class_names
from .printed_labels import named_otherwise, numbered_otherwise, printed_otherwise
from .printed_scores import scored_otherwise


def task_of(migration: Migration, resolved: Resolved, name: str, classes: int | None) -> str:
    """What the outputs are: as the user says, as the run showed, or as the sources state; what is taken for granted is
    remarked."""
    if migration.options.task:
        return migration.options.task
    task = resolved.task
    if resolved.recipe.live is None and classes is not None and resolved.script is not None:
        near = modules_near(migration.surveyed, resolved.script)
        task = with_threshold(stated_task(near, classes), near)
    if any(kind_of(part) == MULTI_LABEL and ":" not in part for part in task.split(",")):
        message = f"labels of {name} hold above a probability of 0.5, since no one threshold was found (--task multi-label:0.3)"
        migration.remark("PS519", message, "note", resolved.place)
    return task


def remark_taken_for(migration: Migration, resolved: Resolved, name: str, classes: int | None) -> None:
    """Say as what the outputs are taken where nothing tells."""
    message = f"nothing tells what the one output of {name} is; it is given as a number (--task multi-label makes it a label)"
    if classes != 1:
        message = (
            f"nothing tells what the {classes} outputs of {name} are; they are taken for scores of classes, one of which holds "
            "(--task says otherwise)"
        )
    if classes is not None:
        migration.remark("PS519", message, "note", resolved.place)


def remark_printed(
    migration: Migration,
    resolved: Resolved,
    originals: Originals,
    recorded: Recorded,
    labels: Sequence[Sequence[str] | None],
    task: str,
) -> None:
    """Say where the model's script prints other names than those that its package gives for what was recorded of it."""
    path = resolved.script.path if resolved.script is not None else ""
    names, outputs = (labels[0] if len(labels) == 1 else None), recorded.outputs if recorded.own is None else recorded.own
    live = resolved.recipe.live
    recorded_it = live is None or live.output in (None, (0,))  # of an output of several parts the recorder has the first
    original = originals.of(path)
    if original is None or len(labels) > 1 or not recorded_it or outputs.ndim > 2:
        return
    one_of_many = kind_of(task) in ("", SINGLE_LABEL) and outputs.ndim == 2 and len(names or outputs[0]) == outputs.shape[1] > 1
    one_or_none = kind_of(task) == MULTI_LABEL and names is not None and len(names) == 1 and outputs.size == len(outputs)
    run = original.run
    answers = {"prints": run.done.stdout} | {f"writes into {at}": as_lines(at, text) for at, text in run.written.items()}
    for does, text in answers.items() if one_of_many or one_or_none else ():
        message = (
            _other_of_two(does, text, names or (), outputs, task) if one_or_none else _otherwise(does, text, names, outputs)
        )
        if message is not None:
            migration.remark("PS534", message, "warning", path)
            return


def _other_of_two(does: str, text: str, names: Sequence[str], outputs: np.ndarray, task: str) -> str | None:
    """What the script `does` otherwise than the package of one output, which names its label above a threshold alone."""
    least = float(task.partition(":")[2] or 0.5)
    numbers: np.ndarray = outputs.reshape(-1).astype(np.float64)
    shares = numbers if ((numbers >= 0) & (numbers <= 1)).all() else 1 / (1 + np.exp(-np.clip(numbers, -500, 500)))
    count = named_otherwise(text, names[0], shares > least)
    if count is None:
        return None
    return (
        f"for {count} of {len(numbers)} images the script {does} {names[0]!r} where the package does not, or something else "
        f"where it does: the package says that above a probability of {least:g}, as the second of two names, and the script "
        "has the names in another order or another threshold"
    )


def _otherwise(does: str, text: str, names: Sequence[str] | None, outputs: np.ndarray) -> str | None:
    """What the script `does` that the package does otherwise: its labels, or the numbers of classes without, or only scores."""
    if names is None:
        number = numbered_otherwise(text, outputs)
        if number is None:
            return None
        return (
            f"the script {does} {number.printed} where the package says {number.label}, for {number.count} of {number.rows} "
            "images: that is the place of the model's largest output, from 0, and the script numbers its classes otherwise"
        )
    label = printed_otherwise(text, names, outputs)
    if label is not None:
        least = "at least " if label.least else ""
        often = "" if label.count is None else f", for {least}{label.count} of {label.rows} images"
        return (
            f"the script {does} {label.printed!r} where the package says {label.label!r}{often}: that names the model's "
            "largest output as it stands, and the script has other names for it or chooses otherwise"
        )
    score = scored_otherwise(text, names, outputs)
    if score is None:
        return None
    return (
        f"the script {does} {score.printed:.3g} beside {score.label!r}, which has the score {score.score:.3g} in the package, "
        f"so for {score.count} of {score.rows} images: that is the share of the model's largest output, and the script makes "
        "another number of it"
    )


def labels_of(
    migration: Migration, resolved: Resolved, recorded: Recorded | None, classes: int | None, task: str
) -> tuple[tuple[str, ...] | None, ...]:
    """Class names where the repository states as many as an output has entries; nothing is invented."""
    if resolved.labels:
        for number, (part, names) in enumerate(zip(task.split(","), resolved.labels, strict=False)):
            if names is None and kind_of(part) in (SINGLE_LABEL, MULTI_LABEL):
                message = f"output {number} has no labels: no list of {resolved.widths[number]} names is its alone"
                migration.remark("PS505", message, "note")
        return resolved.labels
    if classes is None or not may_have_labels(task):
        return ()
    found: dict[str, Sequence[str]] = {}
    if recorded is not None and recorded.classes is not None:
        found["the dataset"] = recorded.classes
    if resolved.class_names is not None:
        found["the source"] = resolved.class_names
    elif resolved.class_names_recipe is not None:
        try:
            found["the source"] = class_names(resolved.class_names_recipe.in_copy(migration.tree), migration.sandbox)
        except SandboxError as error:
            migration.remark("PS505", str(error), "note", resolved.place)
    if classes == 1:  # the probability of the second of two
        found = {where: names[1:] if len(names) == 2 else names for where, names in found.items()}
    for named in found.values():
        if len(named) == classes and all(name and "\n" not in name and "\r" not in name for name in named):
            return (tuple(named),)
    counts = " and ".join(f"{len(names)} in {where}" for where, names in found.items()) or "none"
    migration.remark("PS505", f"no labels are known: the model has {classes} outputs; class names found: {counts}", "note")
    return ()
