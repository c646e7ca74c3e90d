"""Bad input: a clear error each time, and the server goes on."""

import gzip
import http.client
import json
import socket
import struct
import time
import zlib

import numpy as np
import pytest

PNG_HEADER_20000 = (
    b"\x89PNG\r\n\x1a\n"
    + (ihdr := struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0))
    + struct.pack(">I", zlib.crc32(ihdr[4:]))
    + struct.pack(">I", 4) + b"IDAT" + b"\x78\x9c\x00\x00" + struct.pack(">I", zlib.crc32(b"IDAT\x78\x9c\x00\x00"))
)  # fmt: skip


@pytest.fixture
def call(server):
    """(method, path, body, headers) -> (status, JSON or None, headers); and a good request still works after."""

    def request(method: str, path: str, body: bytes | None = None, headers: dict | None = None):
        connection = http.client.HTTPConnection(server.http, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None, dict(response.getheaders())
        finally:
            connection.close()

    yield request
    status, answer, _ = request("POST", "/v2/models/tiny/infer", _json())
    assert status == 200, answer


def _json(**changes) -> bytes:
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.5] * 768} | changes
    return json.dumps({"inputs": [{key: value for key, value in tensor.items() if value is not ...}]}).encode()


def _binary(header: dict, data: bytes) -> tuple[bytes, dict]:
    text = json.dumps(header).encode()
    return text + data, {"Inference-Header-Content-Length": str(len(text))}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not an image|empty"),
        (b"hello", "not an image"),
        (b"GIF89a", "damaged|not an image"),
        (PNG_HEADER_20000, "20000x20000|pixels"),
    ],
)
def test_images_that_are_none(call, body, says):
    import re

    status, answer, _ = call("POST", "/v1/classify/tiny", body)
    assert status == 400
    assert re.search(says, answer["error"]), answer


def test_truncated_jpeg(call, make_photo):
    status, answer, _ = call("POST", "/v1/classify/tiny", make_photo(1, (300, 200), "JPEG")[:2000])
    assert status == 400
    assert "truncated" in answer["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "nesting"),
        (b'{"inputs": ' + b"[" * 900 + b"]" * 900 + b"}", "nesting"),
        (b'"' + b'\\"' * 200_000 + b"[" * 40, "JSON"),
        (b"{}", "inputs"),
        (b'{"inputs": []}', "inputs"),
        (b'{"inputs": [1]}', "inputs"),
        (_json(name=...), "name"),
        (_json(name="other"), "other"),
        (_json(datatype="FP64"), "FP32"),
        (_json(datatype="FLOAT"), "datatype"),
        (_json(datatype="FP16"), "FP16"),
        (_json(datatype=3), "datatype"),
        (_json(shape=[1, 3, 16, 15]), "elements"),
        (_json(shape=[3, 16, 16]), "shape"),
        (_json(shape=[1, 768]), "shape"),
        (_json(shape=[-1, 3, 16, 16]), "shape"),
        (_json(shape=[True, 3, 16, 16]), "shape"),
        (_json(shape=[1 << 39, 1 << 39, 1 << 39]), "too large"),
        (_json(shape="1"), "shape"),
        (_json(shape=[0, 3, 16, 16], data=[]), "batch-size"),
        (_json(shape=[9, 3, 16, 16], data=[0.0] * 768 * 9), "batch-size"),
        (_json(data=[0.5] * 767), "elements"),
        (_json(data=["0.5"] * 768), "FP32"),
        (_json(data=[None] * 768), "FP32|regular"),
        (_json(data=[[0.5] * 700, [0.5] * 68]), "regular"),
        (_json(data=[1 << 80] * 768), "FP32|regular"),
        (_json(data="x"), "list"),
        (_json(data=...), "data"),
        (_json(parameters={"binary_data_size": 3072}), "not both"),
        (_json(data=..., parameters={"binary_data_size": 3072}), "bytes"),
        (_json(data=..., parameters={"binary_data_size": -1}), "binary_data_size"),
        (_json(parameters=3), "parameters"),
    ],
)
def test_malformed_requests(call, body, says):
    import re

    status, answer, _ = call("POST", "/v2/models/tiny/infer", body)
    assert status == 400, answer
    assert re.search(says, answer["error"]), answer


def test_request_level_fields(call):
    good = json.loads(_json())
    for change, status in (
        ({"outputs": [{"name": "nope"}]}, 400),
        ({"outputs": [{"name": "scores", "parameters": {"classification": -1}}]}, 400),
        ({"outputs": [{"name": "scores", "parameters": {"shared_memory_region": "a", "shared_memory_byte_size": 28}}]}, 501),
        ({"parameters": {"timeout": -1}}, 400),
        ({"parameters": {"timeout": 0.5}}, 400),
        ({"parameters": {"priority": True}}, 400),
        ({"parameters": {"sequence_id": 4}}, 501),
        ({"id": 7}, 400),
        ({"inputs": good["inputs"] * 2}, 400),
        ({"inputs": [*good["inputs"], {**good["inputs"][0], "name": "more"}]}, 400),
    ):
        found, answer, _ = call("POST", "/v2/models/tiny/infer", json.dumps(good | change).encode())
        assert found == status, (change, answer)
        assert answer["error"]


def test_binary_bodies(call):
    data = np.zeros((1, 3, 16, 16), np.float32).tobytes()
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "parameters": {"binary_data_size": len(data)}}
    body, headers = _binary({"inputs": [tensor]}, data)
    assert call("POST", "/v2/models/tiny/infer", body, headers)[0] == 200
    for bad_body, bad_headers in (
        (body[:-1], headers),
        (body + b"\0", headers),
        (body, {}),
        (body, {"Inference-Header-Content-Length": "-1"}),
        (body, {"Inference-Header-Content-Length": "x"}),
        (body, {"Inference-Header-Content-Length": str(len(body) + 1)}),
        (body, {"Inference-Header-Content-Length": "0"}),
        (b"abc", {"Inference-Header-Content-Length": "0"}),
        _binary({"inputs": [{**tensor, "parameters": {"binary_data_size": 16}}]}, data[:16]),
    ):
        status, answer, _ = call("POST", "/v2/models/tiny/infer", bad_body, bad_headers)
        assert status == 400, answer
        assert answer["error"]


def test_bytes_tensors(call, make_photo):
    image = make_photo(0)
    for data in (
        image,
        struct.pack("<I", len(image) + 1) + image,
        struct.pack("<I", len(image)) + image + b"\1\0",
        b"",
        struct.pack("<I", 0xFFFFFFFF),
        struct.pack("<I", 0),
    ):
        tensor = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(data)}}
        status, answer, _ = call("POST", "/v2/models/tiny_classify/infer", *_binary({"inputs": [tensor]}, data))
        assert status == 400, answer


def test_compressed_bodies(call):
    path = "/v2/models/tiny/infer"
    assert call("POST", path, gzip.compress(_json()), {"Content-Encoding": "gzip"})[0] == 200
    assert call("POST", path, zlib.compress(_json()), {"Content-Encoding": "deflate"})[0] == 200
    assert call("POST", path, _json(), {"Content-Encoding": "gzip"})[0] == 400
    assert call("POST", path, gzip.compress(_json())[:-9], {"Content-Encoding": "gzip"})[0] == 400
    assert call("POST", path, gzip.compress(_json()) + b"x", {"Content-Encoding": "gzip"})[0] == 400
    assert call("POST", path, _json(), {"Content-Encoding": "br"})[0] == 501
    bomb = gzip.compress(bytes(140 << 20), 1)
    status, answer, _ = call("POST", path, bomb, {"Content-Encoding": "gzip"})
    assert status == 413, answer


def test_unknown_paths_models_and_methods(call):
    for method, path, status in (
        ("GET", "/nope", 404),
        ("GET", "/console/nope.js", 404),
        ("POST", "/", 405),
        ("GET", "/v2/models/nope", 404),
        ("GET", "/v2/models/damaged", 404),
        ("GET", "/v2/models/tiny/versions/9", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/models/%2e%2e/config", 404),
        ("POST", "/v2/models/nope/infer", 404),
        ("POST", "/v1/classify/nope", 404),
        ("POST", "/v1/classify/tiny?k=0", 400),
        ("POST", "/v1/classify/tiny?k=x", 400),
        ("POST", "/v1/classify/tiny?timeout_ms=-1", 400),
        ("DELETE", "/v2/models/tiny", 405),
        ("GET", "/v2/models/tiny/infer", 405),
        ("POST", "/v2/repository/models/tiny/load", 501),
        ("POST", "/v2/repository/models/tiny/unload", 501),
        ("GET", "/v2/systemsharedmemory/region/x/status", 501),
        ("GET", "/v2/logging", 501),
    ):
        found, answer, _ = call(method, path, b"{}" if method == "POST" else None)
        assert found == status, (path, answer)
        assert list(answer) == ["error"], answer
        assert answer["error"]


def test_forms(call, make_photo):
    image = make_photo(0)

    def part(name: str, data: bytes, filename: str = 'filename="x"') -> bytes:
        return b'--B\r\nContent-Disposition: form-data; name="%s"; %s\r\n\r\n%s\r\n' % (name.encode(), filename.encode(), data)

    kind = {"Content-Type": "multipart/form-data; boundary=B"}
    assert call("POST", "/v1/classify/tiny", part("file", image) + b"--B--\r\n", kind)[0] == 200
    for body, headers in (
        (b"--B--\r\n", kind),
        (part("file", image, "") + b"--B--\r\n", kind),
        (part("a", image) + part("b", image) + b"--B--\r\n", kind),
        (part("file", image), {"Content-Type": "multipart/form-data"}),
        (b"nonsense", kind),
        (part("x", b"y", "") * 50 + b"--B--\r\n", kind),
    ):
        status, answer, _ = call("POST", "/v1/classify/tiny", body, headers)
        assert status == 400, answer


def test_100_megabytes_are_refused(server, call):
    body = bytes(100 << 20)
    for path in ("/v2/models/tiny/infer", "/v1/classify/tiny"):
        status, answer, _ = call("POST", path, body)
        assert status == 413, answer
        assert "67,108,864" in answer["error"]

    def chunks():
        for _ in range(100):
            yield bytes(1 << 20)

    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request("POST", "/v1/classify/tiny", chunks(), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_long_heads_are_refused(server, call):
    for head in (
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * (1 << 20),
        b"GET /v2 HTTP/1.1\r\n" + b"A: b\r\n" * 50_000,
        b"GET /" + b"a" * (1 << 20),
    ):
        with socket.create_connection(server.http.split(":"), timeout=60) as connection:
            try:
                connection.sendall(head)
                assert b" 431 " in connection.recv(200)
            except (ConnectionResetError, BrokenPipeError):
                pass  # closed while more was on its way: refused as well


def test_a_failing_model_fails_only_its_request(call):
    bad = _json(data=[1e9] * 768)
    good = _json(data=[0.0] * 768)

    def counts():
        statistics = call("GET", "/v2/models/fragile/stats")[1]["model_stats"][0]["inference_stats"]
        return statistics["fail"]["count"], statistics["success"]["count"]

    failed, succeeded = counts()
    for _ in range(3):
        status, answer, _ = call("POST", "/v2/models/fragile/infer", bad)
        assert status == 500
        assert "fragile" in answer["error"]
        assert "/" not in answer["error"]
        assert call("POST", "/v2/models/fragile/infer", good)[0] == 200
    assert counts() == (failed + 3, succeeded + 3)


def test_half_a_request_and_gone(server, call):
    """Clients that leave at any moment leave nothing behind."""
    body = _json()
    request = b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for cut in (5, 60, len(request) - 10, len(request)):
        for _ in range(5):
            with socket.create_connection(server.http.split(":")) as connection:
                connection.sendall(request[:cut])
    none, end = 'nv_inference_pending_request_count{model="tiny",version="1"} 0.0', time.monotonic() + 60
    time.sleep(0.2)
    while True:
        connection = http.client.HTTPConnection(server.metrics)
        connection.request("GET", "/metrics")
        if none in connection.getresponse().read().decode():
            break
        assert time.monotonic() < end
        time.sleep(0.05)
