"""One located remark about a user's file, with a stable code; the form in which every stage speaks to the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
Fix = Literal["safe", "unsafe", "manual", "applied"]


@dataclass(frozen=True, order=True)
class Finding:
    """A remark at `path:line:column` (path relative to the repository, line from 1, column from 0).

    `fix` says what can be done about it: "safe" and "unsafe" are rewrites that a rule offers, "applied" is one that was made,
    "manual" leaves it to the user.
    """

    path: str
    line: int
    column: int
    code: str
    message: str
    severity: Severity = "note"
    fix: Fix = "manual"

    def to_json(self) -> dict[str, Any]:
        """The keys and values that the JSON report carries."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        return cls(**data)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.code} {self.message}"
