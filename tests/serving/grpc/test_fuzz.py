"""Damaged and invented gRPC messages: each gets an answer or an error that is the client's, and nothing is left behind."""

import random
import urllib.request

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

SERVICE = "/inference.GRPCInferenceService/"
CASES = 300
FINE = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
KINDS = ("bool_param", "int64_param", "string_param", "double_param", "uint64_param")


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc) as opened:
        yield opened
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        text = response.read().decode()
    assert 'nv_inference_pending_request_count{model="tiny",version="1"} 0.0' in text


def _call(channel, method: str, data: bytes) -> str:
    code = channel.unary_unary(SERVICE + method).future(data, timeout=20).code().name
    assert code in FINE, (method, data)
    return code


def _good() -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="tiny", model_version="1", id="7")
    message.inputs.add(name="images", datatype="FP32", shape=[1, 3, 16, 16])
    message.outputs.add(name="scores").parameters["classification"].int64_param = 2
    message.parameters["priority"].int64_param = 1
    message.raw_input_contents.append(np.zeros((1, 3, 16, 16), np.float32).tobytes())
    return message


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_messages(channel, seed):
    source = random.Random(seed)
    good = _good().SerializeToString()
    head = len(good) - 3 * 16 * 16 * 4  # most bytes are pixels, where damage says little
    seen = set()
    for _ in range(CASES):
        data = bytearray(good)
        for _ in range(source.randint(1, 4)):
            kind, at = source.randrange(4), source.randrange(head)
            if kind == 0:
                data[at] = source.randrange(256)
            elif kind == 1:
                data[at:at] = source.randbytes(source.randint(1, 8))
            elif kind == 2:
                del data[at : at + source.randint(1, 20)]
            else:
                data[at : at + 1] = b"\xff" * source.randint(1, 10)
        seen.add(_call(channel, "ModelInfer", bytes(data)))
    assert "INVALID_ARGUMENT" in seen


@pytest.mark.parametrize("method", [method.name for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods])
def test_any_bytes_to_any_method(channel, method):
    if method == "ModelStreamInfer":
        stream = channel.stream_stream(SERVICE + method)
        source = random.Random(1)
        sent = [source.randbytes(source.randint(0, 60)) for _ in range(200)]
        answers = [pb.ModelStreamInferResponse.FromString(answer) for answer in stream(iter(sent), timeout=20)]
        assert len(answers) == len(sent)
        assert all(answer.error_message for answer in answers)
        return
    source = random.Random(method)
    for _ in range(50):
        _call(channel, method, source.randbytes(source.randint(0, 60)))


NAMES = st.sampled_from(["images", "IMAGE", "scores", "tiny", "tiny_classify", "fragile", "damaged", "", "..", "é\0"])
TEXT = NAMES | st.text(max_size=8)
NUMBERS = st.sampled_from([0, 1, -1, 2, 16, 2**31, 2**62, -(2**63), 2**63 - 1])


@st.composite
def parameters(draw, target):
    for name in draw(
        st.lists(st.sampled_from(["priority", "timeout", "classification", "sequence_id", "shared_memory_region"]), max_size=2)
    ):
        kind = draw(st.sampled_from(KINDS))
        value = {
            "bool_param": st.booleans(),
            "int64_param": NUMBERS,
            "string_param": TEXT,
            "double_param": st.floats(),
            "uint64_param": NUMBERS.map(abs),
        }[kind]
        setattr(target[name], kind, draw(value))


@st.composite
def messages(draw):
    message = pb.ModelInferRequest(model_name=draw(NAMES), model_version=draw(st.sampled_from(["", "1", "9", "x"])))
    draw(parameters(message.parameters))
    for _ in range(draw(st.integers(0, 2))):
        datatype = draw(st.sampled_from(["FP32", "BYTES", "BOOL", "FP16", "UINT8", "INT64", "BF16", ""]))
        shape = draw(st.sampled_from([[1, 3, 16, 16], [1, 1], [0], [], [-1], [2**40, 2**40], [1] * 20]))
        tensor = message.inputs.add(name=draw(TEXT), datatype=datatype, shape=shape)
        draw(parameters(tensor.parameters))
        if draw(st.booleans()):
            tensor.contents.fp32_contents.extend(draw(st.lists(st.floats(width=32), max_size=3)))
        if draw(st.booleans()):
            tensor.contents.bytes_contents.append(draw(st.binary(max_size=5)))
    for _ in range(draw(st.integers(0, 2))):
        draw(parameters(message.outputs.add(name=draw(TEXT)).parameters))
    size = draw(st.sampled_from([0, 1, 4, 3072]))
    message.raw_input_contents.extend([bytes(size)] * draw(st.integers(0, 2)))
    return message


@pytest.mark.parametrize("examples", [80, pytest.param(300, marks=pytest.mark.slow)])
def test_invented_messages(channel, examples):
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(messages())
    def ask(message):
        _call(channel, "ModelInfer", message.SerializeToString())

    ask()
