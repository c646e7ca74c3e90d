"""What the load generator is asked and what it answers, as values that travel as JSON; and when its requests are due."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args
from urllib.parse import SplitResult, urlsplit

from ....errors import BenchError
from .answers import Answer, as_answer
from .histogram import Histogram
from .messages import Encoding

Kind = Literal["once", "closed", "poisson"]


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """What to send where. `images` are files, one per request, taken in turn; over HTTP they travel as `encoding` says.

    `url` is http://HOST:PORT/PATH, an address that takes an image by POST, or grpc://HOST:PORT/MODEL?k=5, a model with one
    input of encoded images, such as NAME_classify, asked by ModelInfer for its k best classes.

    `kind` "once" sends every image once and times nothing; "closed" keeps `connections` requests in flight for
    `seconds` after `warm_up_seconds`; "poisson" starts `rate` requests per second at random moments whatever the server does.
    Latencies count from the moment a request was due. With "poisson" that is its random moment, even when all connections were
    busy then, so a stall of the server is charged to every request that fell into it (no coordinated omission); with "closed"
    it is the moment it was sent.

    `processes` share the connections and the rate; with several, each has a core of its own if there are enough.
    """

    url: str
    images: tuple[str, ...]
    kind: Kind = "closed"
    connections: int = 1
    processes: int = 1
    warm_up_seconds: float = 1.0
    seconds: float = 5.0
    timeout_seconds: float = 60.0
    rate: float | None = None
    seed: int = 0
    encoding: Encoding = "body"
    field: str = "image"

    def __post_init__(self) -> None:
        parts = self.parts
        if parts.scheme not in ("http", "grpc") or not parts.hostname or (parts.scheme == "grpc" and len(parts.path) < 2):
            raise ValueError(f"url must be http://HOST:PORT/PATH or grpc://HOST:PORT/MODEL, got {self.url!r}")
        if not self.images:
            raise ValueError("images must name at least one file")
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {self.kind!r}")
        if self.encoding not in get_args(Encoding):
            raise ValueError(f"encoding must be one of {get_args(Encoding)}, got {self.encoding!r}")
        if self.connections < 1:
            raise ValueError(f"connections must be at least 1, got {self.connections}")
        if not 1 <= self.processes <= self.connections or (self.kind == "once" and self.processes > 1):
            raise ValueError(
                f"processes must be from 1 to the connections ({self.connections}), and 1 for kind 'once', got {self.processes}"
            )
        if self.seconds <= 0 or self.warm_up_seconds < 0 or self.timeout_seconds <= 0:
            raise ValueError("seconds and timeout_seconds must be positive, warm_up_seconds not negative")
        if self.kind == "poisson" and not (self.rate and 0 < self.rate < math.inf):
            raise ValueError(f"kind 'poisson' needs a positive rate in requests per second, got {self.rate!r}")

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    def shares(self) -> list[LoadRequest]:
        """The request of each process: connections and rate divided. Poisson traffic that is added up is Poisson traffic."""
        count = self.processes
        return [
            replace(
                self,
                processes=1,
                connections=self.connections // count + (number < self.connections % count),
                rate=None if self.rate is None else self.rate / count,
                seed=self.seed + 1_000_003 * number,
            )
            for number in range(count)
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoadRequest:
        return cls(**{**data, "images": tuple(data["images"])})


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """What happened. Latencies are of answers (status 200) whose request was due inside the measuring window.

    `sent` counts all requests, warm-up included; `completed` the answers that arrived inside the window, and
    `requests_per_second` is that over its length.
    `rejected` counts the requests that the service rejected for now, by HTTP status (429, 503) or gRPC code, in the window;
    `rejected_ms` is how long that took it.
    `errors` counts everything else that happened to a request, warm-up included, by HTTP status, gRPC code, or
    "connection", "timeout", "malformed" (not the protocol) and "unreadable" (no label index in the answer).
    `answers` has what was said of each image, None where no answer came.
    """

    seconds: float
    sent: int
    completed: int
    samples: int
    requests_per_second: float
    latency_ms: dict[str, float]
    histogram: dict[str, Any]
    errors: dict[str, int]
    error_examples: dict[str, str]
    answers: tuple[Answer | None, ...]
    client_cpu_us_per_request: float
    rejected: dict[str, int] = field(default_factory=dict)
    rejected_ms: dict[str, float] = field(default_factory=dict)
    rejected_histogram: dict[str, Any] = field(default_factory=lambda: Histogram().to_json())

    @property
    def rejected_per_second(self) -> float:
        return sum(self.rejected.values()) / self.seconds

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoadResult:
        return cls(**{**data, "answers": tuple(map(as_answer, data["answers"]))})

    @classmethod
    def merged(cls, results: Sequence[LoadResult]) -> LoadResult:
        """What several processes measured at the same time, as one; their answers must be of the same images."""
        latencies, rejections = Histogram(), Histogram()
        for result in results:
            latencies.merge(Histogram.from_json(result.histogram))
            rejections.merge(Histogram.from_json(result.rejected_histogram))
        return cls.of(
            latencies,
            rejections,
            seconds=max(result.seconds for result in results),
            busy=sum(result.client_cpu_us_per_request * result.sent for result in results) / 1e6,
            sent=sum(result.sent for result in results),
            completed=sum(result.completed for result in results),
            errors=dict(_total(result.errors for result in results)),
            error_examples={reason: text for result in reversed(results) for reason, text in result.error_examples.items()},
            answers=tuple(
                next((answer for answer in image if answer is not None), None)
                for image in zip(*(result.answers for result in results), strict=True)
            ),
            rejected=dict(_total(result.rejected for result in results)),
        )

    @classmethod
    def of(
        cls,
        latencies: Histogram,
        rejections: Histogram,
        *,
        seconds: float,
        busy: float,
        sent: int,
        completed: int,
        **counted: Any,
    ) -> LoadResult:
        """The result with what follows from these; `busy` are the load generator's seconds of processor time."""
        return cls(
            seconds=seconds,
            sent=sent,
            completed=completed,
            samples=len(latencies),
            requests_per_second=completed / seconds,
            latency_ms=latencies.summary_ms(),
            histogram=latencies.to_json(),
            client_cpu_us_per_request=round(1e6 * busy / max(1, sent), 1),
            rejected_ms=rejections.summary_ms(),
            rejected_histogram=rejections.to_json(),
            **counted,
        )


class Arrivals(Protocol):
    """When requests are due. Each connection asks when it becomes free, so this object is shared by all of them."""

    def next_start(self, now: float) -> float | None:
        """The moment (monotonic seconds) the next request is due, past or future; None when there are no more."""


class EachOnce:
    """As many requests as there are images, each due as soon as a connection is free."""

    def __init__(self, count: int) -> None:
        self._left = count

    def next_start(self, now: float) -> float | None:
        self._left -= 1
        return now if self._left >= 0 else None


class ClosedLoop:
    """A request is due the moment the answer before it is complete, until the time is over.

    So a service that stalls is asked less meanwhile, and the requests that would have come have no latencies: what a closed
    loop measures is throughput at a given number of users, and the latencies of those users only.
    """

    def __init__(self, until: float) -> None:
        self._until = until

    def next_start(self, now: float) -> float | None:
        return now if now < self._until else None


class Poisson:
    """Requests are due at random moments that do not depend on the server; a late one is still timed from its moment."""

    def __init__(self, *, rate: float, begin: float, until: float, seed: int) -> None:
        self._rate, self._next, self._until = rate, begin, until
        self._random = random.Random(seed)  # noqa: S311 - traffic, not a secret

    def next_start(self, now: float) -> float | None:
        self._next += self._random.expovariate(self._rate)
        return self._next if self._next < self._until else None


@dataclass(kw_only=True)
class Tally:
    """What the connections share: the requests, the arrivals, and what has been counted so far."""

    messages: Sequence[bytes]
    arrivals: Arrivals
    begin: float
    end: float
    sent: int = 0
    completed: int = 0
    latencies: Histogram = field(default_factory=Histogram)
    rejections: Histogram = field(default_factory=Histogram)
    rejected_reasons: Counter[str] = field(default_factory=Counter)
    bodies: dict[int, bytes] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def next_image(self) -> int:
        """The number of the next request's image; it counts as sent."""
        index = self.sent % len(self.messages)
        self.sent += 1
        return index

    def answered(self, image: int, due: float, now: float, body: bytes) -> None:
        """Count one answer."""
        if self.begin <= now <= self.end:
            self.completed += 1
        if self.begin <= due <= self.end:
            self.latencies.record(now - due)
        self.bodies[image] = body

    def rejected(self, reason: str, example: str, due: float, now: float) -> None:
        """Count one request that the service would not take now."""
        self.examples.setdefault(reason, example[:300])
        if self.begin <= due <= self.end:
            self.rejected_reasons[reason] += 1
            self.rejections.record(now - due)

    def failed(self, reason: str, example: str) -> None:
        """Count one request that failed."""
        self.errors[reason] += 1
        self.examples.setdefault(reason, example[:300])

    def result(self, *, seconds: float, busy: float, read: Callable[[bytes], Answer]) -> LoadResult:
        """What was counted in `seconds`; `read` reads an answer, `busy` is the processor time that was used."""
        answers: list[Answer | None] = [None] * len(self.messages)
        for image, body in self.bodies.items():
            try:
                answers[image] = read(body)
            except ValueError as error:
                self.failed("unreadable", str(error))
        return LoadResult.of(
            self.latencies,
            self.rejections,
            seconds=seconds,
            busy=busy,
            sent=self.sent,
            completed=self.completed,
            errors=dict(self.errors),
            error_examples=dict(self.examples),
            answers=tuple(answers),
            rejected=dict(self.rejected_reasons),
        )


def tally_for(request: LoadRequest, messages: Sequence[bytes], start: float) -> Tally:
    """An empty tally for load that begins at `start`, in monotonic seconds."""
    begin = start + (0 if request.kind == "once" else request.warm_up_seconds)
    end = math.inf if request.kind == "once" else begin + request.seconds
    arrivals: Arrivals
    if request.kind == "once":
        arrivals = EachOnce(len(messages))
    elif request.kind == "poisson":
        arrivals = Poisson(rate=request.rate or 0.0, begin=start, until=end, seed=request.seed)
    else:
        arrivals = ClosedLoop(end)
    return Tally(messages=messages, arrivals=arrivals, begin=begin, end=end)


def read_images(request: LoadRequest) -> list[bytes]:
    """The images' bytes. Raises BenchError naming one that cannot be read."""
    images = []
    for path in map(Path, request.images):
        try:
            images.append(path.read_bytes())
        except OSError as error:
            raise BenchError(f"cannot read the image {path}: {error.strerror}") from error
    return images


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total
