"""The passes by name, and what became of each: what plans and manifests hold of them. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

PASSES = (
    *("fold_constants", "fold_preprocessing", "fold_batch_norm", "fold_scale", "attention_rank"),
    *("half_precision", "fp8", "channels_last", "int8", "kernels"),
)
"""Every pass, in the order in which they run: those that hold in exact arithmetic, then those that a target asks for."""


@dataclass(frozen=True)
class Pass:
    """One of `PASSES`. `rewrite` takes an ExportedProgram and gives another, or the very same where there is nothing to change;
    the one that it takes, and its tensors, stay as they are."""

    name: str
    rewrite: Callable[[Any], Any] = field(repr=False)

    @property
    def order(self) -> int:
        return PASSES.index(self.name)

    def apply(self, captured: Any) -> Any:
        """The CapturedGraph with its program rewritten, or `captured` itself."""
        program = self.rewrite(captured.program)
        return captured if program is captured.program else replace(captured, program=program)


@dataclass(frozen=True, kw_only=True)
class PassRecord:
    """What became of one pass: "applied", "unchanged", "rejected" or "disabled".

    `difference` is the largest one in float64, as a share of the outputs' range; None where nothing was proved, which `why`
    explains.
    """

    name: str
    status: str
    difference: float | None = None
    why: str = ""

    @classmethod
    def of_target(cls, name: str, target: str) -> PassRecord:
        """A lowering pass that was applied for a target such as "inductor bf16". Rounding is what such passes are for, so no
        exact proof can be asked of them."""
        return cls(name=name, status="applied", why=f"for {target}, which the plan's parity gate judges")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
