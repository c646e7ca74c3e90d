"""The load generator: one process, N persistent connections, latencies from the intended start.

    python -m penstock.serving.bench.loadgen REQUEST.json RESULT.json

It shares the machine with the server it measures, so what matters most is that a request costs it little, and the same
for every server: requests are rendered to bytes once, responses are parsed by httptools, answers are read after the
clock has stopped. REQUEST.json holds a `LoadRequest`; RESULT.json is what `LoadResult.to_json` writes.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args
from urllib.parse import urlsplit

import httptools

from ...errors import BenchError
from .messages import Encoding, message, top1

Kind = Literal["once", "closed", "poisson"]
HISTOGRAM_GROWTH = 1.05  # each histogram bucket ends 5 % above the one before it
RECONNECT_SECONDS = 0.25
RECONNECT_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """What to send where. `images` are files, one per request, taken in turn and sent as `encoding` says.

    `kind` "once" sends every image once and times nothing; "closed" keeps `connections` requests in flight for
    `seconds` after `warm_up_seconds`; "poisson" starts `rate` requests per second at random moments whatever the server does.
    """

    url: str
    images: tuple[str, ...]
    kind: Kind = "closed"
    connections: int = 1
    warm_up_seconds: float = 1.0
    seconds: float = 5.0
    timeout_seconds: float = 60.0
    rate: float | None = None
    seed: int = 0
    encoding: Encoding = "body"
    field: str = "image"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"url must be http://HOST:PORT/PATH, got {self.url!r}")
        if not self.images:
            raise ValueError("images must name at least one file")
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {self.kind!r}")
        if self.encoding not in get_args(Encoding):
            raise ValueError(f"encoding must be one of {get_args(Encoding)}, got {self.encoding!r}")
        if self.connections < 1:
            raise ValueError(f"connections must be at least 1, got {self.connections}")
        if self.seconds <= 0 or self.warm_up_seconds < 0 or self.timeout_seconds <= 0:
            raise ValueError("seconds and timeout_seconds must be positive, warm_up_seconds not negative")
        if self.kind == "poisson" and not (self.rate and self.rate > 0):
            raise ValueError(f"kind 'poisson' needs a positive rate in requests per second, got {self.rate!r}")

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
    `errors` counts everything else that happened to a request, warm-up included, by HTTP status or by
    "connection", "timeout", "malformed" (not HTTP) and "unreadable" (no label index in the answer).
    `answers` has the top-1 label index of each image, None where no answer came.
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
    answers: tuple[int | None, ...]
    client_cpu_us_per_request: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoadResult:
        return cls(**{**data, "answers": tuple(data["answers"])})


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
    """A request is due the moment the answer before it is complete, until the time is over."""

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
class _Tally:
    """What the connections share: the requests, the arrivals, and what has been counted so far."""

    messages: Sequence[bytes]
    arrivals: Arrivals
    begin: float
    end: float
    sent: int = 0
    completed: int = 0
    latencies: list[float] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def next_image(self) -> int:
        index = self.sent % len(self.messages)
        self.sent += 1
        return index

    def answered(self, image: int, due: float, now: float, body: bytes) -> None:
        if self.begin <= now <= self.end:
            self.completed += 1
        if self.begin <= due <= self.end:
            self.latencies.append(now - due)
        self.bodies[image] = body

    def failed(self, reason: str, example: str) -> None:
        self.errors[reason] += 1
        self.examples.setdefault(reason, example[:300])


class _Connection(asyncio.Protocol):
    """One persistent connection: sends, waits for the whole answer, asks for the next due time."""

    def __init__(self, tally: _Tally) -> None:
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # True: no more requests are due
        self.sent: float | None = None  # when the request in flight was sent, and
        self._due = 0.0  # when it should have been
        self._tally = tally
        self._image = 0
        self._body = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._advance(time.monotonic())

    def _advance(self, now: float) -> None:
        due = self._tally.arrivals.next_start(now)
        if due is None:
            self._finish(True)
        elif due <= now:
            self._send(due, now)
        else:
            self._timer = asyncio.get_running_loop().call_later(due - now, self._send, due, due)

    def _send(self, due: float, now: float) -> None:
        self._due, self.sent, self._body = due, now, b""
        self._image = self._tally.next_image()
        self._transport.write(self._tally.messages[self._image])

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abandon("malformed", str(error))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        now = time.monotonic()
        status = self._parser.get_status_code()
        sent, self.sent = self.sent, None
        if sent is None:
            self._tally.failed("malformed", "an answer that no request asked for")
            self._finish(False)
            return
        if status == 200:
            self._tally.answered(self._image, self._due, now, self._body)
        else:
            self._tally.failed(str(status), self._body.decode(errors="replace"))
        if self._parser.should_keep_alive():
            self._advance(now)
        else:
            self._finish(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.abandon("connection", str(exc or "the server closed the connection before answering"))

    def abandon(self, reason: str, example: str) -> None:
        """Give up the connection; a request in flight counts as failed for that reason."""
        if self.sent is not None:
            self.sent = None
            self._tally.failed(reason, example)
        self._finish(False)

    def _finish(self, exhausted: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done.done():
            self.done.set_result(exhausted)
        self._transport.close()


class _Slot:
    """One of the N connections, opened again when the server closes it."""

    def __init__(self, tally: _Tally, host: str, port: int) -> None:
        self._tally, self._host, self._port = tally, host, port
        self._connection: _Connection | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while failures < RECONNECT_ATTEMPTS:
            try:
                _, self._connection = await loop.create_connection(lambda: _Connection(self._tally), self._host, self._port)
            except OSError as error:
                failures += 1
                self._tally.failed("connection", str(error))
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            failures = 0
            if await self._connection.done:
                return

    def expire(self, before: float) -> None:
        """Abandon a request that was sent before that moment and has no answer yet."""
        if self._connection is not None and self._connection.sent is not None and self._connection.sent < before:
            self._connection.abandon("timeout", "no answer within the time limit")


async def drive(request: LoadRequest) -> LoadResult:
    """Send what `request` asks for and return what happened. Raises BenchError when an image cannot be read."""
    parts = urlsplit(request.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    messages = [message(request.url, Path(path), request.encoding, field=request.field) for path in request.images]
    start = time.monotonic()
    begin = start + (0 if request.kind == "once" else request.warm_up_seconds)
    end = math.inf if request.kind == "once" else begin + request.seconds
    arrivals: Arrivals
    if request.kind == "once":
        arrivals = EachOnce(len(messages))
    elif request.kind == "poisson":
        arrivals = Poisson(rate=request.rate or 0.0, begin=start, until=end, seed=request.seed)
    else:
        arrivals = ClosedLoop(end)
    tally = _Tally(messages=messages, arrivals=arrivals, begin=begin, end=end)
    slots = [_Slot(tally, host, port) for _ in range(request.connections)]
    busy = time.process_time()
    running = [asyncio.create_task(slot.run()) for slot in slots]
    while True:
        # Wakes once a second for the time limit, so that no request pays for a timer of its own.
        _, pending = await asyncio.wait(running, timeout=1.0)
        if not pending:
            break
        for slot in slots:
            slot.expire(time.monotonic() - request.timeout_seconds)
    for task in running:
        task.result()
    finished = time.monotonic()
    busy = time.process_time() - busy
    return _result(tally, seconds=(finished if request.kind == "once" else end) - begin, busy=busy)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value with at least that share of all values at or below it (nearest rank); NaN of nothing."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _result(tally: _Tally, *, seconds: float, busy: float) -> LoadResult:
    answers: list[int | None] = [None] * len(tally.messages)
    for image, body in tally.bodies.items():
        try:
            answers[image] = top1(body)
        except ValueError as error:
            tally.failed("unreadable", str(error))
    ordered = sorted(latency * 1e3 for latency in tally.latencies)
    buckets = Counter(math.ceil(math.log(max(latency, 1e-3) / 1e-3, HISTOGRAM_GROWTH)) for latency in ordered)
    latency_ms = {name: percentile(ordered, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))}
    return LoadResult(
        seconds=seconds,
        sent=tally.sent,
        completed=tally.completed,
        samples=len(ordered),
        requests_per_second=tally.completed / seconds,
        latency_ms={name: round(value, 4) for name, value in latency_ms.items() if ordered},
        histogram={
            "upper_ms": [round(1e-3 * HISTOGRAM_GROWTH**bucket, 5) for bucket in sorted(buckets)],
            "counts": [buckets[bucket] for bucket in sorted(buckets)],
        },
        errors=dict(tally.errors),
        error_examples=dict(tally.examples),
        answers=tuple(answers),
        client_cpu_us_per_request=round(1e6 * busy / max(1, tally.sent), 1),
    )


def run(request: LoadRequest) -> LoadResult:
    """`drive` on an event loop of its own: uvloop's where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:  # not on every platform
        return asyncio.run(drive(request))
    return uvloop.run(drive(request))


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m penstock.serving.bench.loadgen REQUEST.json RESULT.json", file=sys.stderr)  # noqa: T201
        return 2
    source, target = map(Path, arguments)
    try:
        result = run(LoadRequest.from_json(json.loads(source.read_text())))
    except (BenchError, OSError, ValueError, TypeError) as error:
        print(f"loadgen: {error}", file=sys.stderr)  # noqa: T201
        return 1
    aside = target.with_name(target.name + ".tmp")
    aside.write_text(json.dumps(result.to_json()))
    os.replace(aside, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
