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
    cell: int = 0
    """In a notebook, the cell (from 1, all kinds counted) in which `line` counts; 0 elsewhere."""

    @property
    def where(self) -> str:
        """ "path:line:column", in a notebook "path:cell 3:line:column"; empty for the whole repository."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}" if self.path else ""

    def to_json(self) -> dict[str, Any]:
        """The keys and values that the JSON report carries; `cell` only in notebooks."""
        return {key: value for key, value in asdict(self).items() if key != "cell" or value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        return cls(**data)

    def __str__(self) -> str:
        return f"{self.where}: {self.code} {self.message}"
