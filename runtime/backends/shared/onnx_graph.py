"""The graph of an ONNX file, to be read or changed as a message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import loading

if TYPE_CHECKING:
    from onnx import ModelProto


def read_graph(path: Path) -> ModelProto:
    """The file's graph with all of its weights. Raises BackendError, also where a weight lies elsewhere than beside it."""
    import onnx

    with loading(path, f"onnx {onnx.__version__}"):
        return onnx.load(str(path))
