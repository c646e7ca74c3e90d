"""torch.export's archive: one file; labels, preprocessing and task among its extra files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import BF16, FP32, Precision
from .. import backends
from ..backends import first_line
from ..base.session import Session, Target
from . import Format

if TYPE_CHECKING:
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class Pt2(Format):
    name: str = "pt2"
    suffix: str = ".pt2"
    libraries: tuple[str, ...] = ("torch",)
    precisions: tuple[Precision, ...] = (FP32, BF16)

    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        from ..capture.programs import anonymous, write_program
        from ..lowering.precision import half_precision

        graph = package.captured
        try:
            program = half_precision(precision.dtype).apply(graph).program if precision.lossy else graph.program
        except Exception as error:
            raise BackendError(f"this graph cannot be brought into {precision}: {first_line(error)}") from error
        write_program(anonymous(program), path, extra=package.metadata(precision))

    def open(self, path: Path, package: Packaged) -> Session:
        return backends.get("eager").open(path.parent, Target(), [path.name])


FORMAT = Pt2()
