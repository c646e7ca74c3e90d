"""Every message between the processes of a server, as one union of types; wire.py writes and reads their bytes.

Tensors are not in here: they lie in the memory that a front end and the engine share. Times are on the machine's monotonic
clock, which all processes read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainSerializer, PlainValidator

from ...runtime.artifact.model_config import ModelConfig
from ...runtime.base.task import Task
from ...specs import Preprocessing, Signature
from ..config import ServeConfig

# From a front end to the engine and back, for every request: records of fixed size.


class Admit(NamedTuple):
    """A front end asks for a place; the request's block of shared memory begins at `offset`. With `best` not the outputs are to
    lie there, but so many best classes and their probabilities. Times in seconds; `wait` is that in the queue, if not 0."""

    ticket: int
    model: int
    rows: int
    priority: int
    best: int
    offset: int
    arrived: float
    timeout: float
    wait: float = 0.0


class Submit(NamedTuple):
    """The inputs of an admitted request lie in its block."""

    ticket: int


class Cancel(NamedTuple):
    """Nobody waits for the answer any more."""

    ticket: int


class Expire(NamedTuple):
    """The request's deadline has passed."""

    ticket: int


class Rejected(NamedTuple):
    """The front end has rejected the request itself, as one whose image cannot be decoded."""

    ticket: int


class Count(NamedTuple):
    """Something to count in a model's statistics; `what` is one of `Counted`. `rows` of a failure is its index in FAILURES."""

    model: int
    what: int
    rows: int
    ns: int


class AskStatistics(NamedTuple):
    """Asks for `Statistics` with the same number."""

    question: int


class AskHistory(NamedTuple):
    """Asks for `History` with the same number."""

    question: int


class Done(NamedTuple):
    """The outputs lie in the request's block, which the engine does not touch again. They were computed from `began` to
    `ended`, in seconds, in a batch of so many rows."""

    ticket: int
    began: float
    ended: float
    batch: int


class Failed(NamedTuple):
    """The request ended without outputs: an HTTP status and a text for the client. Its block is not touched again."""

    ticket: int
    status: int
    retry_after: int
    text: str


class Seen(NamedTuple):
    """From here on the front end begins no request to a model that is not in this catalog."""

    serial: int


class Released(NamedTuple):
    """The front end has no request to this model any more, and begins none."""

    model: int


class Settled(NamedTuple):
    """The answer to `LoadModel` or `UnloadModel`: done (status 0), as every front end has seen, or failed, with an HTTP status
    and a text for the client."""

    question: int
    status: int
    retry_after: int
    text: str


class Counted:
    """What `Count.what` stands for."""

    FAILED = 0
    COMPOSED = 1
    CACHED = 2
    MISSED = 3
    DECODED = 4


# Rare ones between them.


@dataclass(frozen=True, kw_only=True)
class _Description:
    number: int
    name: str
    version: str
    config: ModelConfig


@dataclass(frozen=True, kw_only=True)
class TensorDescription(_Description):
    """A tensor model under the number by which front ends call it. `seconds` per bucket are those of its profile."""

    kind: Literal["tensor"] = "tensor"
    signature: Annotated[
        Signature, PlainSerializer(Signature.to_json, return_type=dict[str, Any]), PlainValidator(Signature.from_json)
    ]
    preprocessing: (
        Annotated[
            Preprocessing,
            PlainSerializer(Preprocessing.to_json, return_type=dict[str, Any]),
            PlainValidator(Preprocessing.from_json),
        ]
        | None
    )
    task: Task
    instances: int
    cached: bool
    account: dict[str, Any]
    seconds: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class DecodeDescription(_Description):
    """What decodes images for the tensor model of the number `target`."""

    kind: Literal["decode"] = "decode"
    target: int


@dataclass(frozen=True, kw_only=True)
class ClassifyDescription(_Description):
    """What classifies images with the tensor model of the number `target`."""

    kind: Literal["classify"] = "classify"
    target: int
    outputs: Mapping[str, str]


Description = Annotated[TensorDescription | DecodeDescription | ClassifyDescription, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Which models there are, by their `numbers`; to be answered with `Seen`, and with `Released` for each that is not in it
    any more. `models` describes those that were not in the one before. `index` is the list of the repository extension.
    `loaded` says that every model of the start has been tried."""

    serial: int
    loaded: bool
    ready: bool
    index: tuple[dict[str, str], ...]
    numbers: tuple[int, ...]
    models: tuple[Description, ...]


@dataclass(frozen=True)
class ModelCounts:
    """What one model has counted, and what it does right now, as the data plane answers them."""

    statistics: dict[str, Any]
    live_stats: dict[str, Any]


@dataclass(frozen=True)
class Statistics:
    """Every model's, by its number."""

    question: int
    counts: Mapping[int, ModelCounts]


@dataclass(frozen=True)
class History:
    """What every model did over the last hour and day."""

    question: int
    history: dict[str, Any]


@dataclass(frozen=True)
class LoadModel:
    """A client asks to load a model, with `config` in place of its own file; to be answered with `Settled`."""

    question: int
    name: str
    config: str | None


@dataclass(frozen=True)
class UnloadModel:
    """A client asks to unload a model; to be answered with `Settled`."""

    question: int
    name: str
    dependents: bool


# From the supervisor to a process that it has started.


@dataclass(frozen=True)
class StartEngine:
    """The engine's first message. With it comes the listening socket of the metrics, if there is one, and after it, for one
    that `follows` another under explicit control, the file of that one's last `Controlled`."""

    config: ServeConfig
    follows: bool = False


@dataclass(frozen=True)
class StartFrontEnd:
    """A front end's first message. One that `joins` others takes no connection before it has heard of the engine's models.
    With it comes the file of the routes that are kept, if there are any."""

    config: ServeConfig
    ports: Mapping[str, int]
    joins: bool


@dataclass(frozen=True)
class Connect:
    """A front end and the engine have a socket and a memory in common from now on: the two descriptors that come with it."""


class Alive(NamedTuple):
    """From a process whose event loop runs, once a second to the supervisor, and from the engine to its front ends."""


@dataclass(frozen=True)
class Stop:
    """Answer what was accepted, and end."""


# From a process to the supervisor.


@dataclass(frozen=True)
class Loaded:
    """The engine has tried every model: the names of those that serve, and why none does."""

    models: tuple[str, ...]
    failure: str


@dataclass(frozen=True)
class Controlled:
    """What serves at the engine has changed by a client's call. With it comes a file of what is to serve from now on, for the
    engine after this one."""


@dataclass(frozen=True)
class Serving:
    """A front end answers for what the engine has loaded."""


Message = (
    Alive | Admit | Submit | Cancel | Expire | Rejected | Count | Done | Failed | Seen | Released | Settled | AskStatistics
    | AskHistory | Statistics | History | Catalog | LoadModel | UnloadModel | StartEngine | StartFrontEnd | Connect | Stop
    | Loaded | Serving | Controlled
)  # fmt: skip
