"""OpenVINO's own graphs: `model.xml` with its weights in `model.bin` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import BackendError
from ... import backends
from ...base.session import Target
from . import Declared, Format, GraphTensor, OpenedGraph

_DATATYPES = {
    "f32": "FP32", "f64": "FP64", "f16": "FP16", "boolean": "BOOL", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32",
    "u64": "UINT64", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
}  # fmt: skip


class OpenVino(Format):
    """Strings are not among its tensors."""

    backend, platform, file = "openvino", "openvino", "model.xml"

    def missing(self) -> str | None:
        return backends.get("openvino").missing()

    def beside(self, path: Path) -> list[Path]:
        return [path.with_suffix(".bin")]

    def open(self, path: Path, declared: Declared, *, threads: int | None, parameters: Mapping[str, str]) -> OpenedGraph:
        session: Any = backends.get("openvino").open(path.parent, Target(threads=threads), [path.name])
        inputs, outputs = (tuple(map(_tensor, side)) for side in session.ports)
        return OpenedGraph(inputs=inputs, outputs=outputs, session=session)


def _tensor(port: Any) -> GraphTensor:
    if not port.names:
        raise BackendError("a tensor of the graph has no name by which a request could call it; convert the model again")
    name, kind, shape = port.any_name, port.element_type.get_type_name(), port.partial_shape
    if kind not in _DATATYPES:
        raise BackendError(f"tensor {name!r} holds {kind}, for which the protocol has no name; convert the model again")
    sizes = tuple(size.get_length() if size.is_static else -1 for size in shape) if shape.rank.is_static else None
    return GraphTensor(name=name, datatype=_DATATYPES[kind], shape=sizes)


FORMAT = OpenVino()
