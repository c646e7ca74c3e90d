"""The cases of NVIDIA's qa suites L0_http, L0_http_fuzz and L0_input_validation for this server; each test names its cases.

Where Triton answers 500 to a request that is wrong, this server answers 400. docs/fuzzing.md lists what is mirrored where.
"""

import contextlib
import gzip
import http.client
import json
import socket
import struct

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

INFER = "/v2/models/tiny/infer"
LIMIT = 64 << 20
TENSOR = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16]}
CHUNKED = (
    f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 0\r\n"
    "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
).encode()
ROW = np.linspace(-1, 1, 768, dtype=np.float32)


def call(server, method: str, path: str, body=None, headers=None) -> tuple[int, bytes, dict]:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), {name.lower(): value for name, value in response.getheaders()}


def refused(server, body, headers=None, *, status: int = 400, path: str = INFER) -> str:
    found, answer, _ = call(server, "POST", path, body, headers)
    assert found == status, answer
    assert call(server, "GET", "/v2/health/live")[0] == 200
    return json.loads(answer)["error"]


def raw(server, data: bytes, headers=None, path: str = INFER) -> tuple[int, bytes]:
    """A body that is one input's bytes: (status, what follows the JSON of the answer)."""
    status, answer, given = call(server, "POST", path, data, {"Inference-Header-Content-Length": "0", **(headers or {})})
    return status, answer[int(given.get("inference-header-content-length", 0)) :]


@pytest.mark.parametrize("rows", [1, 4])
def test_raw_binary(server, rows, scores_of):
    """L0_http: test_raw_binary, test_raw_binary_longer, test_content_encoding_chunked_manually."""
    images = np.tile(ROW, (rows, 1))
    expected = scores_of(images.reshape(rows, 3, 16, 16))
    status, data = raw(server, images.tobytes())
    assert status == 200
    np.testing.assert_allclose(np.frombuffer(data, np.float32).reshape(rows, 7), expected, rtol=1e-4, atol=1e-5)
    chunked = b"%X\r\n%s\r\n0\r\n\r\n" % (images.nbytes, images.tobytes())
    with socket.create_connection(server.http.split(":"), timeout=60) as connection:
        head = CHUNKED
        connection.sendall(head + chunked)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(data)


def test_raw_bytes(server, make_photo):
    """L0_http: test_byte, test_byte_too_many_elements, test_multi_variable_dimensions: what cannot be one input is refused."""
    status, data = raw(server, make_photo(1), path="/v2/models/tiny_classify/infer")
    assert status == 200
    assert len(data) == 7 * 4
    for body in (b"427", ROW.tobytes()[:-1], b""):
        assert raw(server, body)[0] == 400


def test_overflowing_shapes(server):
    """L0_http: test_buffer_size_overflow, test_negative_dimensions, test_json_dtype_size_expansion_exceeds_limit_error."""
    for shape in ([2**4, 2**60 + 2], [2**2, 2**60 + 2], [2, -5], [2**39, 2**39], [2**40 - 1] * 16):
        for datatype in ("FP32", "UINT8", "FP64", "BYTES"):
            tensor = {"name": "images", "datatype": datatype, "shape": shape, "data": [1.0] if datatype != "BYTES" else ["x"]}
            assert "images" in refused(server, json.dumps({"inputs": [tensor]}))


def test_nested_json(server):
    """L0_http: test_json_recursion_depth_limit, test_repository_index_deeply_nested_json, nested_json_crash.py."""
    for depth in (120, 100_000, 250_000):
        nested = "[" * depth + "1" + "]" * depth
        assert "nesting" in refused(server, f'{{"inputs": [{json.dumps(TENSOR)[:-1]}, "data": {nested}}}]}}')
    assert "nesting" in refused(server, f'{{"ready": {"[" * 120 + "1" + "]" * 120}}}', path="/v2/repository/index")
    assert "65,536" in refused(server, f'{{"ready": {nested}}}', path="/v2/repository/index", status=413)
    nested = ROW.reshape(1, 3, 16, 16).tolist()
    assert call(server, "POST", INFER, json.dumps({"inputs": [TENSOR | {"data": nested}]}))[0] == 200


def test_names_given_twice(server):
    """L0_http: test_duplicate_output_names, test_duplicate_inputs, test_missing_inputs, test_invalid_input_types."""
    good = {"inputs": [TENSOR | {"data": ROW.tolist()}]}
    assert "output 'scores' already exists in request" in refused(
        server, json.dumps(good | {"outputs": [{"name": "scores"}] * 2})
    )
    assert "input 'images' already exists in request" in refused(server, json.dumps({"inputs": good["inputs"] * 2}))
    for inputs in ([], None, "x", [1], [[]], [{}], {"name": "images"}):
        assert "inputs" in refused(server, json.dumps({"inputs": inputs}))


def test_header_lengths_out_of_range(server):
    """L0_http: test_inference_header_content_length_out_of_range, test_no_leak_on_invalid_inference_header_length."""
    process = psutil.Process(server.process.pid)
    body = json.dumps({"inputs": []}) + " " * 100_000
    for number in range(600):
        if number == 200:
            before = process.memory_info().rss
        length = ("99999999999", "2147483648", "-1", "1" * 40, "100014", "x")[number % 6]
        refused(server, body, {"Inference-Header-Content-Length": length})
    # 400 bodies of 100 kB are 38 MiB; what is kept of each would show.
    assert process.memory_info().rss - before < 16 << 20


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])  # plain ones: attacks
def test_size_limits(server, packed):
    """L0_http: http_input_size_limit_test.py, test_loading_large_invalid_model, test_large_string_in_json."""
    texts = (b'{"inputs": [%s]}' % (b" " * LIMIT), b'{"id": "%s"}' % (b"x" * LIMIT), bytes(LIMIT + 1))
    for text in texts[-1:] if packed else texts:  # what is packed is refused before anything reads it
        body = gzip.compress(text * 2, 1) if packed else text
        headers = {"Content-Encoding": "gzip"} if packed else {}
        assert f"{128 << 20 if packed else LIMIT:,}" in refused(server, body, headers, status=413)
    if not packed:
        for path in ("/v2/repository/models/tiny/load", "/v2/repository/index"):
            assert "bytes" in refused(server, bytes(LIMIT + 1), status=413, path=path)
    fits = json.dumps({"inputs": [TENSOR | {"data": ROW.tolist()}]}).encode() + b" " * (8 << 20)
    assert call(server, "POST", INFER, gzip.compress(fits, 1) if packed else fits, headers)[0] == 200


def test_many_chunks(server, scores_of):
    """L0_http: http_request_many_chunks.py: chunks are bounded in number, and refused ones leave nothing behind."""
    head = CHUNKED

    def send(data: bytes) -> bytes:
        answer = b""
        with socket.create_connection(server.http.split(":"), timeout=60) as connection, contextlib.suppress(OSError):
            connection.sendall(head + data)
            while part := connection.recv(65536):
                answer += part
        return answer

    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in ROW.tobytes()) + b"0\r\n\r\n"
    answer = send(pieces)
    assert answer.startswith(b"HTTP/1.1 200 ")
    np.testing.assert_allclose(
        np.frombuffer(answer[-28:], np.float32), scores_of(ROW.reshape(1, 3, 16, 16))[0], rtol=1e-4, atol=1e-5
    )
    process, before = psutil.Process(server.process.pid), 0
    for number in range(12):
        answer = send(b"1\r\nA\r\n" * 1_000_000 + b"0\r\n\r\n")
        assert answer == b"" or answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
        before = process.memory_info().rss if number == 3 else before
    assert process.memory_info().rss - before < 8 << 20
    assert call(server, "GET", "/v2/health/ready")[0] == 200


def test_files_of_models_are_not_taken(server):
    """L0_http: test_load_oversized_file_parameter; L0_lifecycle: test_file_override, test_file_override_security."""
    too_long = "file:" + "A" * 256  # which Triton refuses as a failure of its own
    for name in (too_long, "file:1/model.onnx", "file:../../../x", "file:/etc/x"):
        body = json.dumps({"parameters": {name: "YQ==", "config": "{}"}})
        assert refused(server, body, status=500 if name == too_long else 501, path="/v2/repository/models/tiny/load")


URLS = [
    "/v2", "/v2/models/tiny", "/v2/models/tiny/infer", "/v2/models/tiny/versions/v1", "/v2/models/tiny/config",
    "/v2/models/tiny/stats",
    "/v2/models/tiny/ready", "/v2/health/ready", "/v2/health/live", "/v2/repository/index", "/v2/repository/models/tiny/unload",
    "/v2/repository/models/tiny/load", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/register",
    "/v2/systemsharedmemory/unregister",
    "/v2/systemsharedmemory/region/xx/status", "/v2/cudasharedmemory/status", "/v2/cudasharedmemory/register",
    "/v2/cudasharedmemory/unregister",
    "/v2/cudasharedmemory/region/xx/status",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE"])
def test_every_method_at_every_url(server, method):
    """L0_http_fuzz: test_failures_from_db, whose strings are those of tests/serving/fuzzing/grammars/raw_http.py."""
    for url in URLS:
        with socket.create_connection(server.http.split(":"), timeout=60) as connection:
            connection.sendall(f"{method} {url} HTTP/1.1\r\n\r\nHost: localhost\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)
        status, _, _ = call(server, method, url)
        assert status in (200, 400, 404, 405, 501), (url, status)
    assert call(server, "GET", "/v2/health/ready")[0] == 200


def _grpc_input(array: np.ndarray, shape=None):
    tensor = triton_grpc.InferInput("images", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    tensor.set_shape(list(shape or array.shape))
    return tensor


def test_inputs_that_are_missing_or_too_many(server):
    """L0_input_validation: test_input_validation_required_empty, ..._required_missing, ..._optional*."""
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        with pytest.raises(InferenceServerException, match="inputs"):
            client.infer("tiny", [])
        other = triton_grpc.InferInput("INPUT0", [1], "FP32")
        other.set_data_from_numpy(np.zeros(1, np.float32))
        with pytest.raises(InferenceServerException, match="INPUT0|images"):
            client.infer("tiny", [other])
        image = ROW.reshape(1, 3, 16, 16)
        with pytest.raises(InferenceServerException, match="INPUT0"):
            client.infer("tiny", [_grpc_input(image), other])
        assert client.infer("tiny", [_grpc_input(image)]).as_numpy("scores").shape == (1, 7)


@pytest.mark.parametrize("rows", [0.5, 2])
def test_shapes_that_are_not_those_of_the_data(server, rows):
    """L0_input_validation: test_input_shape_validation, test_wrong_input_shape_tensor_size."""
    data = np.zeros(int(768 * rows), np.float32)
    with triton_grpc.InferenceServerClient(server.grpc) as client, pytest.raises(InferenceServerException, match="3072"):
        client.infer("tiny", [_grpc_input(data, (1, 3, 16, 16))])
    text = json.dumps({"inputs": [TENSOR | {"parameters": {"binary_data_size": data.nbytes}}]})
    assert "3072" in refused(server, text.encode() + data.tobytes(), {"Inference-Header-Content-Length": str(len(text))})


def test_strings_that_are_not_those_of_the_shape(server, make_photo):
    """L0_input_validation: test_input_string_shape_validation, for fewer and for more elements than the shape says."""
    image = make_photo(1)
    element = struct.pack("<I", len(image)) + image
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(client._channel)
        for sent, shape in (
            (element, [2, 1]),
            (element * 3, [2, 1]),
            (element[:-1], [1, 1]),
            (element + b"\1", [1, 1]),
            (b"", [1, 1]),
        ):
            message = pb.ModelInferRequest(model_name="tiny_classify", raw_input_contents=[sent])
            message.inputs.add(name="IMAGE", datatype="BYTES", shape=shape)
            with pytest.raises(Exception, match="BYTES") as caught:
                stub.ModelInfer(message, timeout=60)
            assert caught.value.code().name == "INVALID_ARGUMENT"
            tensor = {"name": "IMAGE", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(sent)}}
            text = json.dumps({"inputs": [tensor]}).encode()
            path = "/v2/models/tiny_classify/infer"
            assert "BYTES" in refused(server, text + sent, {"Inference-Header-Content-Length": str(len(text))}, path=path)


NAMES = [
    "../etc", "a/../b", "../../etc/passwd", "../../../../etc", "model/..", "..", "/etc/passwd", "model/subdir", "model/",
    " ..", ".. ",
    "", " ", "   ", "\t", "\n", "\r", "\f", "\v", " \t \n ", "model123", "model.version1", "...", "..my_model", "model..1",
    "model....1",
]  # fmt: skip


def test_names_of_models(start, repository):
    """L0_input_validation: test_model_name_*: what is no served model's name is not found, whatever it looks like."""
    repository.package("tiny")
    server = start(repository.path, model_control_mode="explicit", load_models=["*"])
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        for name in NAMES:
            for control in (client.load_model, client.unload_model):
                with pytest.raises(InferenceServerException, match="unknown model") as caught:
                    control(name)
                assert caught.value.status() == "StatusCode.NOT_FOUND"
        assert client.is_model_ready("tiny")
