"""PyTorch itself, on the captured program: the reference, and the fallback that is always installed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import BF16, FP16, FP32, Precision
from ..base.atomic import aside
from . import Backend, captured_graph, first_line, loading, lowered

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from . import AnyGraph, Records


@dataclass(frozen=True, kw_only=True)
class EagerBackend(Backend):
    """Runs the program's operators one by one: in fp32 exactly the module's own."""

    name: str = "eager"
    format: str = "torch"
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[Precision, ...] = (FP32, BF16, FP16)
    preparation_seconds: float = 2.0
    efficiency: float = 0.3

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("torch") else "torch is not installed: pip install torch"

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        """Write the program with its weights. Source locations stay behind: they name paths on the user's machine."""
        from ..capture.programs import anonymous, on_device, write_program
        from ..lowering.layout import CHANNELS_LAST
        from ..lowering.precision import half_precision

        lossy = target.precision.lossy
        parts = ["model", *([] if target.device == "cpu" else [target.device]), *([target.precision.name] if lossy else [])]
        name = f"{'-'.join(parts)}.pt2"
        graph = captured_graph(captured)
        if (directory / name).exists():
            return [name]
        program = on_device(graph.program, target.device)
        if lossy:
            try:
                passes = [half_precision(target.precision.dtype), CHANNELS_LAST]
                program = lowered(replace(graph, program=program), passes, self, target, records)
            except Exception as error:
                raise BackendError(f"this graph cannot be brought into {target.precision}: {first_line(error)}") from error
        with aside(directory, name) as (path,):
            write_program(anonymous(program), path)
        return [name]

    def _open(self, paths: list[Path], target: Target) -> Session:
        import torch

        from ..base.silence import silence
        from ..capture.programs import computing, read_program
        from .shared.torch_session import open_session

        if why := self.supports(target):
            raise BackendError(why)
        with loading(paths[0], f"torch {torch.__version__}"), silence("torch"):
            compute = computing(read_program(paths[0], target))
        return open_session(compute, target, recorded=False)


BACKEND = EagerBackend()
