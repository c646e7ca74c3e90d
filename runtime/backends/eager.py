"""PyTorch itself, on the captured program: the reference, and the fallback that is always installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from . import captured_graph, no_torch_target, unsupported

if TYPE_CHECKING:
    from ..capture import CapturedGraph
    from ..portable import PortableGraph
    from ..session import Session, Target


@dataclass(frozen=True)
class EagerBackend:
    """Runs the program's operators one by one; bf16 and fp16 are torch's autocast."""

    name: str = "eager"
    format: str = "torch"
    fixed_batch: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16")
    preparation_seconds: float = 2.0

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("torch") else "torch is not installed: pip install torch"

    def supports(self, target: Target) -> str | None:
        return self.missing() or unsupported(self, target) or no_torch_target(target)

    def prepare(self, captured: CapturedGraph | PortableGraph, target: Target, directory: Path) -> list[str]:
        """Write the program with its weights. Source locations stay behind: they name paths on the user's machine."""
        from ..programs import anonymous, on_device, write_program

        name = "model.pt2" if target.device == "cpu" else f"model-{target.device}.pt2"
        if not (directory / name).exists():
            aside = directory / f".{os.getpid()}-{name}"
            write_program(anonymous(on_device(captured_graph(captured).program, target.device)), aside)
            aside.replace(directory / name)
        return [name]

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        import torch

        from ..quiet import quiet
        from ..torch_session import TorchSession

        if why := self.supports(target):
            raise BackendError(why)
        path = directory / files[0]
        try:
            with quiet("torch"):
                module: Any = torch.export.load(path).module()
        except Exception as error:
            raise BackendError(f"{path.name} cannot be loaded by torch {torch.__version__}: {error}") from error
        return TorchSession(module, target, autocast=True)


BACKEND = EagerBackend()
