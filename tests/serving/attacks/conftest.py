"""One server for all attacks, with a secret beside its models; after each it still answers, and has not grown."""

import http.client
import json
import socket
import time

import numpy as np
import psutil
import pytest

SECRET = "the secret beside the models"
# What a server may grow by over one attack. Tens of megabytes are threads' and allocators' ordinary ups and downs.
GROWTH = 120 << 20


@pytest.fixture(scope="session")
def target(models, launch):
    (models.parent / "secret.txt").write_text(SECRET)
    with launch(models, shared_memory=True, head_timeout_seconds=1.0, body_timeout_seconds=2.0, apis=("kserve-v1",)) as server:
        yield server


@pytest.fixture(autouse=True)
def survives(target):
    """The server still answers a good request afterwards, and its memory is soon where it was."""
    process = psutil.Process(target.process.pid)
    good = json.dumps(
        {"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": np.zeros(768).tolist()}]}
    ).encode()
    before, said = process.memory_info().rss, len(target.output)
    yield
    assert send(target.http, "POST", "/v2/models/tiny/infer", good)[0] == 200
    end = time.monotonic() + 30
    while process.memory_info().rss - before >= GROWTH and time.monotonic() < end:
        time.sleep(0.1)
    assert process.memory_info().rss - before < GROWTH
    said = target.output[said:]
    assert "Traceback" not in said, said


def send(address: str, method: str, path: str, body: bytes | None = None, headers: dict | None = None):
    """(status, body) of one request; the path goes out as it is."""
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": "localhost", **(headers or {})}.items():
            connection.putheader(name, value)
        if body is not None and "Transfer-Encoding" not in (headers or {}):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def raw(address: str, *packets: bytes, timeout: float = 20) -> bytes:
    """All that comes back for these bytes until the server closes; b"" when it only resets."""
    received = b""
    with socket.create_connection(address.split(":"), timeout=timeout) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for number, data in enumerate(packets):
                if number:
                    time.sleep(0.1)
                connection.sendall(data)
            while part := connection.recv(65536):
                received += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    return received


@pytest.fixture(scope="session")
def secret():
    return SECRET


@pytest.fixture(scope="session")
def request_to():
    return send


@pytest.fixture(scope="session")
def raw_to():
    return raw
