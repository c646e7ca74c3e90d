"""The protocol's HTTP bodies: what was encoded is read back, and no bytes whatsoever raise anything but InputError."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InputError, RequestError
from headrace.serving.protocol.codec import binary_to_tensor, decode_request, encode_response, tensor_to_binary
from headrace.serving.protocol.json_limits import parse_json
from headrace.serving.protocol.messages import (
    DATATYPES,
    InferenceRequest,
    InferenceResponse,
    RequestedOutput,
    SharedInput,
    SharedPlace,
    Tensor,
    bytes_array,
)

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@st.composite
def tensors(draw):
    datatype, shape = draw(st.sampled_from(sorted(DATATYPES))), draw(SHAPES)
    count = int(np.prod(shape))
    if datatype == "BYTES":
        return Tensor("x", datatype, bytes_array(draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count)), shape))
    dtype = np.dtype(DATATYPES[datatype])
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    data = random.integers(0, 2, shape) if datatype == "BOOL" else random.integers(0, 120, shape)
    return Tensor("x", datatype, data.astype(dtype))


@given(tensors())
def test_binary_round_trip(tensor):
    again = binary_to_tensor("x", tensor.datatype, tensor.shape, tensor_to_binary(tensor))
    assert again.shape == tensor.shape
    assert again.data.dtype == tensor.data.dtype
    assert (again.data == tensor.data).all()


@given(tensors(), st.booleans())
def test_a_response_read_as_a_request_gives_the_tensor_back(tensor, binary):
    asked = InferenceRequest(inputs=[], outputs=[RequestedOutput("x", binary=binary)])
    response = InferenceResponse(model="m", version="1", outputs=[tensor], id="7")
    unsendable = not binary and (
        tensor.datatype == "FP16" or (tensor.datatype == "BYTES" and not all(_is_text(value) for value in tensor.data.ravel()))
    )
    if unsendable:
        with pytest.raises(InputError, match="binary"):
            encode_response(response, asked)
        return
    parts, length = encode_response(response, asked)
    message = json.loads(parts[0])
    assert message["id"] == "7"
    assert (length is None) == (not binary)
    header = json.dumps({"inputs": message["outputs"]}).encode()
    again = decode_request(header + b"".join(parts[1:]), None if length is None else len(header)).inputs[0]
    assert again.shape == tensor.shape
    assert (again.data == tensor.data).all()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "data", "shape", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y", ""]) | VALUES,
        "datatype": st.sampled_from(sorted(DATATYPES)) | VALUES,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | VALUES,
        "data": st.lists(st.integers(-1, 300) | st.floats() | st.booleans() | st.text(max_size=3), max_size=9) | VALUES,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 40) | VALUES}) | VALUES,
    },
)
REQUEST = st.fixed_dictionaries(
    {},
    optional={
        "id": VALUES,
        "inputs": st.lists(ENTRY, max_size=3) | VALUES,
        "outputs": st.lists(ENTRY, max_size=2) | VALUES,
        "parameters": VALUES,
    },
)


@pytest.mark.parametrize("examples", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_almost_requests_are_read_or_refused(examples):
    settings(max_examples=examples)(_is_read_or_refused)()


@given(REQUEST, st.binary(max_size=40), st.integers(-3, 3) | st.none())
def _is_read_or_refused(request, tail, skew):
    text = json.dumps(request).encode()
    length = None if skew is None else max(0, len(text) + skew)
    try:
        decoded = decode_request(text + tail, length)
    except RequestError:
        return
    for tensor in decoded.inputs:
        assert tensor.data.dtype == np.dtype(DATATYPES[tensor.datatype])


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 250) | st.none())
def test_any_bytes_are_read_or_refused(body, length):
    with contextlib.suppress(RequestError):
        decode_request(body, length)


def test_strictness():
    def of(datatype, data, shape=(2,)):
        entry = {"name": "x", "datatype": datatype, "shape": list(shape), "data": data}
        return decode_request(json.dumps({"inputs": [entry]}).encode(), None).inputs[0].data

    assert of("FP32", [1, 2.5]).tolist() == [1.0, 2.5]
    assert of("FP32", [[1], [2]], (2, 1)).shape == (2, 1)
    assert of("BOOL", [True, False]).tolist() == [True, False]
    assert of("BYTES", ["ä", ""]).tolist() == ["ä".encode(), b""]
    assert of("UINT64", [2**64 - 1, 0]).tolist() == [2**64 - 1, 0]
    for datatype, data in (
        ("FP32", ["1", "2"]),
        ("FP32", [True, False]),
        ("INT8", [1.0, 2.0]),
        ("INT8", [128, 0]),
        ("UINT8", [-1, 0]),
        ("BOOL", [0, 1]),
        ("BYTES", [1, 2]),
        ("FP16", [1.0, 2.0]),
        ("INT64", [2**63, 0]),
    ):
        with pytest.raises(InputError, match=datatype):
            of(datatype, data)
    with pytest.raises(InputError, match="input 'x' already exists in request"):
        decode_request(json.dumps({"inputs": [{"name": "x"}, {"name": "x"}]}).encode(), None)


def test_shared_memory():
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 4}
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": place}
    asked = {"inputs": [entry], "outputs": [{"name": "y", "parameters": place}]}
    request = decode_request(json.dumps(asked).encode(), None)
    assert request.inputs == []
    assert request.shared_inputs == [SharedInput("x", "FP32", [2], SharedPlace("r", 4, 8))]
    assert request.outputs == [RequestedOutput("y", place=SharedPlace("r", 4, 8))]
    tensor = Tensor("y", "FP32", np.zeros(2, np.float32), SharedPlace("r", 4, 8))
    parts, length = encode_response(InferenceResponse(model="m", version="1", outputs=[tensor]), request)
    assert length is None
    assert json.loads(parts[0])["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2], "parameters": place}]
    for change in (
        {"data": [1.0, 2.0]},
        {"parameters": {**place, "binary_data_size": 8}},
        {"parameters": {**place, "shared_memory_offset": -1}},
        {"parameters": {**place, "shared_memory_byte_size": True}},
        {"parameters": {**place, "shared_memory_region": 7}},
        {"parameters": {"shared_memory_region": "r"}},
    ):
        with pytest.raises(InputError, match="shared_memory"):
            decode_request(json.dumps({"inputs": [entry | change]}).encode(), None)


def test_json_depth_is_bounded_and_brackets_in_strings_do_not_count():
    assert parse_json(json.dumps({"a": "[" * 500}).encode()) == {"a": "[" * 500}
    assert parse_json(b'["' + b'\\"[' * 100 + b'"]')
    nested = json.loads("[" * 30 + "]" * 30)
    assert parse_json(json.dumps(nested).encode(), max_depth=32) == nested
    assert parse_json(json.dumps([[1]] * 1000).encode(), max_depth=32)
    with pytest.raises(InputError, match="nesting depth exceeds"):
        parse_json(b"[" * 33 + b"]" * 33, max_depth=32)


def test_hostile_json_takes_linear_time():
    import time

    begin = time.thread_time()  # the processor's time, which other work on the machine does not lengthen
    for body in (b"[" * 2_000_000, b'"\\"' * 500_000 + b"[" * 100, b'{"a":' * 300_000, b'"' * 1_000_001 + b"{" * 99):
        with pytest.raises(InputError):
            parse_json(body)
    assert time.thread_time() - begin < 10
