"""Libraries that are not installed: experiment trackers and counters do nothing, apex is torch's own, others import only."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from ...stub_modules import install_stub
from ..stage import Stage

SILENT = frozenset([
    "aim", "clearml", "codecarbon", "comet_ml", "dvclive", "fvcore", "livelossplot", "mlflow", "neptune",
    "nvidia_smi", "progressbar", "ptflops", "pthflops", "pynvml", "setproctitle", "swanlab", "tensorboard",
    "tensorboardX", "tensorboard_logger", "telegram", "thop", "torchinfo", "torchstat", "torchsummary",
    "torchsummaryX", "torchviz", "trackio", "visdom", "wandb",
])  # fmt: skip
"""Libraries that watch a script and give nothing back that its results depend on."""
_OFFLINE = {"WANDB_MODE": "disabled", "WANDB_SILENT": "true", "COMET_MODE": "disabled", "NEPTUNE_MODE": "offline"}


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    finders = list(sys.meta_path)
    modules = set(sys.modules)
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(_OFFLINE)
    sys.meta_path.append(_Finder(stage))
    for name in stage.learned.get("absent", ()):
        if install_stub(ModuleNotFoundError(name, name=name), stage.root):
            stage.note("libraries", f"{name} is not installed; it can be imported and not used")
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if isinstance(sys.modules[name], _Module):
            del sys.modules[name]
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def lesson(stage: Stage, error: BaseException) -> bool:
    """A library that is missing may be one that this run does not need."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    known = stage.learned.get("absent", [])
    if name is None or "." in name or name in known or "of which" in str(error) or importlib.util.find_spec(name) is not None:
        return False
    return stage.learn("absent", [*known, name])


def remedy(stage: Stage, error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return f"install {error.name.partition('.')[0]} into the environment in which headrace runs"


class Silent:
    """Does nothing and gives itself, whatever is called or asked for."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, Silent(f"{self._name}.{name}"))

    def __call__(self, *args: Any, **named: Any) -> Any:
        # A decorator that watches a function leaves it as it is.
        return args[0] if len(args) == 1 and not named and isinstance(args[0], types.FunctionType) else self

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter((0.0, 0.0))  # operations and parameters, as counters give them

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __str__(self) -> str:
        return ""

    def __float__(self) -> float:
        return 0.0

    def __int__(self) -> int:
        return 0

    def __truediv__(self, other: Any) -> float:
        return 0.0

    def __mul__(self, other: Any) -> float:
        return 0.0

    def __format__(self, form: str) -> str:
        return format(0.0, form) if form else ""


class _Config(dict[str, Any]):
    """`wandb.config`: what was handed to `init`, by name."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, *args: Any, **named: Any) -> None:  # type: ignore[override]
        named.pop("allow_val_change", None)
        super().update(
            *(vars(item) if hasattr(item, "__dict__") and not isinstance(item, dict) else item for item in args), **named
        )


class _Module(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        if name == "wandb":
            self.config, self.run = _Config(), None

            def init(*_: Any, config: Any = None, **__: Any) -> Silent:
                self.config.update(config or {})
                run = Silent("wandb.run")
                run.__dict__["config"] = self.config
                return run

            self.init = init

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Silent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        library, _, part = fullname.partition(".")
        known = library in SILENT or library == "apex"
        if part:  # a part of an installed library that is not there is the library's business
            known = known and isinstance(sys.modules.get(library), _Module)
        known |= fullname == "torch.utils.tensorboard"
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        library = spec.name.partition(".")[0]
        self.stage.note(
            "libraries", f"{library} is not installed; " + ("torch stood in" if library == "apex" else "a silent stub stood in")
        )
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "apex":
            vars(module).update(amp=_Amp("apex.amp"), parallel=_Parallel("apex.parallel"))
        elif module.__name__ in ("apex.amp", "apex.parallel"):
            made: Any = _Amp("apex.amp") if module.__name__ == "apex.amp" else _Parallel("apex.parallel")
            sys.modules[module.__name__] = made


class _Amp(Silent):
    def initialize(self, models: Any, optimizers: Any = None, *_: Any, **__: Any) -> Any:
        return models if optimizers is None else (models, optimizers)

    @contextlib.contextmanager
    def scale_loss(self, loss: Any, *_: Any, **__: Any) -> Iterator[Any]:
        yield loss

    def master_params(self, optimizer: Any) -> Iterator[Any]:
        return (value for group in optimizer.param_groups for value in group["params"])

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class _Parallel(Silent):
    @property
    def DistributedDataParallel(self) -> Any:  # noqa: N802 - apex's name
        from torch.nn import DataParallel

        return lambda module, *_, **__: DataParallel(module)

    def convert_syncbn_model(self, model: Any, *_: Any, **__: Any) -> Any:
        return model
