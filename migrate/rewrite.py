"""Rewrite: apply the rules to the files that they touch, losslessly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .facts import Survey
from .finding import Finding


@dataclass(frozen=True)
class Change:
    """One file before and after, the codes of the rules that changed it, and what they remarked. `before` may equal `after`."""

    path: str
    before: bytes
    after: bytes
    rules: list[str]
    findings: list[Finding]

    @property
    def changed(self) -> bool:
        return self.before != self.after


def rewrite(survey: Survey, *, select: Sequence[str] = (), ignore: Sequence[str] = (), unsafe: bool = False) -> list[Change]:
    """The changes that the rules make to the surveyed files; nothing is written.

    `select` and `ignore` are rule codes or prefixes of them ("PS2"); an unknown one raises ValueError. Files without a change
    appear only when a rule remarked something.
    """
    raise NotImplementedError


def unified_diff(changes: Sequence[Change]) -> str:
    """The changes as one unified diff, with `a/` and `b/` prefixes."""
    raise NotImplementedError
