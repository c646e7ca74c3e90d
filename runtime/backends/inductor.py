"""TorchInductor, ahead of time: the graph compiled to C++ (CPU) or Triton kernels (CUDA) in one package."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import BF16, FP8, FP16, FP32, Precision
from ..base.atomic import aside
from . import Backend, captured_graph, first_line, loading, lowered, no_torch_target, unsupported

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from . import AnyGraph, Records


@dataclass(frozen=True, kw_only=True)
class InductorBackend(Backend):
    """One package for any batch. It holds machine code for this processor, so other machines tune anew.

    On a GPU its kernels are recorded per batch bucket and replayed as CUDA graphs. With `autotuned_at` each convolution and
    matrix product is measured in every form that inductor has for it (max-autotune), on a batch of that many rows.
    """

    name: str = "inductor"
    format: str = "torch"
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[Precision, ...] = (FP32, BF16, FP16, FP8)
    preparation_seconds: float = 40.0
    autotuned_at: int | None = None

    def missing(self) -> str | None:
        if not importlib.util.find_spec("torch"):
            return "torch is not installed: pip install torch"
        if not compiler():
            return "inductor needs a C++ compiler: install g++ (apt install g++) or name one in CXX"
        return None

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        if why := self.supports(target) or _DIED.get(target.device):
            raise BackendError(why)
        import torch
        from torch._inductor import aoti_compile_and_package

        from ..base.silence import silence
        from ..capture.capture import MAX_BATCH
        from ..capture.programs import at_batch, isolated, on_device
        from ..lowering.fp8 import FP8 as FP8_PASS
        from ..lowering.layout import CHANNELS_LAST
        from ..lowering.precision import half_precision
        from .shared.cuda_toolkit import toolkit_found, why_not_linked
        from .shared.elsewhere import died_of

        graph = captured_graph(captured)
        name = f"{self.name}-{target.device}-{target.precision.name}.pt2"
        if (directory / name).exists():
            return [name]
        try:
            with aside(directory, name) as (path,), silence("torch"), torch.no_grad():
                program = isolated(on_device(graph.program, target.device))
                if target.precision.lossy:
                    passes = [half_precision(target.precision.rest), CHANNELS_LAST]
                    passes += [FP8_PASS] if target.precision == FP8 else []
                    program = lowered(replace(graph, program=program), passes, self, target, records)
                settings = _settings(target)
                if self.autotuned_at is not None:
                    program = at_batch(program, self.autotuned_at, MAX_BATCH)
                    settings["max_autotune"] = True
                with toolkit_found() if target.device == "cuda" else contextlib.nullcontext():
                    aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
                if target.device == "cuda" and (how := died_of(_LOAD, [str(path)])):
                    _DIED[target.device] = (
                        f"what inductor compiled ends the process that loads it, with {how}: torch {torch.__version__} and "
                        "CUDA on this machine do not fit together, and no setting helps; the other backends do without it"
                    )
                    raise BackendError(_DIED[target.device])
        except BackendError:
            raise
        except Exception as error:
            why = why_not_linked(compiler() or "") if target.device == "cuda" else None
            raise BackendError(why or f"inductor cannot compile this graph: {first_line(error)}") from error
        return [name]

    def _cannot_open(self, target: Target) -> str | None:  # running a package needs no compiler
        return unsupported(self, target) or no_torch_target(target)

    def _open(self, paths: list[Path], target: Target) -> Session:
        import torch
        from torch._inductor import aoti_load_package

        from ..base.silence import silence
        from .shared.torch_session import open_session

        ordinal = -1 if target.ordinal is None else target.ordinal  # -1 is the current device
        # Loading onto another device makes that the current one.
        kept = contextlib.nullcontext() if target.ordinal is None else torch.cuda.device(target.ordinal)
        with loading(paths[0], f"torch {torch.__version__}"), silence("torch"), kept:
            # The package's own bookkeeping between threads cannot be recorded; a session has one thread anyway.
            alone = target.device == "cuda"
            function: Any = aoti_load_package(str(paths[0]), run_single_threaded=alone, device_index=ordinal)
        return open_session(function, target, recorded=True)


# A library that does not fit ends a process: seen with torch 2.11 for CUDA 13.0 on an H100, for every model.
_DIED: dict[str, str] = {}  # what came of it, by device: nothing is compiled again in vain
_LOAD = "import sys; from torch._inductor import aoti_load_package; aoti_load_package(sys.argv[1], run_single_threaded=True)"


def _settings(target: Target) -> dict[str, Any]:
    # torch's headers compiled ahead gain 3 s of each compilation and take 12 once per machine, in a sandbox once per model.
    common = {"freezing": True, "aot_inductor.precompile_headers": False}
    # Without dynamic_threads the package would keep the thread count of the process that compiled it.
    if target.device == "cpu":
        return {**common, "cpp.dynamic_threads": True}
    # Frozen, weights are laid out for their kernels once and not at every call. Inductor leaves convolutions of a dynamic
    # batch in NCHW unless forced; tensor cores want channels last.
    return {**common, "force_layout_optimization": target.precision.lossy}


def compiler() -> str | None:
    """The C++ compiler that inductor will call; None when there is none."""
    return next((found for name in (os.environ.get("CXX"), "g++", "clang++") if name and (found := shutil.which(name))), None)


BACKEND = InductorBackend()
