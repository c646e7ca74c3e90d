"""What the migrator asks of the worker and what the worker answers: one union of messages, encoded and decoded only here.

A message is one JSON object: "kind", and the fields of the class of that name. Rows are (channels, height, width).
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ...errors import Obstacle
from ...specs import Preprocessing
from ..reading.recipe import LiveModel, Recipe

T = typing.TypeVar("T")
Row = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Build the model and say what it takes and gives. Without `input`, find the sizes that work."""

    recipe: Recipe
    input: Row | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate the recipe's expression, which gives an object that JSON can hold."""

    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class Rehearse:
    """Run the recipe's script as it stands, and say which models it calls with images; `read` builds the one it was read to.

    Its attempts may take `patience` times as long as where the machine does nothing else. `quick` is for a preview, which is
    not to have its numbers: fewer and smaller batches, and no more of the script than it takes to see its model evaluated."""

    recipe: Recipe
    read: Recipe | None = None
    patience: float = 1.0
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class ComputeOutputs:
    """Run the model on seeded noise and leave what it computed, and its weights, in the folder `out`."""

    recipe: Recipe
    input: Row
    out: str
    weights: str | None = None
    """A file of weights to compute with, those of another build; else the model's own."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """Capture, prove, measure and write the model as the folder `out`. `images` is an .npz file, see `packaging.Order`."""

    recipe: Recipe
    name: str
    out: str
    input: Row
    images: str | None = None
    made: bool = False
    """Whether these stood in for the user's."""
    labels: tuple[tuple[str, ...] | None, ...] = ()
    """For each output; a single entry is of the one that the model is for."""
    task: str = ""
    """What the outputs are, where somebody told or it was read, in the words of `runtime.base.task`."""
    preprocessing: Preprocessing | None = None
    precision: str = "auto"
    budget: float | None = None
    device: str = "auto"
    max_tuning_seconds: float | None = None
    randomize: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
    backend: str | None = None
    buckets: tuple[int, ...] | None = None
    threads: int | None = None
    image_folder: str | None = None
    """Real images, read with the preprocessing: they judge lossy precisions and set the ranges of int8."""
    planned: bool = True
    """Whether a plan is measured; else the portable graph alone is compared with eager and written, if there is one."""
    told_later: str | None = None
    """A file that comes while the graph is captured, with the preprocessing and notes: see `named.told_later`."""


@dataclass(frozen=True, kw_only=True)
class PackageOnnx:
    """Write the graph of the file `path` as the folder `out`, with what its metadata says of images and labels; `planned`,
    `precision` and what follows are those of `Package`. `input` is the size of its images, where the graph leaves it open."""

    recipe: Recipe
    path: str
    name: str
    out: str
    input: Row | None = None
    task: str = ""
    precision: str = "auto"
    budget: float | None = None
    device: str = "auto"
    max_tuning_seconds: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    image_folder: str | None = None
    planned: bool = True


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """`input` is None where several sizes work and the model does not say which is meant: `candidates` has them all."""

    class_name: str
    factory: str | None
    """ "path:line" of the class, where it stands in the repository."""
    parameters: int
    input: Row | None
    candidates: tuple[Row, ...]
    classes: int | None
    """None where it gives a map or the like, no row of numbers."""
    output: str
    notes: tuple[str, ...] = ()
    """What was missing and not needed, a sentence each."""
    weights_from: tuple[str, ...] = ()
    """Files of stored weights that were read."""


@dataclass(frozen=True, kw_only=True)
class SeenModel:
    """A module that a script called with images, by the first call while evaluating if there was one.

    `calls` counts those in that mode; `low` and `high` bound the images' values. `tasks`, `widths` and `labels` have an entry
    for each output that is taken.
    """

    live: LiveModel
    factory: str | None
    """ "path:line" of its class, where that stands in the repository."""
    parameters: int
    site: str
    """ "path:line" of the call."""
    calls: int
    dtype: str
    low: float
    high: float
    output: str
    tasks: tuple[str, ...]
    """By what reads them, in the words of `runtime.base.task`: "single-label", "multi-label:0.3"; empty where nothing tells."""
    widths: tuple[int | None, ...]
    """How many numbers an image has; None for what is not a row of numbers, such as a map."""
    as_read: bool | None
    """Whether reading the sources leads to a model of the same class, with weights of the same shapes; None: to none."""
    fits: bool | None
    """Whether the user's checkpoint has weights of its names and shapes; None: none was given, or it cannot be read."""
    trained: bool
    evaluates: bool
    """Whether nothing was learned from calls in that mode."""
    in_training: tuple[str, ...]
    """Kinds of its layers that ran in training mode, and compute something else in evaluation mode."""
    feeds: tuple[str, ...]
    """Classes of modules with weights of their own that take its outputs further."""
    labels: tuple[tuple[str, ...] | None, ...]
    dataset: str | None
    together: int = 1
    """Batches of images that it is called with at once: one that compares two classifies none."""
    otherwise: tuple[tuple[str, str], ...] = ()
    """Where ("path:line") its script says something else than the class with the largest number and its share, and how."""
    beside: tuple[str, ...] = ()
    """The numbers that it is called with beside its images, the only time that it is."""

    @property
    def classes(self) -> int | None:
        """The numbers of the first output that has any."""
        return next((width for width in self.widths if width is not None), None)


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What a script called. `why` it did not come to its end, and `where` in the user's code it stopped."""

    models: tuple[SeenModel, ...]
    why: str | None
    where: str | None
    weights_from: tuple[str, ...]
    """Files of weights that were there before, and were read."""
    standins: tuple[str, ...] = ()
    """What stood in for parts of the script's world, as "edge: what"."""
    edges: tuple[str, ...] = ()
    """The edges of its world at which something stood in."""
    saved_over: tuple[str, ...] = ()
    """Files of the repository in which it saved weights where there were others."""
    absent: tuple[str, ...] = ()
    """Libraries that it imports and that are not installed."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What the expression gave."""

    value: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class OutputsComputed:
    """The folder has outputs.npz and weights.pt."""


@dataclass(frozen=True, kw_only=True)
class ParityResult:
    """The artifact's parity record, as far as the report tells of it."""

    status: typing.Literal["passed", "failed", "not-run"]
    max_abs: float | None
    top1_agreement: float | None
    decision_agreement: float | None
    cosine: float | None
    batches: tuple[int, ...]
    why: str | None


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Seconds per call at one batch size of the model in eager float32 and of what its plan chose, in turns on the same inputs.

    `others` is the share of the machine that other programs took meanwhile.
    """

    batch: int
    chosen: str
    eager: tuple[float, ...]
    graph: tuple[float, ...]
    others: float


@dataclass(frozen=True, kw_only=True)
class ModelPackaged:
    """The model lies in the folder `artifact`."""

    artifact: str
    parity: ParityResult
    duels: tuple[Duel, ...] = ()
    outputs: tuple[str, ...] = ()
    """What each output is, for people: "logits: class scores"."""
    precision: str | None = None
    """Of the model's weights, where it was another than float32, which the package has."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """It could not be done: at which stage ("build", "inspect", "run", "capture", "parity", "package"), why, and where.

    `random_weights`: a live model has weights that no file sets, which was not allowed.
    """

    stage: str
    error: str
    where: str | None = None
    obstacles: tuple[Obstacle, ...] = ()
    random_weights: bool = False


@dataclass(frozen=True, kw_only=True)
class Forward:
    """To the server of many requests: the files of one, and what to say when it is answered. `apart` gives it a home and a
    folder for temporary files of its own, in that of the response."""

    request: str
    response: str
    token: str
    apart: bool = False


Request = Inspect | Evaluate | Rehearse | ComputeOutputs | Package | PackageOnnx
Response = Inspected | Evaluated | Rehearsed | OutputsComputed | ModelPackaged | Failed
Message = Request | Response | Forward
_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in typing.get_args(Message)}


def encode(message: Message) -> str:
    """The message as one line of JSON."""
    return json.dumps({"kind": type(message).__name__, **_plain(message)}, allow_nan=False)


def decode(text: str) -> Message:
    """The message in a text. Raises ValueError saying what is wrong with it."""
    data = _object(text)
    if not isinstance(data.get("kind"), str) or data["kind"] not in _KINDS:
        raise ValueError(f"no message of the worker: {text[:200]!r}")
    message: Message = _fill(_KINDS[data.pop("kind")], data)
    return message


def read_as(kind: type[T], text: str) -> T:
    """The object in a text as that dataclass, each field in the form that its annotation says. Raises ValueError."""
    return _fill(kind, _object(text))


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_constant=_rejected)
    except RecursionError:
        raise ValueError("no message of the worker: it is nested without end") from None
    if not isinstance(data, dict):
        raise ValueError(f"no message of the worker: {text[:200]!r}")
    return data


def _fill(kind: type[T], data: dict[str, Any]) -> T:
    try:
        made: T = _read(kind, data)
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"no complete message of the worker: {error}") from error
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, Recipe | Preprocessing):
        return value.to_json()
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _read(kind: Any, value: Any) -> Any:
    """The value in the form that a field's annotation says."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _read(inner[0], value)
    if origin is typing.Literal and value not in inner:
        raise TypeError(f"{value!r} is none of {inner}")
    if origin is Mapping and not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    if origin is tuple:
        if not isinstance(value, list) or (inner[-1] is not ... and len(value) != len(inner)):
            raise TypeError(f"{value!r} is no list that fits")
        return tuple(_read(inner[0], item) for item in value)
    if kind in (Recipe, Preprocessing, LiveModel):
        return kind.from_json(value)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if kind in (str, int, bool) and type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    if kind is float and type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return float(value) if kind is float else value


def _rejected(constant: str) -> Any:
    raise ValueError(f"no message of the worker: {constant} is no number")
