"""What all attempts at a script need is done once, before the first of them: its sources are read, its libraries imported.

An attempt is a fork of the process that did it, and would else do it again.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ...proving.rehearsal_protocol import Rehearsal
from ...reading.source import read_source
from . import hints
from .edges import libraries, network
from .imports import loaded_under
from .places import is_installed, is_users
from .settings.environment import holding
from .stage import Stage, memory_of

_SLOW = (
    "cv2",
    "lightning",
    "lightning.pytorch",
    "matplotlib",
    "matplotlib.pyplot",
    "pandas",
    "pytorch_lightning",
    "scipy",
    "seaborn",
    "skimage",
    "sklearn",
    "sklearn.metrics",
    "timm",
    "torchmetrics",
    "torchvision",
)
"""Libraries whose import takes seconds, and depends on nothing but the environment that a script or a stand-in sets before."""
_IMPORTED = "imported"
"""Learned: those of them that the script imports."""
_OPTIMIZERS, _OF_OPTIMIZERS = "torch.optim", "torch._dynamo"
"""What torch imports where the first optimizer is made takes seconds, too."""


def prepare(request: Rehearsal) -> None:
    """Read the sources and import the slow libraries that the script's own modules import at once, or that an earlier attempt
    did."""
    root = os.path.realpath(request.root)
    hints.class_count(root, request.script)
    hints.image_ending(root, request.script)
    shadowed = _own_names(root) & {name.partition(".")[0] for name in _SLOW}
    for name in loaded_under(shadowed):
        del sys.modules[name]  # which a server of many requests has loaded
    memory = memory_of(request)
    known = json.loads(memory.read_text(encoding="utf-8")).get(_IMPORTED, ()) if memory.exists() else ()
    stated = stated_libraries(root, hints.path_of(root, request.script))
    with holding({**libraries.ENVIRONMENT, **network.environment(request)}):
        for name in (*_SLOW, _OF_OPTIMIZERS):
            if name in known or any(item == name or item.startswith(f"{name}.") for item in stated):
                with contextlib.suppress(Exception):  # one that breaks here breaks in the script, where it is told
                    importlib.import_module(name)


def remember_imports(stage: Stage) -> None:
    """For the next attempts, and for later rehearsals of the script, which are to be like this one."""
    found = [name for name in _SLOW if is_installed(str(getattr(sys.modules.get(name), "__file__", None) or ""))]
    stage.learn(_IMPORTED, found)


@functools.cache
def stated_libraries(root: str, script: str) -> frozenset[str]:
    """The modules that a script, and the repository's own that it so imports, import where they begin; none that is called like
    anything in the repository, which may put that on its import path."""
    own = _own_names(root)
    folders = (os.path.dirname(script), root)
    found: set[str] = set()
    waiting, done = [script], set[str]()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        for name in _imported(path, root):
            found.add(name)
            parts = name.lstrip(".").split(".")
            above = len(name) - len(name.lstrip("."))
            beside = [os.path.normpath(os.path.join(path, *[".."] * above))] if above else folders
            for level in range(1, len(parts) + 1):
                places = (os.path.join(folder, *parts[:level]) for folder in beside)
                files = (file for place in places for file in (f"{place}.py", os.path.join(place, "__init__.py")))
                waiting += [file for file in files if os.path.isfile(file)]
    if any(name.startswith(_OPTIMIZERS) for name in found):
        found.add(_OF_OPTIMIZERS)
    return frozenset(name for name in found if name.split(".")[0] not in own)


@functools.cache
def _own_names(root: str) -> frozenset[str]:
    paths = (path.relative_to(root) for path in Path(root).rglob("*.py") if is_users(str(path), root))
    return frozenset(part for path in paths for part in (*path.parts[:-1], path.stem))


def _imported(path: str, root: str) -> Iterator[str]:
    """The names that a module imports outside of functions, with their dots: a module's, or those of what is in it."""
    tree = read_source(Path(root), os.path.relpath(path, root)).tree
    waiting: list[ast.AST] = [tree] if tree is not None else []
    if any(isinstance(node, ast.Attribute) and node.attr == "optim" for node in (ast.walk(tree) if tree is not None else ())):
        yield _OPTIMIZERS
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = "." * node.level
            yield f"{above}{node.module or ''}"
            yield from (f"{above}{f'{node.module}.' if node.module else ''}{item.name}" for item in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            waiting += ast.iter_child_nodes(node)
