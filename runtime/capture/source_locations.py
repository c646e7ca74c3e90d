"""The user's own file and line: of an exception, of a running call, of a node in a graph, of a module's forward."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

Place = tuple[str, int]
NOWHERE: Place = ("", 0)

_OURS = (str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "migrate"))
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(np.__file__).parent), *_OURS, "<")
_STANDARD = sysconfig.get_path("stdlib")


@functools.lru_cache(1024)
def is_users(path: str) -> bool:
    """Whether a file is neither torch's, numpy's, Python's nor Headrace's; model libraries count as the user's."""
    standard = path.startswith(_STANDARD) and "-packages" not in path[len(_STANDARD) :]
    return bool(path) and not standard and not path.startswith(_LIBRARIES)


def innermost(frames: Iterable[Place]) -> Place:
    """The last of the frames, given from the outermost to the innermost, that is the user's own; ("", 0) without any."""
    return next((frame for frame in reversed(list(frames)) if is_users(frame[0])), NOWHERE)


def of_trace(trace: TracebackType | None) -> Place:
    """Where an exception left the user's code."""
    return innermost((frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace))


def of_call() -> Place:
    """The line of the user's that is running."""
    frame = sys._getframe(1)
    while not is_users(frame.f_code.co_filename):
        if frame.f_back is None:
            return NOWHERE
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def of_node(node: torch.fx.Node | None) -> Place:
    """The line that a node of an exported program comes from."""
    trace = (node.meta.get("stack_trace") if node is not None else None) or ""
    parts = [text.strip().split('"') for text in trace.splitlines() if text.strip().startswith('File "')]
    return innermost((item[1], int(item[2].split("line ")[1].split(",")[0])) for item in parts)


def of_forward(module: torch.nn.Module) -> Place:
    """Where a module's forward begins; ("", 0) when it is torch's own or has no file."""
    function = getattr(module, "source_of_forward", None) or type(module).forward
    try:
        path, line = inspect.getsourcefile(function) or "", inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return NOWHERE
    return (path, line) if is_users(path) else NOWHERE
