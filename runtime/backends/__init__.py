"""What can run a captured graph: one backend, one file, found by its file name.

Each module here has one module-level `BACKEND`. Importing it must be cheap and must not import torch, onnxruntime or
openvino: those are imported when a method needs them, so a server that opens an ONNX session never pays for torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import BF16, FP8, FP16, INT8, Precision

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ..base.passes import Pass, PassRecord
    from ..base.session import Session, Target
    from ..capture.capture import CapturedGraph
    from ..lowering.portable import PortableGraph

    AnyGraph = CapturedGraph | PortableGraph
    Records = list[PassRecord] | None

_OLDEST_WITH_FP8 = (8, 9)  # Ada; for torch._scaled_mm, and for Triton


@dataclass(frozen=True, kw_only=True)
class Backend(ABC):
    """Turns a captured graph into files, and those files into a session.

    `prepare` then `open` is all there is to compiling, so what a plan measured is what an artifact loads. `devices` and
    `precisions` are those that it knows how to use, whether or not this machine has them. `format` is what `prepare` starts
    from: "onnx", the portable graph, or "torch", the captured program. `preparation_seconds` is roughly what that takes for a
    usual model on two cores, beyond the portable graph that every artifact has: a bounded tuning skips what does not fit.
    `efficiency` is the share of the machine's peak that it reaches on usual models, which orders the candidates until plans
    made on the machine tell it. `libraries` are those that a plan with it depends on. `fixed_batch` and `streams` say whether
    it can compile for one batch size alone (`Target.batch`), which some graphs gain from, and compute the parts of such a batch
    side by side (`Target.streams`). `runs_code` says that what its files hold is run: machine code, or torch's programs, whose
    constants are pickles. Such files are opened of trusted packages only.
    """

    name: str
    format: str
    devices: tuple[str, ...]
    precisions: tuple[Precision, ...]
    preparation_seconds: float
    efficiency: float = 0.7
    libraries: tuple[str, ...] = ("torch",)
    fixed_batch: bool = False
    streams: bool = False
    runs_code: bool = True

    @abstractmethod
    def missing(self) -> str | None:
        """None when its libraries are installed, else one plain sentence with the line that brings them."""

    def supports(self, target: Target) -> str | None:
        """None when this machine can run the target with it, else one plain sentence why not. Includes `missing()`."""
        return unsupported(self, target) or self.missing() or self._lacks(target)

    @abstractmethod
    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        """Write the files that `open` needs into the directory, unless they are there, and return their relative names.

        What the lowering passes did is added to `records`; nothing where the files were there already.
        A backend of the format "onnx" finds model.onnx in the directory if that is all there is of the graph. Raises
        BackendError when the graph cannot be brought into this backend's format.
        """

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        """A session from those files alone. Raises BackendError when they cannot be loaded or the target is not supported."""
        if why := self._cannot_open(target):
            raise BackendError(why)
        return self._open([directory / name for name in files], target)

    def _lacks(self, target: Target) -> str | None:
        """What the machine lacks for a target that is in the lists."""
        return no_torch_target(target)

    def _cannot_open(self, target: Target) -> str | None:
        return self.supports(target)

    @abstractmethod
    def _open(self, paths: list[Path], target: Target) -> Session: ...


@functools.cache
def discover() -> dict[str, Backend]:
    """Every backend in this folder by name, installed or not. Raises BackendError when two files claim one name."""
    found = (item.name for item in pkgutil.iter_modules(__path__) if not item.ispkg)
    modules = [importlib.import_module(f".{name}", __name__) for name in found]
    return register(modules)


def register(modules: Iterable[ModuleType]) -> dict[str, Backend]:
    """The `BACKEND` of each module by name, sorted. Raises BackendError on a module without one and on a name used twice."""
    found: dict[str, Backend] = {}
    homes: dict[str, str] = {}
    for module in modules:
        backend: Backend | None = getattr(module, "BACKEND", None)
        if backend is None:
            raise BackendError(f"{module.__name__} has no BACKEND; a file in runtime/backends must define one")
        if backend.name in found:
            raise BackendError(f"{module.__name__} and {homes[backend.name]} both call themselves {backend.name!r}; rename one")
        found[backend.name] = backend
        homes[backend.name] = module.__name__
    return dict(sorted(found.items()))


def get(name: str) -> Backend:
    """The backend of that name, installed or not. Raises BackendError naming those that exist."""
    known = discover()
    if name not in known:
        raise BackendError(f"there is no backend {name!r}; the backends are {', '.join(known)}")
    return known[name]


def unsupported(backend: Backend, target: Target) -> str | None:
    """Why a target is not in a backend's lists; None when it is."""
    if target.device not in backend.devices:
        return f"{backend.name} does not run on {target.device}; it runs on {', '.join(backend.devices)}"
    if target.precision.whole not in backend.precisions:
        able = ", ".join(map(str, backend.precisions))
        return f"{backend.name} does not compute in {target.precision.name}; it computes in {able}"
    return None


def lowered(
    graph: CapturedGraph, passes: Sequence[Pass], backend: Backend, target: Target, records: Records
) -> ExportedProgram:
    """The program after the passes that a target of this backend asks for, whose records are added to `records`."""
    from ..passes import run_passes

    graph, found = run_passes(graph, passes, target=f"{backend.name} {target.precision}")
    if records is not None:
        records += found
    return graph.program


def captured_graph(graph: AnyGraph) -> CapturedGraph:
    """What a backend of the format "torch" needs. Raises BackendError when only the portable graph is there."""
    from ..lowering.portable import PortableGraph

    if isinstance(graph, PortableGraph):
        raise BackendError("the captured program is needed, and only the portable graph is there; compile the model itself")
    return graph


@contextlib.contextmanager
def loading(path: Path, library: str) -> Iterator[None]:
    """What a library raises while it loads a file becomes a BackendError that names both."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(f"{path.name} cannot be loaded by {library}: {error}") from error


def first_line(error: Exception) -> str:
    """What an error says, without the pages that compilers append."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def no_torch_target(target: Target) -> str | None:
    """Why torch cannot use the target's device or precision here; None when it can."""
    if target.device == "cpu":
        instead = {FP16: BF16, FP8: INT8}.get(target.precision)
        return f"{target.precision} is for GPUs; on a CPU use {instead}" if instead else None
    import torch

    if not torch.cuda.is_available():
        remedy = "where there is an NVIDIA GPU: pip install a CUDA build of torch"
        return f"torch finds no usable CUDA device on this machine; {remedy}"
    if target.precision == FP8:
        if torch.version.cuda is None:
            return "fp8 is for NVIDIA GPUs here, and this torch is built for others"
        return too_old_for_fp8(torch.cuda.get_device_capability(target.ordinal))
    return None


def too_old_for_fp8(capability: tuple[int, int]) -> str | None:
    """Why a GPU of that compute capability has no fp8; None when it has."""
    why = too_old("fp8 needs", capability, _OLDEST_WITH_FP8)
    return why and f"{why}; use bf16"


def too_old(what_needs: str, capability: tuple[int, int], least: tuple[int, int]) -> str | None:
    """Why a GPU of that compute capability does not do for `what_needs`, such as "fp8 needs"; None when it does."""
    if capability >= least:
        return None
    here, needed = (".".join(map(str, item)) for item in (capability, least))
    return f"{what_needs} a GPU of compute capability {needed} or newer, and this one has {here}"
