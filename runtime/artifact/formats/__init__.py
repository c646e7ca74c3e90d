"""Graph files that no package of Headrace's holds: one file per format, and what they have in common. Torch-free.

A graph file says itself what its tensors are called, what they hold and how large they are, where its format can say that.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ArtifactError

if TYPE_CHECKING:
    from ...base.session import Session


@dataclass(frozen=True, kw_only=True)
class GraphTensor:
    """An input or output of a graph. `datatype` is the protocol's name ("FP32", "BYTES"); `shape` is the whole one, batch
    included, with -1 for what varies, and None where the graph does not say how many dimensions there are."""

    name: str
    datatype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class OpenedGraph:
    """An open graph. `session` takes arrays in the order of `inputs` and gives them in the order of `outputs`. With `described`
    False the tensors are what a config declared, since the format says nothing of them."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    session: Session
    described: bool = True


Declared = tuple[tuple[GraphTensor, ...], tuple[GraphTensor, ...]]
"""The inputs and outputs that a config names."""


class Format(ABC):
    """A format of graph files. `backend` is Triton's name for what runs it, `platform` the older name for the same, `file` what
    the graph is called unless a config says otherwise. `runs_code` says that opening it runs code that it holds."""

    backend: str
    platform: str
    file: str
    runs_code: bool = False

    @abstractmethod
    def missing(self) -> str | None:
        """None when its library is installed, else one plain sentence with the line that brings it."""

    @abstractmethod
    def open(self, path: Path, declared: Declared, *, threads: int | None, parameters: Mapping[str, str]) -> OpenedGraph:
        """Open a graph on the CPU. `parameters` are the config's. Raises BackendError naming what cannot be read or run."""

    def beside(self, path: Path) -> list[Path]:
        """The other files that are opened with this one."""
        return []


@functools.cache
def formats() -> Mapping[str, Format]:
    """Every format in this folder by its backend's name."""
    modules = [importlib.import_module(f".{item.name}", __name__) for item in pkgutil.iter_modules(__path__)]
    return {module.FORMAT.backend: module.FORMAT for module in sorted(modules, key=lambda module: module.__name__)}


def format_named(backend: str) -> Format:
    """The format of a backend or platform by Triton's name. Raises ArtifactError, with the remedy, for one that is not read."""
    for known in formats().values():
        if backend in (known.backend, known.platform):
            return known
    listed = ", ".join(f"{known.backend} ({known.file})" for known in formats().values())
    raise ArtifactError(
        f"backend '{backend[:100]}' is not served here, which serves {listed} and ensembles of these; "
        "export the model to ONNX, or serve it with NVIDIA Triton"
    )
