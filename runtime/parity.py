"""Do two computations agree, and does their agreement prove anything? numpy only.

Lossless candidates (same precision, other order of operations) are held to a tolerance that comes from the model's own
eager noise. Lossy ones (bf16) are judged by what a classifier is for: the top-1 class on real images, and accuracy with labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STATUSES = ("passed", "failed", "not-run")


@dataclass(frozen=True, kw_only=True)
class ParityRecord:
    """The outcome of one comparison. `max_abs` is in the outputs' units, `tolerance` is what it was held to.

    `top1_agreement` is the share of rows whose largest output is the same class. `why` explains any status but "passed",
    and for a passed lossy check says which gate was applied.
    """

    status: str
    max_abs: float | None = None
    top1_agreement: float | None = None
    tolerance: float | None = None
    accuracy_drop: float | None = None
    rows: int = 0
    batches: tuple[int, ...] = ()
    why: str | None = None

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"parity: status must be one of {', '.join(_STATUSES)}; got {self.status!r}")

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "max_abs": self.max_abs,
            "top1_agreement": self.top1_agreement,
            "tolerance": self.tolerance,
            "accuracy_drop": self.accuracy_drop,
            "rows": self.rows,
            "batches": list(self.batches),
            "why": self.why,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ParityRecord:
        return cls(**{**data, "batches": tuple(data["batches"])})
