"""What a benchmark found, as values: measurements, their medians with spread, ratios per round, agreement of answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..load.answers import Answer, same_answer
from ..load.loadgen import LoadResult

FORMAT = 1
WITHIN = "within the spread"


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of repeated measurements with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None of no values."""
        return cls(median=statistics.median(values), low=min(values), high=max(values)) if values else None

    def against(self, old: Spread) -> str:
        """ "higher" or "lower" than another where the two do not touch, else WITHIN."""
        if self.low > old.high:
            return "higher"
        return "lower" if self.high < old.low else WITHIN


def plain(spread: Spread | None) -> dict[str, float] | None:
    """A spread for JSON."""
    return None if spread is None else asdict(spread)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One service under load at one concurrency in one round.

    `server_cpu_ms` is processor time of the server's processes per answer, `memory_bytes` their resident memory after it, each
    process counting what it shares, `pss_bytes` the same with what is shared counted once (None where the system cannot tell),
    `other_cores` how many cores other programs kept busy meanwhile, or other machines on the same hardware; because of them it
    was `repeated`.
    """

    service: str
    concurrency: int
    round: int
    load: LoadResult
    server_cpu_ms: float
    other_cores: float
    memory_bytes: int
    pss_bytes: int | None = None
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        del content["load"]["answers"]  # they stand once per service in the result
        return {"contender": content.pop("service"), **content}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Answers of two services over the same images. `compared` counts the images that both answered."""

    images: int
    compared: int
    agreed: int
    distinct: int  # different ones among the reference's answers: one means that agreement proves nothing

    @property
    def share(self) -> float | None:
        return self.agreed / self.compared if self.compared else None

    @classmethod
    def of(cls, reference: Sequence[Answer | None], other: Sequence[Answer | None]) -> Agreement:
        pairs = [(one, two) for one, two in zip(reference, other, strict=True) if one is not None and two is not None]
        return cls(
            images=len(reference),
            compared=len(pairs),
            agreed=sum(same_answer(one, two) for one, two in pairs),
            distinct=len({one for one, _ in pairs}),
        )


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Everything a benchmark found. The first service is the reference of all ratios when there are several.

    `accuracy` is the share of right top-1 answers per service, where the image folders name classes; `answered` says in words
    what of the answers is compared.
    `warnings` says in sentences what a reader must know before trusting the figures; `left_out` why a service that was to be
    measured was not.
    """

    model: str
    services: tuple[str, ...]
    concurrency: tuple[int, ...]
    rounds: int
    measurements: tuple[Measurement, ...]
    answers: Mapping[str, tuple[Answer | None, ...]]
    images: Mapping[str, Any]
    accuracy: Mapping[str, float]
    answered: str
    errors: Mapping[str, Mapping[str, int]]
    plan: Mapping[str, Any]
    environment: Mapping[str, Any]
    servers: Mapping[str, Any]
    settings: Mapping[str, Any]
    warnings: tuple[str, ...] = field(default=())
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def repetition(self) -> str:
        """How often it was measured, for people."""
        anew = ", the services started anew for each" if self.settings.get("restart") and self.rounds > 1 else ""
        return f"{self.rounds} interleaved rounds{anew}"

    @property
    def ok(self) -> bool:
        """Every request of every service was answered."""
        return not any(counts for counts in self.errors.values())

    @property
    def agreement(self) -> Agreement | None:
        """Of the last service (Headrace) with the first (the baseline); None when only one was measured."""
        return None if len(self.services) < 2 else self.agreement_of(self.services[-1])

    def agreement_of(self, service: str) -> Agreement:
        """Of a service with the first."""
        return Agreement.of(self.answers[self.services[0]], self.answers[service])

    def of(self, service: str, concurrency: int) -> list[Measurement]:
        """The measurements of one service at one concurrency, by round."""
        found = [one for one in self.measurements if one.service == service and one.concurrency == concurrency]
        return sorted(found, key=lambda one: one.round)

    def requests_per_second(self, service: str, concurrency: int) -> Spread | None:
        return Spread.of([one.load.requests_per_second for one in self.of(service, concurrency)])

    def latency_ms(self, service: str, concurrency: int, name: str) -> Spread | None:
        """`name` is "p50", "p90", "p99" or "max". None where no round had an answer in time."""
        return Spread.of([one.load.latency_ms[name] for one in self.of(service, concurrency) if name in one.load.latency_ms])

    def ratio(self, concurrency: int, service: str | None = None, *, reference: str | None = None) -> Spread | None:
        """Requests per second of a service (by default the last) over the reference's (the first), taken round by round."""
        if len(self.services) < 2:
            return None
        pairs = zip(
            self.of(reference or self.services[0], concurrency), self.of(service or self.services[-1], concurrency), strict=True
        )
        rates = [(one.load.requests_per_second, other.load.requests_per_second) for one, other in pairs]
        return Spread.of([other / one for one, other in rates if one > 0])

    def to_json(self) -> dict[str, Any]:
        agreement = self.agreement
        summary = [
            {
                "concurrency": concurrency,
                "contenders": {
                    service: {
                        "requests_per_second": plain(self.requests_per_second(service, concurrency)),
                        "p50_ms": plain(self.latency_ms(service, concurrency, "p50")),
                        "p99_ms": plain(self.latency_ms(service, concurrency, "p99")),
                    }
                    for service in self.services
                },
                "ratio": plain(self.ratio(concurrency)),
                "to_first": {name: plain(self.ratio(concurrency, name)) for name in self.services[1:]},
                "ratios": {name: plain(self.ratio(concurrency, reference=name)) for name in self.services[:-1]},
            }
            for concurrency in self.concurrency
        ]
        return {
            "format": FORMAT,
            "model": self.model,
            "contenders": list(self.services),
            "summary": summary,
            "agreement": None if agreement is None else {**asdict(agreement), "share": agreement.share},
            "accuracy": dict(self.accuracy),
            "errors": {name: dict(counts) for name, counts in self.errors.items()},
            "warnings": list(self.warnings),
            "left_out": dict(self.left_out),
            "plan": dict(self.plan),
            "settings": dict(self.settings),
            "images": dict(self.images),
            "servers": dict(self.servers),
            "environment": dict(self.environment),
            "answers": {name: list(answers) for name, answers in self.answers.items()},
            "measurements": [one.to_json() for one in self.measurements],
        }
