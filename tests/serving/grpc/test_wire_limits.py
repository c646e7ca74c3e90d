"""Fields and numbers of a protobuf message are counted in its bytes as the library would find them, and bounded."""

import numpy as np
import pytest

from headrace.errors import InputError, TooLargeError
from headrace.runtime.artifact.triton_messages import service as pb
from headrace.serving.grpc.wire_limits import message_weight, without_raw
from tests.serving.attacks.bodies import field, varint

KIND = pb.ModelInferRequest.DESCRIPTOR


def request() -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="tiny", id="7", raw_input_contents=[b"x" * 5000])
    tensor = message.inputs.add(name="images", datatype="INT64", shape=[1, 300])
    tensor.contents.int64_contents.extend(np.random.default_rng(0).integers(-(2**60), 2**60, 300).tolist())
    tensor.parameters["a"].int64_param = -5
    message.outputs.add(name="scores").parameters["classification"].int64_param = 3
    message.parameters["timeout"].int64_param = 10**6
    return message


def test_an_ordinary_message_is_counted():
    data = request().SerializeToString()
    # numbers: a shape of 2, contents of 300; fields: as protobuf's text format has lines, with those of maps
    weight = message_weight(data, KIND, max_values=302)
    assert weight == 16 * 302 + 128 * 23
    with pytest.raises(TooLargeError, match="301 numbers"):
        message_weight(data, KIND, max_values=301)
    message_weight(data, KIND, max_values=302, max_parts=23)
    with pytest.raises(TooLargeError, match="22 fields"):
        message_weight(data, KIND, max_values=302, max_parts=22)


@pytest.mark.parametrize("kind", ["bool", "int", "int64", "uint", "uint64"])
def test_numbers_are_counted_wherever_they_stand(kind):
    message = pb.ModelInferRequest()
    getattr(message.inputs.add().contents, f"{kind}_contents").extend([1] * 5000)
    message.inputs.add().shape.extend([2**40] * 5000)
    message_weight(message.SerializeToString(), KIND, max_values=10_000)
    with pytest.raises(TooLargeError, match="numbers"):
        message_weight(message.SerializeToString(), KIND, max_values=9_999)


def test_floats_and_bytes_are_only_copied():
    message = pb.ModelInferRequest(raw_input_contents=[bytes(10**6)])
    message.inputs.add().contents.fp32_contents.extend([0.0] * 10_000)
    assert message_weight(message.SerializeToString(), KIND, max_values=0) < 2000


@pytest.mark.parametrize(
    "data",
    [
        field(5, b"") * 9, field(7, b"") * 9, field(5, field(5, field(8, b"") * 9)), field(5, field(4, field(1, b"") * 9)),
        field(4, field(2, varint(1 << 3) + b"\1") + field(1, b"") * 9), field(1000, b"") * 9, b"\x08\x01" * 9,
        field(5, field(5, b"\x35" + bytes(4)) + field(5, b"\x35" + bytes(4)) * 9),
    ],
)  # fmt: skip
def test_fields_are_counted_wherever_they_stand(data):
    pb.ModelInferRequest.FromString(data)
    with pytest.raises(TooLargeError, match="8 fields"):
        message_weight(data, KIND, max_values=100, max_parts=8)


@pytest.mark.parametrize(
    "data",
    [
        b"\x2a",
        b"\x2a\x05abc",
        b"\xff" * 11,
        b"\x80",
        b"\x0b\x0c",
        b"\x09\x00",
        b"\x0d\x00",
        field(5, b"\x2a\x09abc"),
        b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_what_is_no_message(data):
    with pytest.raises(InputError):
        message_weight(data, KIND, max_values=100)


def test_whatever_the_library_reads_is_read():
    """Bytes by chance: what the library takes for a message is one here too, but for groups."""
    draw = np.random.default_rng(4)
    good, taken = request().SerializeToString(), 0
    for _ in range(3000):
        data = bytearray(good)
        for at in draw.integers(0, len(data), int(draw.integers(1, 4))):
            data[at] = int(draw.integers(0, 256))
        try:
            pb.ModelInferRequest.FromString(bytes(data))
        except Exception:  # noqa: BLE001 - it is no message
            continue
        taken += 1
        try:
            message_weight(bytes(data), KIND, max_values=10_000)
        except InputError as error:
            said = str(error)
            if "groups" not in said:
                raise
    assert taken > 100


def test_a_message_without_its_raw_contents():
    """However its fields are ordered, and with those that nobody knows; what is left reads as before."""
    whole = request()
    whole.raw_input_contents.append(b"y" * 300)
    data = (
        field(7, b"before") + whole.SerializeToString() + field(7, b"") + field(15, b"unknown") + varint(16 << 3) + varint(300)
    )
    rest, raw = without_raw(data)
    assert [bytes(one) for one in raw] == [b"before", b"x" * 5000, b"y" * 300, b""]
    assert all(one.obj is data for one in raw)
    kept = pb.ModelInferRequest.FromString(rest)
    del whole.raw_input_contents[:]
    known = pb.ModelInferRequest.FromString(rest)
    known.DiscardUnknownFields()
    assert known == whole
    assert kept.SerializeToString().endswith(field(15, b"unknown") + varint(16 << 3) + varint(300))
