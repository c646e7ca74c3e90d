"""Modules that stand for libraries that are not installed, where the import system asks for them."""

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

from ....module_alias import Alias
from ....stub_modules import exception, needed_of_all
from ...places import imported_by_library
from ...silent import Config, Silent
from ...stage import Stage
from ..packages import folders_of
from . import substitutes
from .library_names import NAMES, SILENT

TENSORBOARD = "torch.utils.tensorboard"


class StandInModule(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        if name == "wandb":
            self.config, self.run = Config(), None

            def init(*_: Any, config: Any = None, **__: Any) -> Silent:
                self.config.update(config or {})
                run = Silent("wandb.run")
                folder = os.path.join(os.getcwd(), "wandb")
                os.makedirs(folder, exist_ok=True)
                run.__dict__.update(config=self.config, dir=folder, id="run", name="run", url="")
                self.run = run
                return run

            self.init = init

    def __getattr__(self, name: str) -> Any:
        if name == "__all__" and (needed := needed_of_all()) is not None:
            return needed
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        return exception(full) or Silent(full)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        library, _, part = fullname.partition(".")
        used = self.stage.learned.get("used", ())
        known = library in SILENT or library == "apex" or library in used or library in substitutes.LIBRARIES
        if part:  # a part of an installed library that is not there is the library's business
            known = known and isinstance(sys.modules.get(library), StandInModule)
        known = known and not (library == "apex" and imported_by_library())  # Transformers would take the stub for apex
        known |= any(f"{fullname}.".startswith(f"{name}.") for name in used)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        library = "tensorboard" if _of_tensorboard(spec.name) else spec.name.partition(".")[0]
        stood = "torch stood in" if library == "apex" else "a silent stub stood in"
        stood = "what it does stood in" if library in substitutes.LIBRARIES else stood
        used = self.stage.learned.get("used", ())
        library = next((name for name in used if f"{spec.name}.".startswith(f"{name}.")), library)
        if library in used:
            stood = "what the script takes from it does nothing here and is zero as a number"
        if library in used or not imported_by_library():  # what a library looks for by itself is none of the script's
            self.stage.note(
                "libraries", f"{library} is not {'installed' if '.' not in library else 'in the installed library'}; {stood}"
            )
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ in substitutes.LIBRARIES:
            vars(module).update(substitutes.contents(module.__name__, self.stage.root))
        elif module.__name__ == "apex":
            vars(module).update(amp=_Amp("apex.amp"), parallel=_Parallel("apex.parallel"))
        elif module.__name__ in ("apex.amp", "apex.parallel"):
            made: Any = _Amp("apex.amp") if module.__name__ == "apex.amp" else _Parallel("apex.parallel")
            sys.modules[module.__name__] = made
        elif module.__name__ == "apex.parallel.LARC":
            vars(module).update(LARC=_larc)


def _of_tensorboard(name: str) -> bool:
    return f"{name}.".startswith(f"{TENSORBOARD}.")


class FirstFinder(importlib.abc.MetaPathFinder):
    """Asked first, for parts of installed libraries that are there and cannot be imported here: torch's of tensorboard, where
    that is not installed."""

    def __init__(self, others: Finder, parts: Sequence[str]) -> None:
        self.others, self.parts = others, tuple(f"{part}." for part in parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = f"{fullname}.".startswith(self.parts)
        return importlib.machinery.ModuleSpec(fullname, self.others, is_package=True) if own else None


class OtherName(importlib.abc.MetaPathFinder):
    """Asked first: Lightning under the name by which it is not installed, where it is under the other."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        new, old = _is_installed("lightning"), _is_installed("pytorch_lightning")
        names = [(name, other) if old else (other, name) for name, other in NAMES] if new != old else []
        names += [("lightning", "pytorch_lightning")] if old and not new else []  # it has the names of lightning.pytorch, too
        self.names = [pair for pair in names if not folders_of(stage.root, pair[0].partition(".")[0])]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for name, other in self.names:
            if f"{fullname}.".startswith(f"{name}."):
                real = other + fullname[len(name) :]
                if not _is_installed(real):
                    return None
                self.stage.note("libraries", f"{name} is not installed; {other}, which is the same, stood in")
                return importlib.machinery.ModuleSpec(fullname, Alias(real))
        return None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it would be a part of
        return False


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


def _larc(optimizer: Any, *_: Any, **__: Any) -> Any:
    """The optimizer itself, without rates for each layer."""
    return optimizer


class _Parallel(Silent):
    __path__, __spec__ = (), None  # of its own modules one is imported

    @property
    def LARC(self) -> Any:  # noqa: N802 - apex's name
        return _larc

    @LARC.setter
    def LARC(self, module: types.ModuleType) -> None:  # noqa: N802
        """Not the module of its name, as importing that would have it."""

    @property
    def DistributedDataParallel(self) -> Any:  # noqa: N802 - apex's name
        from torch.nn import DataParallel

        return lambda module, *_, **__: DataParallel(module)

    def convert_syncbn_model(self, model: Any, *_: Any, **__: Any) -> Any:
        return model
