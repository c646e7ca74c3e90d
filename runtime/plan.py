"""Which backend and precision runs which batch size on which machine, and the measurements that say so. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .parity import ParityRecord
from .session import Target

_STATUSES = ("won", "lost", "refused", "failed", "skipped")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to run the model: a backend, a precision, and the files (names in the version's directory) it opens."""

    backend: str
    precision: str
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.backend} {self.precision}"

    def to_json(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision, "files": list(self.files)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Choice:
        return cls(backend=data["backend"], precision=data["precision"], files=tuple(data["files"]))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One candidate at one batch size. Times are milliseconds per call: the median, and the interquartile range as spread.

    `status` is "won", "lost" (to the winner), "refused" (parity), "failed" (an error) or "skipped" (not measured);
    `why` says it in words for all but the winner. Times are None when nothing was measured.
    """

    backend: str
    precision: str
    bucket: int
    status: str
    median_ms: float | None = None
    spread_ms: float | None = None
    repetitions: int = 0
    parity: ParityRecord | None = None
    why: str = ""

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"measurement: status must be one of {', '.join(_STATUSES)}; got {self.status!r}")

    @property
    def rows_per_second(self) -> float | None:
        return None if not self.median_ms else 1000 * self.bucket / self.median_ms

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "precision": self.precision,
            "bucket": self.bucket,
            "status": self.status,
            "median_ms": self.median_ms,
            "spread_ms": self.spread_ms,
            "repetitions": self.repetitions,
            "parity": None if self.parity is None else self.parity.to_json(),
            "why": self.why,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        parity = data.get("parity")
        return cls(**{**data, "parity": None if parity is None else ParityRecord.from_json(parity)})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The winner per batch bucket on the machine that `fingerprint` describes.

    `portable` marks a plan that nobody measured on this machine; `reason` then says why it was taken.
    """

    fingerprint: Mapping[str, Any]
    choices: Mapping[int, Choice]
    device: str = "cpu"
    threads: int | None = None
    measurements: tuple[Measurement, ...] = field(default=(), repr=False)
    portable: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.choices:
            raise ValueError("a plan needs a choice for at least one batch bucket")
        if any(not isinstance(bucket, int) or isinstance(bucket, bool) or bucket < 1 for bucket in self.choices):
            raise ValueError(f"plan: buckets must be positive integers, got {list(self.choices)}")
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

    def choice(self, batch: int) -> Choice:
        """How to run a batch of that many rows."""
        return self.choices[self.bucket(batch)]

    def target(self, batch: int, *, threads: int | None = None) -> Target:
        """The target to open `choice(batch)` with; `threads` overrides the plan's own."""
        return Target(device=self.device, precision=self.choice(batch).precision, threads=threads or self.threads)

    def to_json(self) -> dict[str, Any]:
        return {
            "fingerprint": dict(self.fingerprint),
            "device": self.device,
            "threads": self.threads,
            "choices": {str(bucket): choice.to_json() for bucket, choice in self.choices.items()},
            "measurements": [measurement.to_json() for measurement in self.measurements],
            "portable": self.portable,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Read what `to_json` wrote; raises KeyError, TypeError or ValueError on anything else."""
        return cls(
            fingerprint=dict(data["fingerprint"]),
            choices={int(bucket): Choice.from_json(choice) for bucket, choice in data["choices"].items()},
            device=data["device"],
            threads=data["threads"],
            measurements=tuple(Measurement.from_json(item) for item in data["measurements"]),
            portable=data["portable"],
            reason=data["reason"],
        )
