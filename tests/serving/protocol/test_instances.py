"""Whatever JSON a stranger sends is either understood or one clear error."""

import base64
import contextlib
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import InputError, TooLargeError
from headrace.runtime.artifact.model_config import ConfigTensor
from headrace.serving.protocol import instances
from headrace.serving.protocol.instances import read_instances, rows_of, tensors_of
from headrace.serving.protocol.messages import Tensor

ONE = (ConfigTensor(name="images", datatype="FP32", shape=(2, 3)),)
OPEN = (ConfigTensor(name="images", datatype="FP32", shape=(3, -1, -1)),)
TWO = (ConfigTensor(name="a", datatype="INT64", shape=(1,)), ConfigTensor(name="b", datatype="BYTES", shape=(2,)))
NAMES = st.sampled_from(["a", "b", "b64", "images"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(given_instances=st.lists(JSON, max_size=4), inputs=st.sampled_from([ONE, OPEN, TWO]))
@example(given_instances=[[[1, 2, 3], [4, 5, 6]]], inputs=ONE)
@example(given_instances=[{"a": [1], "b": ["x", "y"]}], inputs=TWO)
@example(given_instances=[[[]]], inputs=OPEN)
def test_any_instances(given_instances, inputs):
    body = json.dumps({"instances": given_instances}).encode()
    with contextlib.suppress(InputError, TooLargeError):
        asked = read_instances(body, max_depth=32, max_values=1000)
        assert bool(asked.images) != bool(asked.rows)
        if asked.rows:
            tensors = tensors_of(asked.rows, inputs)
            assert all(len(tensor.data) == len(given_instances) for tensor in tensors)


@given(body=st.binary(max_size=60))
def test_any_bytes(body):
    with pytest.raises(InputError):
        read_instances(body, max_depth=32, max_values=1000)


def test_open_sizes_are_those_of_the_rows():
    rows = np.arange(60.0).reshape(2, 3, 5, 2)
    (tensor,) = tensors_of(rows.tolist(), OPEN)
    assert np.array_equal(tensor.data, rows)


def test_predictions_of_several_outputs_have_their_names():
    scores = Tensor("scores", "FP32", np.eye(2, dtype=np.float32))
    words = Tensor("words", "BYTES", np.array([[b"x"], [b"\xff"]], object))
    assert list(rows_of([scores, words])) == [
        {"scores": [1.0, 0.0], "words": ["x"]},
        {"scores": [0.0, 1.0], "words": ["\N{REPLACEMENT CHARACTER}"]},
    ]


def test_what_json_has_not_is_refused():
    with pytest.raises(InputError, match="NaN or infinity"):
        list(rows_of([Tensor("scores", "FP32", np.array([[np.nan]], np.float32))]))


def test_base64_in_pieces(monkeypatch):
    monkeypatch.setattr(instances, "_PIECE", 8)
    image = bytes(range(50))
    for size in range(50):
        body = json.dumps({"instances": [{"b64": base64.b64encode(image[:size]).decode()}]}).encode()
        assert read_instances(body, max_depth=32, max_values=10).images == [image[:size]]
    for wrong in ("QQ==QUJD", "QUJDQQ==QUJDQUJD", "QUJDQUJDQ", "QUJDQUJD=", "QUJD QUJD", "QUJDQQ=A"):
        with pytest.raises(InputError, match="not valid base64"):
            read_instances(json.dumps({"instances": [{"b64": wrong}]}).encode(), max_depth=32, max_values=10)


def test_a_long_image_is_never_one_long_string():
    image = bytes(range(256)) * 8192 + b"end"  # 2 MiB: its base64 is read in pieces that are no multiples of four
    text = base64.b64encode(image).decode()
    escaped = text.replace("+", "\\u002b")
    for spelled in (text, escaped, f"{text[:9]}\\u{ord(text[9]):04x}{text[10:]}"):
        body = b'{"instances": [{"b64": "%b"}]}' % spelled.encode()
        assert read_instances(body, max_depth=32, max_values=10).images == [image]
    for wrong in (text[:-1], text + "QUJD", text + "=", f"{text[:1_000_000]}={text[1_000_001:]}", f"{text[:7]} {text[8:]}"):
        with pytest.raises(InputError, match="not valid base64"):
            read_instances(b'{"instances": [{"b64": "%b"}]}' % wrong.encode(), max_depth=32, max_values=10)


def test_long_strings_are_nothing_else_than_images():
    long = "x" * (2 << 20)
    with pytest.raises(TooLargeError, match="a name in the JSON has more than"):
        read_instances(json.dumps({"instances": [{long: 1}]}).encode(), max_depth=32, max_values=10)
    rows = read_instances(json.dumps({"instances": [{"a": [1], "b": ["x", long]}]}).encode(), max_depth=32, max_values=10).rows
    with pytest.raises(TooLargeError, match="more than 1 MiB"):
        tensors_of(rows, TWO)
    rows = read_instances(json.dumps({"instances": [[[1, 2, 3], [4, 5, long]]]}).encode(), max_depth=32, max_values=10).rows
    with pytest.raises(InputError, match="does not hold FP32|not a regular array"):
        tensors_of(rows, ONE)
    with pytest.raises(InputError, match='"parameters" must be an object'):
        read_instances(json.dumps({"instances": [1], "parameters": long}).encode(), max_depth=32, max_values=10)
    with pytest.raises(InputError, match="k must be"):
        read_instances(json.dumps({"instances": [1], "parameters": {"k": long}}).encode(), max_depth=32, max_values=10)


def test_an_answer_holds_no_more_labels_than_a_request_may_hold_objects():
    """9 MB of small images with a thousand labels each would become a hundred million objects."""
    body = json.dumps({"instances": [{"b64": ""}] * 201, "parameters": {"k": 1000}}).encode()
    with pytest.raises(TooLargeError, match="201 images with 1,000 labels each"):
        read_instances(body, max_depth=32, max_values=10)
    assert len(read_instances(body.replace(b"1000", b"900"), max_depth=32, max_values=10).images) == 201
