"""ONNX graphs, run by ONNX Runtime."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import BackendError
from ....scratch import ScratchFolder
from ... import backends
from ...backends.shared.onnx_session import OnnxSession, open_onnx
from ...base.session import Target
from . import Declared, Format, GraphTensor, OpenedGraph

if TYPE_CHECKING:
    import numpy as np

_DATATYPES = {
    "float": "FP32", "double": "FP64", "float16": "FP16", "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16",
    "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "string": "BYTES",
}  # fmt: skip


class Onnx(Format):
    """`model.onnx`: a file or, with data beside it, a folder that holds a `model.onnx`."""

    backend, platform, file = "onnxruntime", "onnxruntime_onnx", "model.onnx"

    def missing(self) -> str | None:
        return backends.get("onnxruntime").missing()

    def open(self, path: Path, declared: Declared, *, threads: int | None, parameters: Mapping[str, str]) -> OpenedGraph:
        given = parameters.get("intra_op_thread_count", "")
        own = int(given) if given.isdecimal() and 0 < int(given) < 1024 else None
        with _unshared(path) as graph:
            # The library refuses tensors' data outside the graph's folder itself, links included.
            session = open_onnx(graph, Target(threads=threads or own), ["CPUExecutionProvider"])
        assert isinstance(session, OnnxSession), "of no fixed batch"
        inputs, outputs = (tuple(map(_tensor, side)) for side in session.tensors)
        if any(tensor.datatype == "BYTES" for tensor in (*inputs, *outputs)):
            return OpenedGraph(inputs=inputs, outputs=outputs, session=_Strings(session))
        return OpenedGraph(inputs=inputs, outputs=outputs, session=session)


@contextlib.contextmanager
def _unshared(path: Path) -> Iterator[Path]:
    """The graph or, where data may lie beside it, a copy of its folder while it is opened: the library maps such data, and the
    process would end (SIGBUS) if somebody cut the file short later."""
    if [entry.name for entry in path.parent.iterdir()] == [path.name]:
        yield path
        return
    with ScratchFolder() as own:
        yield Path(shutil.copytree(path.parent, own / "graph")) / path.name


class _Strings:
    """Takes and gives strings as bytes, which the library has as text."""

    def __init__(self, inner: OnnxSession) -> None:
        self._inner = inner

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        texts = [_each(value, bytes.decode) if value.dtype == object else value for value in inputs]
        return [_each(value, str.encode) if value.dtype == object else value for value in self._inner.run(texts)]

    def twin(self) -> _Strings:
        return _Strings(self._inner.twin())

    def close(self) -> None:
        self._inner.close()


def _each(array: np.ndarray[Any, Any], change: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    changed: np.ndarray[Any, Any] = np.empty(array.size, dtype=object)
    changed[:] = [change(value) for value in array.ravel()]
    return changed.reshape(array.shape)


def _tensor(item: tuple[str, str, Sequence[Any]]) -> GraphTensor:
    name, kind, shape = item
    datatype = _DATATYPES.get(kind.removeprefix("tensor(").removesuffix(")"))
    if datatype is None:
        raise BackendError(f"tensor {name!r} is a {kind}, for which the protocol has no name; export the model without it")
    # The library gives no dimensions for a scalar, and for a tensor of which nothing is known.
    return GraphTensor(
        name=name, datatype=datatype, shape=tuple(size if isinstance(size, int) else -1 for size in shape) or None
    )


FORMAT = Onnx()
