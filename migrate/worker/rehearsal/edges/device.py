"""Device: what a script does on CUDA is done on the CPU.

Tensors and factories that are told "cuda" give CPU tensors. `torch.cuda.is_available()` stays false until a script was stopped
for the want of a GPU; then the user's own code is told that there is one, and torch and other libraries still know better.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....proving.rehearsal_protocol import WANTING
from ..places import called_by_user, failed_at, frames, is_headraces, is_users
from ..stage import Stage

_WANTS_CUDA = re.compile(r"\b(cuda|gpus?|nvidia|cudnn)\b|Inference tensors cannot be saved", re.I)
_OF_CUDA = re.compile(r"\.dll$|cuda|nvrtc|cudnn|cublas|nvidia", re.I)
"""Libraries that are loaded for a GPU's sake, or on another system."""
_INSISTS = "cuda"
_UNWRAPPED = "unwrapped"
_NUMBERED, _NO_NUMBER = "numbered_devices", "Cannot access accelerator device"
"""What `torch.device(0)` says where there is no GPU."""
_WRAPPERS = re.compile(r"\bDataParallel\b|\bDistributedDataParallel\b|\bDDP\b")
_ZERO = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached",
    "current_device", "utilization", "temperature",
)  # fmt: skip
_NOTHING = (
    "synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "reset_max_memory_allocated", "init", "ipc_collect",
    "reset_max_memory_cached", "set_per_process_memory_fraction", "set_stream",
)  # fmt: skip


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    stage.when_imported("torch", lambda torch: _on_cpu(stage, torch))
    stage.when_imported("ctypes", lambda library: stage.wrap(library.CDLL, "__init__", _loaded(stage)))
    yield


def lesson(stage: Stage, error: BaseException) -> bool:
    """A script that ends itself for the want of a GPU, or of the copies that go to one, is told that there is one."""
    if isinstance(error, OSError) and error.errno is not None:  # else the script's own: EnvironmentError("no GPU found")
        return False
    if _is_unwrapped(stage, error):
        return stage.learn(_UNWRAPPED, True)
    if _NO_NUMBER in str(error):
        return stage.learn(_NUMBERED, True)
    trace, stated = error.__traceback__, False
    counts = {"device_count"} if isinstance(error, ZeroDivisionError | AssertionError) else set()  # of a count of none
    asks = counts if isinstance(error, ZeroDivisionError) else {*counts, "is_available"}
    while trace is not None:
        stated |= trace.tb_next is None and not asks.isdisjoint(trace.tb_frame.f_code.co_names)
        trace = trace.tb_next
    wanted = stated if isinstance(error, AssertionError) and not str(error) else _WANTS_CUDA.search(str(error)) or stated
    own = failed_at(error, stage.root) is not None
    return bool(wanted and own and isinstance(error, Exception | SystemExit)) and stage.learn(_INSISTS, True)


def _is_unwrapped(stage: Stage, error: BaseException) -> bool:
    """Whether the script looks into the wrapper that it puts around a model where there is a GPU, and there is none."""
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_available() or not isinstance(error, AttributeError) or error.name != "module":
        return False
    if not isinstance(error.obj, torch.nn.Module) or failed_at(error, stage.root) is None:
        return False
    paths = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    paths.add(os.path.join(stage.root, stage.request.script))
    return any(_WRAPPERS.search(_text(path)) for path in paths if is_users(os.path.realpath(path), stage.root))


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def in_vain(stage: Stage) -> bool:
    """A script that asked for a GPU, was told that there is none, and left it at that, is told that there is one."""
    return stage.asked_for_gpu and stage.learn(_INSISTS, True)


def remedy(stage: Stage, error: BaseException) -> str | None:
    if isinstance(error, OSError) or WANTING in str(error) or not _WANTS_CUDA.search(str(error)):
        return None
    return "run the migration on a machine with the GPU that the script wants, or give the script an option for the CPU"


def _on_cpu(stage: Stage, torch: Any) -> None:
    def is_cuda(device: Any) -> bool:
        if isinstance(device, torch.device):
            return bool(device.type == "cuda")
        return isinstance(device, str) and device.partition(":")[0] == "cuda"

    def here(device: Any) -> Any:
        if is_cuda(device) or (isinstance(device, int) and not isinstance(device, bool)):
            stage.note("device", "the CPU stood in for CUDA")
            return torch.device("cpu")
        return device

    def named_device(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if named.get("device") is not None:
            named["device"] = here(named["device"])
        named.pop("pin_memory", None)
        return original(*args, **named)

    def to(original: Callable[..., Any], self: Any, *args: Any, **named: Any) -> Any:
        if args and not isinstance(args[0], torch.dtype | torch.Tensor):
            args = (here(args[0]), *args[1:])
        return copied(named_device(original, self, *args, **named))

    def module_to(original: Callable[..., Any], self: Any, *args: Any, **named: Any) -> Any:
        args = (here(args[0]), *args[1:]) if args and isinstance(args[0], int) else args  # a rank: torch asks for a GPU at once
        return original(self, *args, **{name: here(value) if name == "device" else value for name, value in named.items()})

    def copied(tensor: Any) -> Any:
        """A tensor of inference mode that went to a GPU is an ordinary one there."""
        if not insists or torch.nn.parameter.is_lazy(tensor) or torch.is_inference_mode_enabled():
            return tensor
        return tensor.clone() if tensor.is_inference() else tensor

    def cuda(original: Callable[..., Any], self: Any, *args: Any, **named: Any) -> Any:
        stage.note("device", "the CPU stood in for CUDA")
        return copied(self)

    def of_type(original: Callable[..., Any], self: Any, *args: Any, **named: Any) -> Any:
        if args and isinstance(args[0], str):
            args = (args[0].replace("torch.cuda.", "torch."), *args[1:])
        return original(self, *args, **named)

    if stage.learned.get(_NUMBERED):
        stage.patch(torch, "device", _Devices("device", (), {"real": torch.device, "here": staticmethod(here)}))
    if stage.learned.get(_UNWRAPPED):
        stage.patch(torch.nn.Module, "module", _Itself(stage))
    insists = bool(stage.learned.get(_INSISTS))
    tensor = torch.Tensor
    stage.wrap(tensor, "to", to)
    stage.wrap(tensor, "cuda", cuda)
    # A lazy layer's parameters, which have no values yet, let themselves be moved by these functions and no others.
    uninitialized = torch.nn.parameter.UninitializedTensorMixin
    stage.patch(uninitialized, "_allowed_methods", [*uninitialized._allowed_methods, tensor.to, tensor.cuda])
    stage.wrap(tensor, "type", of_type)
    stage.patch(tensor, "pin_memory", lambda self, *_: self)
    stage.patch(tensor, "record_stream", lambda self, *_: None)
    for name in ("new_tensor", "new_zeros", "new_ones", "new_full", "new_empty"):
        stage.wrap(tensor, name, named_device)
    constructors = importlib.import_module("torch.utils._device")._device_constructors()
    likes = ("rand_like", "randn_like", "randint_like", "zeros_like", "ones_like", "full_like", "empty_like")
    for name in sorted({*(function.__name__ for function in constructors), *likes}):
        if hasattr(torch, name):
            original = getattr(torch, name)
            stage.wrap(torch, name, named_device)
            _known_to_scripting(stage, original, getattr(torch, name))
    stage.wrap(
        torch.nn.Module, "to_empty", lambda original, self, *, device, **named: original(self, device=here(device), **named)
    )
    stage.wrap(torch.nn.Module, "to", module_to)
    stage.wrap(torch, "set_default_device", lambda original, device: original(here(device)))
    stage.wrap(torch, "set_default_tensor_type", lambda original, kind: original(_cpu_type(torch, kind)))
    # Without a GPU it would turn itself off, and hold nothing of the scale that scripts print and store.
    stage.wrap(torch.amp.GradScaler, "__init__", lambda original, self, device="cuda", *args, **named: original(
        self, here(device).type if is_cuda(device) else device, *args, **named))  # fmt: skip
    _loading(stage, torch, here)
    _cuda_module(stage, torch)
    stage.when_imported("headrace.runtime.parallel.mesh", lambda mesh: _placements(stage, mesh))


def _loaded(stage: Stage) -> Callable[..., None]:
    """Loads what is loaded for the sake of it: `ctypes.cdll.LoadLibrary("caffe2_nvrtc.dll")`, which helps torch on Windows."""

    def load(original: Callable[..., Any], own: Any, name: Any, *args: Any, **named: Any) -> None:
        try:
            original(own, name, *args, **named)
        except OSError:
            if not isinstance(name, str) or not _OF_CUDA.search(name):
                raise
            stage.note("device", f"{name}, a library of CUDA's or of Windows, was not loaded")
            original(own, None)  # the process itself, which has none of its functions

    return load


def _placements(stage: Stage, mesh: Any) -> None:
    """Global tensors of a migrated script lie on the CPU, too."""

    def placed(original: Callable[..., Any], device: str, *args: Any, **named: Any) -> Any:
        return original("cpu" if device == "cuda" else device, *args, **named)

    for name in ("placement", "same_start", "world"):
        stage.wrap(mesh, name, placed)


class _Devices(type):
    """`torch.device`, of which a number is a device that is here."""

    real: type
    here: Callable[[Any], Any]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.real)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        given = args[0] if args else named.get("device")
        return cls.here(given) if isinstance(given, int) and len(args) + len(named) == 1 else cls.real(*args, **named)


def _known_to_scripting(stage: Stage, original: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
    """TorchScript compiles a call of the stand-in as that of the operator: torch scripts functions of its own when imported."""
    builtins = importlib.import_module("torch.jit._builtins")
    operator = builtins._find_builtin(original)
    if operator is not None:
        builtins._register_builtin(stand_in, operator)
        stage.on_exit(lambda: builtins._get_builtin_table().pop(id(stand_in), None))


def _loading(stage: Stage, torch: Any, here: Callable[[Any], Any]) -> None:
    def load(original: Callable[..., Any], file: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
        if map_location is None or isinstance(map_location, str | torch.device):
            map_location = "cpu" if map_location is None else here(map_location)
        elif isinstance(map_location, dict):
            map_location = {source: here(target) for source, target in map_location.items()}
        elif callable(map_location):
            asked = map_location
            map_location = lambda storage, place: _to_cpu(asked, storage, place)  # noqa: E731
        return original(file, map_location, *args, **named)

    stage.wrap(torch, "load", load)


def _to_cpu(asked: Callable[..., Any], storage: Any, place: str) -> Any:
    """`lambda storage, location: storage.cuda(0)` has no CUDA to go to."""
    try:
        return asked(storage, place)
    except (RuntimeError, AssertionError):
        return storage


def _cpu_type(torch: Any, kind: Any) -> Any:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    if not name.startswith("torch.cuda."):
        return kind
    return getattr(torch, name.rpartition(".")[2])


def _cuda_module(stage: Stage, torch: Any) -> None:
    cuda = torch.cuda
    several = max(stage.request.ranks, stage.request.replicas)
    told = bool(stage.learned.get(_INSISTS)) or stage.request.replicas > 1

    def for_user(value: Any) -> Callable[..., Any]:
        """The stand-in for the user's code; what libraries ask is answered by torch."""

        def answer(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
            if not called_by_user(stage.root):
                return original(*args, **named)
            stage.note("device", "the CPU stood in for CUDA")
            return value(*args, **named) if callable(value) else value

        return answer

    def asked(original: Callable[..., Any]) -> Any:
        stage.asked_for_gpu |= called_by_user(stage.root)
        return original()

    if told:
        stage.wrap(cuda, "is_available", for_user(True))
        stage.wrap(cuda, "device_count", for_user(several))
        stage.wrap(cuda, "is_initialized", for_user(True))
        stage.wrap(cuda, "is_bf16_supported", for_user(False))
    if torch.cuda.is_available():
        return
    if not told:
        stage.wrap(cuda, "is_available", asked)
        stage.wrap(cuda, "device_count", asked if several == 1 else for_user(several))
    for name in _ZERO:
        stage.wrap(cuda, name, for_user(0))
    for name in _NOTHING:
        stage.wrap(cuda, name, for_user(None))
    properties = types.SimpleNamespace(
        name="CPU", major=8, minor=0, total_memory=8 * 2**30, multi_processor_count=1, is_integrated=False
    )
    stage.wrap(cuda, "get_device_name", for_user("CPU"))
    stage.wrap(cuda, "get_device_properties", for_user(lambda *_: properties))
    stage.wrap(cuda, "get_device_capability", for_user((8, 0)))
    stage.wrap(cuda, "mem_get_info", for_user((8 * 2**30, 8 * 2**30)))
    stage.wrap(cuda, "get_rng_state", for_user(lambda *_: torch.get_rng_state()))
    stage.wrap(cuda, "set_rng_state", for_user(None))
    stage.wrap(cuda, "memory_summary", for_user(""))
    stage.patch(cuda, "Event", _Event)
    stage.patch(cuda, "Stream", _Stream)
    stage.wrap(cuda, "current_stream", for_user(_Stream))
    stage.wrap(cuda, "default_stream", for_user(_Stream))
    stage.wrap(cuda, "stream", for_user(lambda *_: contextlib.nullcontext()))
    stage.patch(cuda, "device", _Device)
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool"):
        if hasattr(torch, f"{name}Tensor"):
            stage.patch(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))


class _Itself:
    """The `module` of a model that no DataParallel wraps, for there is no GPU; what has one of its own keeps it.

    Torch, and what exports a model, ask whether a model has such a part, and are told the truth.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __get__(self, model: Any, owner: type) -> Any:
        if model is None or "module" in model.__dict__.get("_modules", {}) or not _asked_by_a_script():
            raise AttributeError("module")  # and torch looks where it always does
        self._stage.note("device", "without a GPU no DataParallel wraps the model, whose module it is itself")
        return model


def _asked_by_a_script() -> bool:
    """Whether the nearest caller outside of the rehearsal is a source file, and none of torch's or Headrace's own."""
    frame = next(frames(), None)
    name = frame.f_code.co_filename if frame is not None else "<"
    return not name.startswith(("<", os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep)) and not is_headraces(name)


class _Event:
    """Times on the CPU what `torch.cuda.Event` times on a GPU."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = time.perf_counter()

    def record(self, *_: Any) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: _Event) -> float:
        return 1e3 * (other.at - self.at)

    def synchronize(self) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True


class _Device(contextlib.nullcontext[None]):
    """`with torch.cuda.device(0):`; a class, for torch asks whether things are such devices."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.device, self.priority = "cpu", 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...

    def record_event(self, *_: Any) -> _Event:
        return _Event()

    def query(self) -> bool:
        return True
