"""What a packaged model can be exported to: one format, one file, found by its file name.

Each module here has one module-level `FORMAT`. Importing it must be cheap: libraries are imported when a method needs them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import FP32, Precision

if TYPE_CHECKING:
    from ..base.session import Session
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """Writes a model in a form that another program opens. `suffix` is that of its one file; empty where it is a folder.

    `repository` says that the folder holds one folder for each model, and that others may lie there. `libraries` are what it
    takes to write and to open it, by the names that they are imported by.
    """

    name: str
    suffix: str = ""
    repository: bool = False
    libraries: tuple[str, ...] = ()
    precisions: tuple[Precision, ...] = (FP32,)

    def check(self, precision: Precision) -> None:
        """Raises BackendError unless it can be written here, in that precision."""
        if precision.whole not in self.precisions:
            able = ", ".join(map(str, self.precisions))
            raise BackendError(f"{self.name} is not written in {precision}; there are {able}")
        if missing := [name for name in self.libraries if importlib.util.find_spec(name) is None]:
            raise BackendError(f"{self.name} needs {missing[0]}: pip install {missing[0]}")

    @abstractmethod
    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        """Write the file `path`, or into the empty folder. Raises BackendError where the model cannot be brought into the
        format."""

    @abstractmethod
    def open(self, path: Path, package: Packaged) -> Session:
        """What was written, opened by the format's own runtime. Raises BackendError."""

    def remarks(self, package: Packaged, precision: Precision) -> list[str]:
        """What the format cannot hold of this model, a sentence each."""
        if package.artifact.preprocessing is None:
            return []
        return ["the preprocessing is described in the metadata; whoever runs the model does it"]


@functools.cache
def discover() -> dict[str, Format]:
    """Every format in this folder by name."""
    modules = [importlib.import_module(f".{item.name}", __name__) for item in pkgutil.iter_modules(__path__) if not item.ispkg]
    return dict(sorted((module.FORMAT.name, module.FORMAT) for module in modules))


def get(name: str) -> Format:
    """The format of that name. Raises BackendError naming those that exist."""
    if name not in discover():
        raise BackendError(f"there is no format {name!r}; the formats are {', '.join(discover())}")
    return discover()[name]
