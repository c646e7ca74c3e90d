"""Damaged requests over real sockets: every one gets an answer below 500, and the server serves on with nothing left behind."""

import http.client
import json
import random
import socket
import struct
import urllib.request

import numpy as np
import pytest

CASES = 400


def _post(server, path: str, body: bytes, headers: dict) -> int:
    connection = http.client.HTTPConnection(server.http, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        content = response.read()
        if response.status >= 400:
            assert json.loads(content)["error"]
        return response.status
    finally:
        connection.close()


def _damage(source: random.Random, data: bytes) -> bytes:
    data = bytearray(data)
    for _ in range(source.randint(1, 4)):
        kind, at = source.randrange(5), source.randrange(len(data) or 1)
        if kind == 0 and data:
            data[at] = source.randrange(256)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = source.randbytes(source.randint(1, 8))
        elif kind == 3:
            del data[at : at + source.randint(1, 40)]
        else:
            data[at : at + 1] = source.choice(
                [b"[", b"{", b'"', b"-1", b"1e999", b"null", b"NaN", b"\\u0000", b"99999999999999999999"]
            )
    return bytes(data)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_tensors(server, seed):
    source = random.Random(seed)
    data = np.zeros((1, 3, 16, 16), np.float32).tobytes()
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16]}
    binary = json.dumps(
        {
            "id": "1",
            "inputs": [{**tensor, "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": "scores", "parameters": {"classification": 2, "binary_data": True}}],
            "parameters": {"priority": 1, "timeout": 5_000_000},
        }
    ).encode()
    plain = json.dumps({"inputs": [{**tensor, "data": [0.5] * 768}]}).encode()
    seen = set()
    for number in range(CASES):
        if number % 2:
            body, headers = _damage(source, plain), {}
        else:
            header = _damage(source, binary)
            length = len(header) + source.choice([0, 0, 0, 0, 1, -1, 7])
            body, headers = header + data, {"Inference-Header-Content-Length": str(max(0, length))}
        seen.add(_post(server, "/v2/models/tiny/infer", body, headers))
    assert seen <= {200, 400, 404, 413, 501, 503}, seen
    assert 200 in seen or 400 in seen


@pytest.mark.parametrize("cases", [100, pytest.param(CASES, marks=pytest.mark.slow)])
def test_damaged_images(server, make_photo, cases):
    source = random.Random(3)
    images = [make_photo(seed, (60, 40), kind) for seed, kind in enumerate(("JPEG", "PNG", "WEBP", "BMP", "GIF"))]
    for number in range(cases):
        image = _damage(source, images[number % len(images)])
        assert _post(server, "/v1/classify/tiny", image, {}) in (200, 400)
        body = struct.pack("<I", len(image)) + image
        header = json.dumps(
            {"inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(body)}}]}
        ).encode()
        headers = {"Inference-Header-Content-Length": str(len(header))}
        assert _post(server, "/v2/models/tiny_classify/infer", header + body, headers) in (200, 400)


def test_damaged_http(server):
    source = random.Random(5)
    head = b"POST /v2/models/tiny/infer?x=%41 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    good = head + b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
    for _ in range(CASES):
        with socket.create_connection(server.http.split(":"), timeout=60) as connection:
            connection.sendall(_damage(source, good))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(2000)
            assert not answer.startswith(b"HTTP/1.1 5") or answer.startswith(b"HTTP/1.1 501"), answer
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        text = response.read().decode()
    assert 'nv_inference_pending_request_count{model="tiny",version="1"} 0.0' in text
