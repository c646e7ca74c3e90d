"""Classes that a model server calls, such as TorchServe's handlers: a script that only defines one has it called as there."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from ...server_libraries import Finder
from .. import hosts
from ..stage import Stage
from .packages import folders_of

_STANDING = str(Path(__file__).parents[2] / "server_libraries")


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    def may_stand_in(library: str) -> bool:
        if folders_of(stage.root, library):  # a module of the repository's, which another edge finds
            return False
        stage.note("libraries", f"{library} is not installed; what its classes do stood in")
        return True

    finder = Finder(may_stand_in)
    sys.meta_path.append(finder)
    for host in all_hosts().values():
        if hasattr(host, "stand_in"):
            host.stand_in(stage)
    stage.at_end(lambda: _call(stage))
    yield
    sys.meta_path.remove(finder)
    for name in list(finder.found):  # a thread of the script's may still import
        if str(getattr(sys.modules.get(name), "__file__", "")).startswith(_STANDING):
            del sys.modules[name]


@functools.cache
def all_hosts() -> dict[str, types.ModuleType]:
    """The servers by name: every module of the folder `hosts`."""
    names = sorted(item.name for item in pkgutil.iter_modules(hosts.__path__))
    return {name: importlib.import_module(f"{hosts.__name__}.{name}") for name in names}


def _call(stage: Stage) -> None:
    for host in all_hosts().values():
        found = [] if stage.served else host.hosted(stage)
        for thing in found:
            host.call(stage, thing)
        stage.served = stage.served or bool(found)
