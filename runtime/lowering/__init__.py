"""What brings a program to a target: a list of passes for each, by the runner of `passes`. They round; a plan judges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..base.passes import PASSES

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ..capture.capture import CapturedGraph


@dataclass(frozen=True)
class LoweringPass:
    """One of `PASSES`. `rewrite` gives another program, or the same one where there is nothing to change."""

    name: str
    rewrite: Callable[[ExportedProgram], ExportedProgram] = field(repr=False)

    @property
    def order(self) -> int:
        return PASSES.index(self.name)

    def apply(self, captured: CapturedGraph) -> CapturedGraph:
        """See `Pass.apply`."""
        program = self.rewrite(captured.program)
        return captured if program is captured.program else replace(captured, program=program)
