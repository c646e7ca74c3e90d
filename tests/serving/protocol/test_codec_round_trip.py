"""One request in its four forms (JSON, binary HTTP, gRPC raw, gRPC typed) reads as the same request, for every datatype and
value."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonclient.grpc import service_pb2 as pb

from headrace.serving.grpc.codec import decode_infer
from headrace.serving.protocol.codec import decode_request
from headrace.serving.protocol.messages import DATATYPES, RequestedOutput

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
TYPED = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@st.composite
def values(draw):
    """A datatype with an array of any of its values; BYTES are text, so that JSON can carry them."""
    datatype = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(SHAPES)
    if datatype == "BYTES":
        count = int(np.prod(shape))
        texts = draw(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=6), min_size=count, max_size=count))
        array = np.empty(count, object)
        array[:] = [text.encode() for text in texts]
        return datatype, array.reshape(shape)
    return datatype, draw(arrays.arrays(np.dtype(DATATYPES[datatype]), shape))


@st.composite
def requests(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    outputs = [
        RequestedOutput(name, draw(st.integers(0, 9)), draw(st.sampled_from([None, True, False])))
        for name in draw(st.lists(NAMES, max_size=2, unique=True))
    ]
    return {
        "id": draw(NAMES),
        "inputs": [(name, *draw(values())) for name in names],
        "outputs": outputs,
        "priority": draw(st.integers(0, 2**63 - 1)),
        "timeout": draw(st.integers(0, 2**63 - 1)),
    }


def binary(datatype: str, array: np.ndarray) -> bytes:
    """The protocol's binary form, by its words: row-major, little-endian, BYTES as u32 and data."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in array.ravel())
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()


def http_form(request, *, in_json) -> tuple[bytes, int | None]:
    """Body and Inference-Header-Content-Length, with those tensors in JSON for which `in_json` says so."""
    inputs, tail = [], []
    for name, datatype, array in request["inputs"]:
        entry = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if in_json(datatype):
            entry["data"] = [value.decode() for value in array.ravel()] if datatype == "BYTES" else array.ravel().tolist()
        else:
            tail.append(binary(datatype, array))
            entry["parameters"] = {"binary_data_size": len(tail[-1])}
        inputs.append(entry)
    outputs = [
        {
            "name": one.name,
            "parameters": {"classification": one.classification} | ({} if one.binary is None else {"binary_data": one.binary}),
        }
        for one in request["outputs"]
    ]
    message = {
        "id": request["id"],
        "inputs": inputs,
        "parameters": {"priority": request["priority"], "timeout": request["timeout"]},
    }
    text = json.dumps(message | ({"outputs": outputs} if outputs else {})).encode()
    return text + b"".join(tail), len(text) if tail else None


def grpc_form(request, *, typed: bool):
    message = pb.ModelInferRequest(id=request["id"])
    message.parameters["priority"].uint64_param = request["priority"]
    message.parameters["timeout"].int64_param = request["timeout"]
    for name, datatype, array in request["inputs"]:
        tensor = message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        if typed:
            getattr(tensor.contents, TYPED[datatype]).extend(array.ravel().tolist())
        else:
            message.raw_input_contents.append(binary(datatype, array))
    for one in request["outputs"]:
        output = message.outputs.add(name=one.name)
        output.parameters["classification"].int64_param = one.classification
        if one.binary is not None:
            output.parameters["binary_data"].bool_param = one.binary
    return pb.ModelInferRequest.FromString(message.SerializeToString())


def same(decoded, request) -> None:
    assert decoded.id == request["id"]
    assert decoded.priority == request["priority"]
    assert decoded.timeout == (request["timeout"] / 1e6 or None)
    assert (decoded.outputs or []) == request["outputs"]
    assert decoded.shared_inputs == []
    assert [(tensor.name, tensor.datatype) for tensor in decoded.inputs] == [
        (name, kind) for name, kind, _ in request["inputs"]
    ]
    for tensor, (_, _, array) in zip(decoded.inputs, request["inputs"], strict=True):
        assert tensor.data.dtype == array.dtype
        assert tensor.data.shape == array.shape
        if array.dtype == object:
            assert tensor.data.ravel().tolist() == array.ravel().tolist()
        else:
            np.testing.assert_array_equal(tensor.data, array)


@pytest.mark.parametrize("examples", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_every_form_reads_as_the_same_request(examples):
    settings(max_examples=examples)(_reads_as_the_same)()


@given(requests(), st.data())
def _reads_as_the_same(request, data):
    kinds = {datatype for _, datatype, _ in request["inputs"]}
    same(decode_request(*http_form(request, in_json=lambda _: False)), request)
    same(decode_infer(grpc_form(request, typed=False)), request)
    if "FP16" in kinds:
        return  # has no form in JSON or typed contents
    same(decode_infer(grpc_form(request, typed=True)), request)
    same(decode_request(*http_form(request, in_json=lambda _: True)), request)
    chosen = {kind for kind in kinds if data.draw(st.booleans())}
    same(decode_request(*http_form(request, in_json=lambda kind: kind in chosen)), request)
