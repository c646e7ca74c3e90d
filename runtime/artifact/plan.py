"""Which backend and precision runs which batch size on which machine, and the measurements that say so. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...specs import Precision
from ..base.session import Target
from .parity import ParityRecord

# Times quicker than a choice that was not measured beside it a bucket's own is taken to be.
_UNMEASURED = 1.25
_STATUSES = ("won", "lost", "refused", "failed", "skipped")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to run the model: a backend, a precision, and the files (names in the version's directory) it opens.

    `batch` is the one batch size that the session is compiled for; None for any. `streams` compute equal parts of it side by
    side.
    """

    backend: str
    precision: Precision
    files: tuple[str, ...] = ()
    batch: int | None = None
    streams: int = 1

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in (self.backend, *self.files)):
            raise ValueError(f"choice: a backend and its files are names, got {self.backend!r} and {list(self.files)}")

    def __str__(self) -> str:
        return ", ".join(filter(None, [f"{self.backend} {self.precision.name}", self.variant]))

    @property
    def variant(self) -> str:
        """What follows the backend and the precision in its name."""
        streams = f"{self.streams} streams" if self.streams > 1 else ""
        return ", ".join(filter(None, [self.precision.variant, "fixed batch" if self.batch else "", streams]))

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "precision": self.precision.name,
            "files": list(self.files),
            "batch": self.batch,
            "streams": self.streams,
            "variant": self.precision.variant,
        }

    def target(self, device: str, threads: int | None, ordinal: int | None = None) -> Target:
        """What to open it with; `ordinal` is which GPU, of which a plan knows nothing."""
        precision, batch, streams = self.precision, self.batch, self.streams
        return Target(device=device, precision=precision, threads=threads, batch=batch, streams=streams, ordinal=ordinal)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Choice:
        return cls(
            backend=data["backend"],
            precision=Precision.read(data["precision"], data.get("variant", "")),
            files=tuple(data["files"]),
            batch=data.get("batch"),
            streams=data.get("streams", 1),
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One candidate at one batch size. Times are milliseconds per call: the median, and the interquartile range as spread.

    `choice` has no files.
    `memory_mb` is what its session added to the process's resident memory, in megabytes (2^20 bytes), when it was opened and
    first run. `status` is "won", "lost" (to the winner), "refused" (parity), "failed" (an error) or "skipped" (not measured);
    `why` says it in words for all but the winner. Times are None when nothing was measured.
    """

    choice: Choice
    bucket: int
    status: str
    median_ms: float | None = None
    spread_ms: float | None = None
    repetitions: int = 0
    memory_mb: float | None = None
    parity: ParityRecord | None = None
    why: str = ""

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"measurement: status must be one of {', '.join(_STATUSES)}; got {self.status!r}")

    @property
    def candidate(self) -> str:
        """The candidate's name."""
        return str(self.choice)

    def to_json(self) -> dict[str, Any]:
        parity = None if self.parity is None else self.parity.to_json()
        choice = {"backend": self.choice.backend, "precision": self.choice.precision.name, "variant": self.choice.variant}
        rest = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "choice"}
        return {**choice, **rest, "parity": parity}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        rest = {key: value for key, value in data.items() if key not in ("backend", "precision", "variant")}
        parts = data.get("variant", "").split(", ")
        choice = Choice(
            backend=data["backend"],
            precision=Precision.read(data["precision"], data.get("variant", "")),
            batch=data["bucket"] if "fixed batch" in parts else None,
            streams=next((int(part.removesuffix(" streams")) for part in parts if part.endswith(" streams")), 1),
        )
        parity = data.get("parity")
        return cls(**{**rest, "choice": choice, "parity": None if parity is None else ParityRecord.from_json(parity)})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The winner per batch bucket on the machine that `fingerprint` describes.

    `portable` marks a plan that nobody measured on this machine; `reason` then says why it was taken. `cut` says in one line
    what the time did not allow and how much would have been enough; empty where nothing was left out that might have won.
    """

    fingerprint: Mapping[str, Any]
    choices: Mapping[int, Choice]
    device: str = "cpu"
    threads: int | None = None
    measurements: tuple[Measurement, ...] = field(default=(), repr=False)
    portable: bool = False
    reason: str = ""
    cut: str = ""

    def __post_init__(self) -> None:
        if not self.choices:
            raise ValueError("a plan needs a choice for at least one batch bucket")
        if any(not isinstance(bucket, int) or isinstance(bucket, bool) or bucket < 1 for bucket in self.choices):
            raise ValueError(f"plan: buckets must be positive integers, got {list(self.choices)}")
        for bucket, choice in self.choices.items():
            if choice.batch not in (None, bucket):
                raise ValueError(f"plan: batch {bucket} cannot be run by a session for a batch of {choice.batch!r} alone")
            choice.target(self.device, self.threads)  # raises where there is none
        object.__setattr__(self, "choices", dict(sorted(self.choices.items())))

    @property
    def buckets(self) -> tuple[int, ...]:
        """The batch sizes planned for, ascending."""
        return tuple(self.choices)

    def bucket(self, batch: int) -> int:
        """The smallest bucket that holds the batch, or the largest bucket when none does."""
        if batch < 1:
            raise ValueError(f"a batch has at least one row, got {batch}")
        return next((bucket for bucket in self.choices if bucket >= batch), max(self.choices))

    @property
    def files(self) -> tuple[str, ...]:
        """What its choices open, sorted."""
        return tuple(sorted({name for choice in self.choices.values() for name in choice.files}))

    def choice(self, batch: int) -> Choice:
        """How to run a batch of that many rows."""
        return self.choices[self.bucket(batch)]

    def first(self) -> Choice:
        """The choice to serve every batch size with, until there are sessions for some alone: of those that take any batch and
        were right wherever they were looked at, the quickest on the whole; where there is none, that of the smallest bucket,
        which runs larger batches in parts."""
        able = [choice for choice in self.choices.values() if choice.batch is None and not self._wrong_somewhere(choice)]

        def lost(choice: Choice) -> float:
            gains = (1.0 if own == choice else self.gain(bucket, choice) for bucket, own in self.choices.items())
            return math.prod(_UNMEASURED if gain is None else gain for gain in gains)

        return min(able, key=lost, default=self.choices[min(self.choices)])

    def first_rows(self) -> int | None:
        """In parts of how many rows that choice must be run, which was not right with more; None where it takes any."""
        first = self.first()
        return min(self.choices) if first.batch is None and self._wrong_somewhere(first) else None

    def _wrong_somewhere(self, choice: Choice) -> bool:
        found = (item.status for item in self.measurements if item.choice == replace(choice, files=()))
        return any(status in ("refused", "failed") for status in found)

    def gain(self, bucket: int, over: Choice) -> float | None:
        """How many times quicker a bucket's choice was than another choice; None where that was not measured."""
        times = {item.choice: item.median_ms for item in self.measurements if item.bucket == bucket and item.median_ms}
        own, other = (times.get(replace(choice, files=())) for choice in (self.choices[bucket], over))
        return None if own is None or other is None else other / own

    def memory_mb(self, choice: Choice) -> float | None:
        """The most that a session of a choice was seen to take, in megabytes (2^20 bytes); None where nobody looked."""
        sizes = [item.memory_mb for item in self.measurements if item.choice == replace(choice, files=()) and item.memory_mb]
        return max(sizes, default=None)

    def target(self, batch: int, *, threads: int | None = None, ordinal: int | None = None) -> Target:
        """The target to open `choice(batch)` with; `threads` overrides the plan's own."""
        return self.choice(batch).target(self.device, threads or self.threads, ordinal)

    def worst_parity(self) -> ParityRecord:
        """One record for all choices: that of the first winner that did not pass, else of the one that differs most.

        `max_abs` is the fp32 graph's largest difference; where a lossy precision won, its own stands in `why`.
        """
        won = [(item, item.parity) for item in self.measurements if item.status == "won" and item.parity is not None]
        failed = next((record for _, record in won if not record.passed), None)
        if failed is not None or not won:
            return failed or ParityRecord(status="not-run", why="no winner was compared")
        agreements = [record.top1_agreement for _, record in won if record.top1_agreement is not None]
        item, worst = max(won, key=lambda pair: pair[1].max_abs or 0.0)
        worst = replace(worst, top1_agreement=min(agreements, default=None))
        exact = [
            other.parity.max_abs
            for other in self.measurements
            if not other.choice.precision.lossy
            and other.parity is not None
            and other.parity.passed
            and other.parity.max_abs is not None
        ]
        if not item.choice.precision.lossy or not exact:
            return worst
        differing = f"outputs differ by up to {worst.max_abs:.1e}, in fp32 by {max(exact):.1e}"
        why = f"{item.choice.precision.name}: {worst.why}; {differing}"
        return replace(worst, max_abs=max(exact), why=why)

    def to_json(self) -> dict[str, Any]:
        choices = {str(bucket): choice.to_json() for bucket, choice in self.choices.items()}
        measurements = [measurement.to_json() for measurement in self.measurements]
        return {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "choices": choices,
            "measurements": measurements,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Read what `to_json` wrote; raises KeyError, TypeError or ValueError on anything else."""
        choices = {int(bucket): Choice.from_json(choice) for bucket, choice in data["choices"].items()}
        measurements = tuple(Measurement.from_json(item) for item in data["measurements"])
        names = ("device", "threads", "portable", "reason")
        given = {**{name: data[name] for name in names}, "cut": data.get("cut", "")}
        return cls(fingerprint=dict(data["fingerprint"]), choices=choices, measurements=measurements, **given)
