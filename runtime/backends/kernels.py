"""Headrace's own Triton kernels, and cuDNN's fused convolutions, in torch's program: in floats each only where it was measured
faster than what torch does there; in int8 for every convolution that fits, of which the plan measures the whole."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import BF16, FP16, FP32, INT8_BF16, Precision
from ..base.atomic import aside
from . import Backend, captured_graph, first_line, loading, lowered, no_torch_target, too_old

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ..base.session import Session, Target
    from ..capture.capture import CapturedGraph
    from ..lowering.kernel_choice import Timer
    from . import AnyGraph, Records

_FORMAT = 2
_OLDEST = (8, 0)  # what the kernels are compiled for
# Of the batch that is measured, where the target names none: so many that a layer's values no longer lie in a cache of 50 MB.
_ROWS = 128


@dataclass(frozen=True, kw_only=True)
class KernelsBackend(Backend):
    """A program of torch's operators and of those that won, and the record of what was measured; replayed as CUDA graphs.

    `timer` measures, on the device; None is `time_on_cuda`. Within about `seconds` the kernels of a graph are compiled and
    measured, beyond them torch's nodes stay. `devices` is wider in tests alone: in Triton's interpreter kernels run on a CPU.
    """

    name: str = "kernels"
    format: str = "torch"
    libraries: tuple[str, ...] = ("triton", "torch")
    devices: tuple[str, ...] = ("cuda",)
    precisions: tuple[Precision, ...] = (FP32, BF16, FP16, INT8_BF16)
    preparation_seconds: float = 45.0
    seconds: float = 35.0
    timer: Timer | None = None

    def missing(self) -> str | None:
        if not importlib.util.find_spec("torch"):
            return "torch is not installed: pip install torch"
        if not importlib.util.find_spec("triton"):
            return "the kernels need Triton, which torch for CUDA brings and which runs on Linux: pip install triton"
        return None

    def _lacks(self, target: Target) -> str | None:
        return no_torch_target(target) or _no_device(target)

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        """Measure, and write the program and what was measured, as JSON; neither holds a path of the user's machine."""
        graph = captured_graph(captured)
        if why := self.supports(target):
            raise BackendError(why)
        from ..capture.programs import anonymous, write_program

        level = target.precision.level
        stem = f"kernels-{target.device}-{target.precision.name}{f'-{level}' if level else ''}"
        names = [f"{stem}.{kind}" for kind in ("pt2", "json")]
        if all((directory / name).exists() for name in names):
            return names
        program, record = self._chosen(graph, target, records)
        with aside(directory, *names) as (path, record_path):
            write_program(anonymous(program), path)
            record_path.write_text(json.dumps(record, indent=1) + "\n")
        return names

    def _chosen(self, graph: CapturedGraph, target: Target, records: Records) -> tuple[ExportedProgram, dict[str, Any]]:
        """The program with its kernels, and the record of them. Raises BackendError."""
        import torch

        from ..base.calibration import required
        from ..base.numerics import fresh_rows
        from ..capture.programs import isolated, on_device
        from ..lowering.int8_convolutions import int8_convolutions, stored_layers
        from ..lowering.kernel_choice import Measured, faster_kernels
        from ..lowering.kernel_sites import functional
        from ..lowering.layout import CHANNELS_LAST
        from ..lowering.precision import half_precision
        from .shared.cudnn_search import searching

        rows = target.batch or _ROWS
        try:
            with torch.no_grad():
                exact = functional(isolated(on_device(graph.program, target.device)))
                # Channels last in fp32 too: what the convolution reads.
                passes = [*([half_precision(target.precision.rest)] if target.precision.lossy else []), CHANNELS_LAST]
                if target.precision.is_int8:
                    passes.append(int8_convolutions(stored_layers(exact), required(graph.calibration), target.precision))
                program = lowered(replace(graph, program=exact), passes, self, target, records)
                integer = _kernels_of(program)
                inputs = [fresh_rows(value, rows, seed=index).to(target.device) for index, value in enumerate(graph.example)]
                measured: list[Measured] = []
                last = faster_kernels(inputs, self.timer or _device_timer(), seconds=self.seconds, measured=measured)
                begin = time.monotonic()
                with searching():  # from the first run of each convolution on: what cuDNN once chose, it keeps
                    program = lowered(replace(graph, program=program), [last], self, target, records)
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(f"the kernels cannot be put into this graph: {first_line(error)}") from error
        return program, {
            "format": _FORMAT,
            "batch": rows,
            "device": _device_name(target),
            "seconds": round(time.monotonic() - begin, 1),
            "integer": integer,
            "sites": [item.to_json() for item in measured],
        }

    def _open(self, paths: list[Path], target: Target) -> Session:
        import torch

        from ... import kernels
        from ..base.silence import silence
        from ..capture.programs import read_program
        from .shared.torch_session import open_session

        wanted = _kernels_in(paths)
        kernels.discover()  # registers the operators that the program names
        with loading(paths[0], f"torch {torch.__version__}"), silence("torch"):
            program = read_program(paths[0], target)
            function: Any = program.module(check_guards=False).forward
        found = _kernels_of(program)
        if found != wanted:
            raise BackendError(
                f"{paths[0].name} has {found} kernels and {paths[1].name} tells of {wanted}; compile the model again"
            )
        return open_session(function, target, recorded=True)


def _kernels_of(program: ExportedProgram) -> int:
    """How many kernels, and fused operators of cuDNN's, a program has."""
    from ..lowering.cudnn import OPERATORS

    ours = (node.target in OPERATORS or getattr(node.target, "namespace", "") == "headrace" for node in program.graph.nodes)
    return sum(ours)


def _kernels_in(paths: list[Path]) -> int:
    """How many kernels the record tells of. Raises BackendError when it is not there or is not such a record."""
    from ..lowering.kernel_choice import Measured

    if len(paths) != 2:
        given = ", ".join(path.name for path in paths) or "nothing"
        raise BackendError(f"the kernels open a program and a record of what was measured, not {given}")
    path = paths[1]
    try:
        record = json.loads(path.read_text())
        if record["format"] != _FORMAT:
            raise ValueError(f"its format is {record['format']!r}, and this Headrace reads {_FORMAT}")
        sites = [Measured.from_json(item) for item in record["sites"]]
        # Of a convolution in int8 only the tile was chosen: it is one of the kernels that the program had before.
        return int(record["integer"]) + sum(site.chosen for site in sites if site.operator != "conv2d_int8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path.name} is not a record of kernels ({type(error).__name__}: {error}); compile the model again"
        raise BackendError(message) from error


def _no_device(target: Target) -> str | None:
    """Why kernels do not run on the target's device here, of which torch can make use; None when they do."""
    if target.device == "cpu":
        from ...kernels._launch import INTERPRETED

        return None if INTERPRETED else "on a CPU the kernels run only in Triton's interpreter: set TRITON_INTERPRET=1"
    import torch

    if torch.version.cuda is None:
        return "the kernels are written for NVIDIA GPUs, and this torch is built for others"
    return too_old("the kernels need", torch.cuda.get_device_capability(), _OLDEST)


def _device_timer() -> Timer:
    from .shared.kernel_timer import time_on_cuda

    return time_on_cuda


def _device_name(target: Target) -> str:
    import torch

    return torch.cuda.get_device_name() if target.device == "cuda" else target.device


BACKEND = KernelsBackend()
