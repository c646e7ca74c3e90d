"""One request over HTTP (JSON or binary) or gRPC to any server of the protocol, and its answer in one form."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..protocol.codec import binary_to_tensor
from ..protocol.messages import DATATYPES, bytes_array

_TIMEOUT = 60.0
_ID = "verify"
_INFER = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True, kw_only=True)
class Given:
    """One input. `shape` is what the request says, by default that of `array`; BYTES are an object array of bytes."""

    name: str
    datatype: str
    array: np.ndarray
    shape: tuple[int, ...] | None = None

    def message(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape or self.array.shape)}

    def raw(self) -> bytes:
        if self.datatype == "BYTES":
            return b"".join(struct.pack("<I", len(value)) + value for value in self.array.ravel())
        return self.array.tobytes()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request, tied to no transport. `outputs` are the names asked for with their parameters."""

    name: str
    model: str
    inputs: tuple[Given, ...] = ()
    outputs: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`status` is HTTP's number or gRPC's name; `error` is the message of one that is neither 200 nor OK."""

    status: str
    error: str = ""
    model: str = ""
    version: str = ""
    id: str = ""
    outputs: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.status in ("200", "OK")


Call = Callable[[str, str, bytes, Mapping[str, str]], tuple[int, Mapping[str, str], bytes]]
"""Method, path, body and headers to status, headers (names in lower case) and body."""


class Exchange(Protocol):
    """A way to put a case to a server."""

    def infer(self, case: Case) -> Answer: ...


class HttpExchange:
    """Over HTTP, with the tensors behind the JSON (`binary`) or in it. `get` and `post` are for all else.

    `call` is what sends a request, where that is not this class itself."""

    def __init__(self, address: str, *, binary: bool = True, call: Call | None = None) -> None:
        self._address, self._binary, self._call = address, binary, call or self._send

    def get(self, path: str) -> tuple[int, Any]:
        """The status and the JSON of an answer; None where the body is empty."""
        return self._json("GET", path, b"")

    def post(self, path: str, body: bytes = b"{}") -> tuple[int, Any]:
        return self._json("POST", path, body)

    def infer(self, case: Case) -> Answer:
        inputs, tail = [], b""
        for given in case.inputs:
            if self._binary:
                data = given.raw()
                inputs.append({**given.message(), "parameters": {"binary_data_size": len(data)}})
                tail += data
            else:
                values = [one.decode() if isinstance(one, bytes) else one for one in given.array.ravel().tolist()]
                inputs.append({**given.message(), "data": values})
        message: dict[str, Any] = {"id": _ID, "inputs": inputs}
        if case.parameters:
            message["parameters"] = dict(case.parameters)
        if case.outputs:
            binary = {"binary_data": True} if self._binary else {}
            message["outputs"] = [{"name": name, "parameters": {**settings, **binary}} for name, settings in case.outputs]
        text = json.dumps(message).encode()
        version = f"/versions/{case.version}" if case.version else ""
        headers = {"Inference-Header-Content-Length": str(len(text))} if self._binary else {}
        status, found, body = self._call("POST", f"/v2/models/{case.model}{version}/infer", text + tail, headers)
        if status != 200:
            return Answer(status=str(status), error=_error(body))
        length = int(found.get("inference-header-content-length", len(body)))
        answer = json.loads(body[:length] or b"{}")
        outputs, at = {}, length
        for output in answer["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                array = _array(output["datatype"], output["data"], output["shape"])
            else:
                array = _decoded(output["name"], output["datatype"], output["shape"], body[at : at + size])
                at += size
            outputs[output["name"]] = (output["datatype"], array)
        return Answer(
            status="200", model=answer["model_name"], version=answer["model_version"], id=answer.get("id", ""), outputs=outputs
        )

    def _json(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        status, _, answer = self._call(method, path, body, {})
        return status, json.loads(answer) if answer else None

    def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body or None, dict(headers))
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()


class GrpcExchange:
    """Over gRPC, tensors in `raw_input_contents`. `open` makes the channel of each call, `metadata` goes with each."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float = _TIMEOUT,
        metadata: Sequence[tuple[str, str]] = (),
        open: Callable[[str], Any] | None = None,  # noqa: A002
    ) -> None:
        self._address, self._timeout, self._metadata, self._open = address, timeout, metadata, open

    def infer(self, case: Case) -> Answer:
        import grpc

        from ...runtime.artifact.triton_messages import service as pb
        from ..grpc.codec import decode_tensor

        message = pb.ModelInferRequest(model_name=case.model, model_version=case.version, id=_ID)
        _set(message.parameters, case.parameters)
        for given in case.inputs:
            message.inputs.add(**given.message())
            message.raw_input_contents.append(given.raw())
        for name, settings in case.outputs:
            _set(message.outputs.add(name=name).parameters, settings)
        with (self._open or grpc.insecure_channel)(self._address) as channel:
            infer = channel.unary_unary(_INFER, pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
            try:
                answer = infer(message, timeout=self._timeout, metadata=self._metadata)
            except grpc.RpcError as error:
                return Answer(status=error.code().name, error=error.details() or "")
        raw = list(answer.raw_output_contents) or [None] * len(answer.outputs)
        outputs = {
            output.name: (output.datatype, decode_tensor(output, data).data)
            for output, data in zip(answer.outputs, raw, strict=True)
        }
        return Answer(status="OK", model=answer.model_name, version=answer.model_version, id=answer.id, outputs=outputs)


def exchanges(http_address: str, grpc_address: str) -> dict[str, Exchange]:
    """Every way to put a case to a server."""
    return {
        "http-json": HttpExchange(http_address, binary=False),
        "http-binary": HttpExchange(http_address),
        "grpc": GrpcExchange(grpc_address),
    }


def _error(body: bytes) -> str:
    """The message of an answer that says what was wrong; of a proxy's page its beginning."""
    try:
        answer = json.loads(body or b"{}")
    except ValueError:
        return body[:200].decode("utf-8", "replace")
    return str(answer.get("error", answer) if isinstance(answer, dict) else answer)


def _decoded(name: str, datatype: str, shape: Sequence[int], data: bytes) -> np.ndarray:
    return binary_to_tensor(name, datatype, tuple(shape), memoryview(data)).data


def _array(datatype: str, values: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    if datatype == "BYTES":
        return bytes_array([value.encode() for value in values], tuple(shape))
    return np.array(values, dtype=DATATYPES[datatype]).reshape(shape)


def _set(target: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
        setattr(target[name], kind, value)
