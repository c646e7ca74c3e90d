"""Where a plan's candidates come from: a captured program, or the portable graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...specs import Signature
from ..artifact.parity import Array
from ..backends import Backend
from ..base.calibration import Calibration
from ..base.session import Target
from ..capture.capture import CapturedGraph
from ..lowering.portable import PortableGraph
from .reference import Reference, make_reference


class Source(Protocol):
    """What `tune` makes candidates of, and what it holds them to."""

    @property
    def signature(self) -> Signature: ...

    def reference(
        self,
        target: Target,
        *,
        rows: int,
        images: Sequence[Array],
        labels: Array | None,
        scores: Array | None,
        seconds: float,
    ) -> Reference:
        """What candidates must compute; see `make_reference`."""
        ...

    def graph_for(self, backend: Backend, calibration: Calibration | None) -> CapturedGraph | PortableGraph | None:
        """What that backend's `prepare` gets; None when it cannot be prepared from here."""
        ...


@dataclass(frozen=True)
class CapturedSource:
    """`captured` is the reference and what eager runs; every other backend gets `optimised`."""

    captured: CapturedGraph
    optimised: CapturedGraph

    @property
    def signature(self) -> Signature:
        return self.captured.signature

    def reference(
        self,
        target: Target,
        *,
        rows: int,
        images: Sequence[Array],
        labels: Array | None,
        scores: Array | None,
        seconds: float,
    ) -> Reference:
        return make_reference(self.captured, target, rows=rows, images=images, labels=labels, scores=scores, seconds=seconds)

    def graph_for(self, backend: Backend, calibration: Calibration | None) -> CapturedGraph | PortableGraph | None:
        if backend.name == "eager":
            return self.captured
        return self.optimised if calibration is None else replace(self.optimised, calibration=calibration)
