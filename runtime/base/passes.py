"""The passes by name, and what became of each: what plans and manifests hold of them. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PASSES = (
    *("fold_constants", "fold_preprocessing", "fold_batch_norm", "fold_scale", "attention_rank"),
    *("half_precision", "fp8", "channels_last", "int8", "kernels"),
)
"""Every pass, in the order in which they run: those that hold in exact arithmetic, then those that a target asks for."""


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
        return {"name": self.name, "status": self.status, "difference": self.difference, "why": self.why}
