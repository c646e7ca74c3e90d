"""PyTorch itself, on the captured program: the reference, and the fallback that is always installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import BF16, FP16, FP32, Precision
from . import captured_graph, first_line, lowered, no_torch_target, unsupported

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from ..capture.capture import CapturedGraph
    from ..lowering.portable import PortableGraph
    from . import Records


@dataclass(frozen=True)
class EagerBackend:
    """Runs the program's operators one by one: in fp32 exactly the module's own."""

    name: str = "eager"
    format: str = "torch"
    fixed_batch: bool = False
    streams: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[Precision, ...] = (FP32, BF16, FP16)
    preparation_seconds: float = 2.0

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("torch") else "torch is not installed: pip install torch"

    def supports(self, target: Target) -> str | None:
        return self.missing() or unsupported(self, target) or no_torch_target(target)

    def prepare(
        self, captured: CapturedGraph | PortableGraph, target: Target, directory: Path, records: Records = None
    ) -> list[str]:
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
        aside = directory / f".{os.getpid()}-{name}"
        write_program(anonymous(program), aside)
        aside.replace(directory / name)
        return [name]

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        import torch

        from ..base.silence import silence
        from ..capture.programs import read_program
        from .shared.torch_session import open_session

        if why := self.supports(target):
            raise BackendError(why)
        path = directory / files[0]
        try:
            with silence("torch"):
                module: Any = read_program(path, target).module(check_guards=False)
        except Exception as error:
            raise BackendError(f"{path.name} cannot be loaded by torch {torch.__version__}: {error}") from error
        # Not by calling the module: while another thread captures, torch traces every module call of the process.
        return open_session(module.forward, target, recorded=False)


BACKEND = EagerBackend()
