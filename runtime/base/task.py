"""What the outputs of a model are: class scores, labels of which several may hold, embeddings, maps. Torch-free.

A task says for each output how it is judged, served, measured and shown. It is found when a model is captured, or told in
words: `KIND` for the output that a model is for, or `KIND,KIND` and `OUTPUT=KIND` for several; a multi-label output may state
the probabilities above which its labels hold, one for all or one per label: `multi-label:0.3` or `multi-label:0.3/0.5/0.2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...specs import Labels, Signature, TensorSpec

SINGLE_LABEL, MULTI_LABEL, EMBEDDING, DENSE, RAW = KINDS = ("single-label", "multi-label", "embedding", "dense", "raw")
"""Scores of classes of which one holds; of labels each of which may hold; a vector that others are compared with; a value for
each place of a map; anything else, which is given out as it is."""
CLASSIFYING = (SINGLE_LABEL, MULTI_LABEL)
GivenLabels = Mapping[str, Labels | Sequence[str]] | Labels | Sequence[str] | None
"""Those of the output that a model is for, or of several by their names."""
_THRESHOLD = 0.5
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_MEANING = {SINGLE_LABEL: "class", MULTI_LABEL: "multi-label", EMBEDDING: "embedding", DENSE: "dense map", RAW: ""}


@dataclass(frozen=True, kw_only=True)
class Head:
    """What one output is. `probabilities` says that it needs no softmax or sigmoid; `thresholds` are the probabilities above
    which labels hold, one for all or one per label; `labels` name its entries, or are empty."""

    output: str
    kind: str
    probabilities: bool = False
    thresholds: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"task: {self.kind!r} is no kind of output; there are {', '.join(KINDS)}")
        if self.kind == MULTI_LABEL:
            object.__setattr__(self, "thresholds", self.thresholds or (_THRESHOLD,))
        elif self.thresholds:
            raise ValueError(f"task: only {MULTI_LABEL} outputs have thresholds, and this one is {self.kind}")
        if not all(0 <= threshold <= 1 for threshold in self.thresholds):
            raise ValueError(f"task: thresholds are probabilities from 0 to 1, got {self.thresholds}")

    def __str__(self) -> str:
        if self.kind not in CLASSIFYING:
            return _MEANING[self.kind]
        text = f"{_MEANING[self.kind]} {'probabilities' if self.probabilities else 'scores'}"
        several = "their thresholds" if len(self.thresholds) > 1 else f"{self.thresholds[0]:g}" if self.thresholds else ""
        return text + (f", labels above {several}" if several else "")

    @property
    def described(self) -> str:
        """As its text, which is empty for what is given out as it is."""
        return str(self) or "raw numbers"

    @property
    def classifies(self) -> bool:
        """Whether its entries are scores of labels."""
        return self.kind in CLASSIFYING

    def check(self, spec: TensorSpec) -> None:
        """Raise ValueError unless an output like that can be of this kind."""
        shape = list(spec.row_shape)
        if self.kind != RAW and spec.dtype not in _FLOATS:
            raise ValueError(f"task: output {spec.name!r} holds {spec.dtype}; only floats can be {self.kind}")
        if self.kind in (*CLASSIFYING, EMBEDDING) and spec.classes is None:
            raise ValueError(f"task: output {spec.name!r} has rows of shape {shape}; {self.kind} needs one row of numbers")
        if self.kind == SINGLE_LABEL and spec.classes == 1:
            raise ValueError(f"task: output {spec.name!r} has one score; one of two classes is {MULTI_LABEL} with one label")
        if len(self.thresholds) > 1 and len(self.thresholds) != spec.classes:
            counts = f"{len(self.thresholds)} thresholds for {spec.classes} labels"
            raise ValueError(f"task: output {spec.name!r} has {counts}; give one, or one each")
        if self.labels and not (self.classifies and len(self.labels) == spec.classes):
            of = f"{spec.classes or 'no'} classes" if self.classifies else f"no classes ({self.kind})"
            raise ValueError(f"{len(self.labels)} labels for an output of {of}; give one per class")

    def to_json(self) -> dict[str, Any]:
        """Without the labels, which lie in files of their own."""
        stated = {"output": self.output, "kind": self.kind, "probabilities": self.probabilities}
        return stated | ({"thresholds": list(self.thresholds)} if self.thresholds else {})


@dataclass(frozen=True)
class Task:
    """The heads of a model: one for each output, in the signature's order."""

    heads: tuple[Head, ...]

    @classmethod
    def of(cls, signature: Signature, told: str = "", *, activated: Mapping[str, str] | None = None) -> Task:
        """What is told of a signature's outputs, else what their shapes say: then the one called logits, or the first, holds
        class scores where it can. `activated` has those that hold probabilities, with what made them, "softmax" or "sigmoid".
        Raises ValueError for what does not fit."""
        names = [spec.name for spec in signature.outputs]
        usual = names.index("logits") if "logits" in names else 0
        wanted: dict[int, Head] = {}
        items = read_task(told)
        for position, item in enumerate(items):
            place = usual if len(items) == 1 and not item.output else _place(item.output or str(position), names)
            if place in wanted:
                raise ValueError(f"task: output {names[place]!r} is told twice")
            wanted[place] = item
        heads = []
        for place, spec in enumerate(signature.outputs):
            made_by = (activated or {}).get(spec.name)
            head = wanted.get(place) or Head(output="", kind=_usual(spec, made_by) if place == usual else RAW)
            head = replace(head, output=spec.name, probabilities=made_by is not None and head.classifies)
            head.check(spec)
            heads.append(head)
        return cls(tuple(heads))

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]], signature: Signature) -> Task:
        """Read what `to_json` wrote of such a signature. Raises ValueError."""
        heads = tuple(Head(**{**item, "thresholds": tuple(item.get("thresholds", ()))}) for item in data)
        if [head.output for head in heads] != [spec.name for spec in signature.outputs]:
            raise ValueError(f"task: heads {[head.output for head in heads]} for other outputs")
        for head, spec in zip(heads, signature.outputs, strict=True):
            head.check(spec)
        return cls(heads)

    def to_json(self) -> list[dict[str, Any]]:
        return [head.to_json() for head in self.heads]

    @property
    def primary(self) -> int:
        """Which output the model is for: the first that classifies, else the first embedding, else the first."""
        kinds = [head.kind for head in self.heads]
        ranked = [index for wanted in (CLASSIFYING, (EMBEDDING,)) for index, kind in enumerate(kinds) if kind in wanted]
        return next(iter(ranked), 0)

    @property
    def judged(self) -> tuple[int, ...]:
        """Which outputs are judged on real images: those that answer something, else the first."""
        found = [index for index, head in enumerate(self.heads) if head.kind in (*CLASSIFYING, EMBEDDING)]
        return tuple(found) or (self.primary,)

    @property
    def classifying(self) -> tuple[Head, ...]:
        """The heads that give labels."""
        return tuple(head for head in self.heads if head.classifies)

    @property
    def one_choice(self) -> int | None:
        """The number of the only output that classifies, where it gives one class of several; None for other models."""
        found = [number for number, head in enumerate(self.heads) if head.classifies]
        return found[0] if len(found) == 1 and self.heads[found[0]].kind == SINGLE_LABEL else None

    @property
    def embedding(self) -> tuple[Head, ...]:
        """The heads that give vectors."""
        return tuple(head for head in self.heads if head.kind == EMBEDDING)

    @property
    def labels(self) -> Labels | None:
        """The labels of the output that the model is for."""
        names = self.heads[self.primary].labels
        return Labels(names) if names else None

    def activated(self, probabilities: bool | None) -> Task:
        """With what the user says of whether the output that the model is for holds probabilities; None: as it was found."""
        if probabilities is None or not self.heads[self.primary].classifies:
            return self
        changed = replace(self.heads[self.primary], probabilities=probabilities)
        return Task(tuple(changed if index == self.primary else head for index, head in enumerate(self.heads)))

    def labeled(self, labels: GivenLabels, signature: Signature) -> Task:
        """With these labels, by output or of the one that the model is for. Raises ValueError unless there is one per class."""
        if labels is None:
            return self
        given = labels if isinstance(labels, Mapping) else {self.heads[self.primary].output: labels}
        if unknown := given.keys() - {head.output for head in self.heads}:
            raise ValueError(f"labels for {sorted(unknown)[0]!r}, which is no output of the model")
        checked = {name: item if isinstance(item, Labels) else Labels.of(item) for name, item in given.items()}
        heads = tuple(replace(head, labels=checked.get(head.output, Labels(())).names) for head in self.heads)
        for head, spec in zip(heads, signature.outputs, strict=True):
            if head.output in checked and not head.labels:
                raise ValueError(f"no labels for an output of {spec.classes or 'no'} classes; give one per class")
            head.check(spec)
        return Task(heads)


def read_task(text: str) -> tuple[Head, ...]:
    """What a text tells of outputs, by name or position where it says one. Raises ValueError."""
    heads = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        output, _, kind = item.rpartition("=")
        kind, _, thresholds = kind.partition(":")
        try:
            values = tuple(float(value) for value in thresholds.split("/") if thresholds)
        except ValueError:
            raise ValueError(f"task: thresholds are numbers with slashes between them, got {thresholds!r}") from None
        heads.append(Head(output=output.strip(), kind=kind.strip(), thresholds=values))
    return tuple(heads)


def _place(output: str, names: Sequence[str]) -> int:
    if output in names:
        return names.index(output)
    if output.isdecimal() and int(output) < len(names):
        return int(output)
    raise ValueError(f"task: the model has no output {output!r}; it has {', '.join(names)}")


def _usual(spec: TensorSpec, made_by: str | None) -> str:
    if spec.dtype not in _FLOATS or not spec.row_shape:
        return RAW
    if spec.classes is None:
        return DENSE
    if made_by == "sigmoid":  # each for itself
        return MULTI_LABEL
    return SINGLE_LABEL if spec.classes > 1 else RAW  # one number may be anything
