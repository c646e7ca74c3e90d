"""Requests of every kind, and how two servers' answers to them are compared."""

import json

import numpy as np
import pytest

# Counters, times and ids differ from one server to the other, and from one request to the next.
COMPARED_HEADERS = ("content-type", "inference-header-content-length", "content-encoding", "retry-after", "allow")


def _requests(photo: bytes) -> dict[str, dict]:
    images = np.random.default_rng(5).normal(size=(2, 3, 16, 16)).astype(np.float32)
    tensor = {"name": "images", "datatype": "FP32", "shape": [2, 3, 16, 16]}
    as_json = {"id": "one", "inputs": [{**tensor, "data": images.ravel().tolist()}]}
    head = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": images.nbytes}}],
        "parameters": {"binary_data_output": True},
    }
    encoded = json.dumps(head).encode()
    binary = {
        "content": encoded + images.tobytes(),
        "headers": {"Inference-Header-Content-Length": str(len(encoded)), "Content-Type": "application/octet-stream"},
    }
    image = {"name": "images", "datatype": "FP32", "shape": [1, 3, 15, 16], "data": [0.0] * 720}
    return {
        "metadata": {"method": "GET", "url": "/v2"},
        "live": {"method": "GET", "url": "/v2/health/live"},
        "ready": {"method": "GET", "url": "/v2/health/ready"},
        "index": {"method": "POST", "url": "/v2/repository/index"},
        "model": {"method": "GET", "url": "/v2/models/tiny"},
        "version": {"method": "GET", "url": "/v2/models/tiny/versions/1"},
        "model ready": {"method": "GET", "url": "/v2/models/tiny_classify/ready"},
        "model config": {"method": "GET", "url": "/v2/models/tiny_decode/config"},
        "json": {"method": "POST", "url": "/v2/models/tiny/infer", "json": as_json},
        "json of a version": {"method": "POST", "url": "/v2/models/tiny/versions/1/infer", "json": as_json},
        "binary": {"method": "POST", "url": "/v2/models/tiny/infer", **binary},
        "image": {"method": "POST", "url": "/v1/classify/tiny?k=3", "content": photo},
        "form": {"method": "POST", "url": "/v1/classify/tiny_classify", "files": {"file": ("a.png", photo, "image/png")}},
        "page": {"method": "GET", "url": "/"},
        "document": {"method": "GET", "url": "/openapi.json"},
        "unknown model": {"method": "POST", "url": "/v2/models/nobody/infer", "json": as_json},
        "unknown version": {"method": "GET", "url": "/v2/models/tiny/versions/7"},
        "damaged model": {"method": "GET", "url": "/v2/models/damaged/ready"},
        "wrong shape": {"method": "POST", "url": "/v2/models/tiny/infer", "json": {"inputs": [image]}},
        "no json": {"method": "POST", "url": "/v2/models/tiny/infer", "content": b"{"},
        "no image": {"method": "POST", "url": "/v1/classify/tiny", "content": b"no image"},
        "bad query": {"method": "POST", "url": "/v1/classify/tiny?k=0", "content": photo},
        "no such path": {"method": "GET", "url": "/v3"},
        "wrong method": {"method": "GET", "url": "/v2/models/tiny/infer"},
        "other site": {"method": "POST", "url": "/v2/repository/index", "headers": {"Sec-Fetch-Site": "cross-site"}},
        "shared memory": {"method": "GET", "url": "/v2/systemsharedmemory/status"},
        "too long": {"method": "POST", "url": "/v1/classify/tiny", "content": b"x" * (64 * 1024 * 1024 + 1)},
    }


@pytest.fixture(scope="session")
def requests(make_photo):
    """Name -> what httpx's `request` takes."""
    return _requests(make_photo(3))


@pytest.fixture(scope="session")
def small_requests(requests):
    """Those that are no test of a limit."""
    return {name: request for name, request in requests.items() if name != "too long"}


def said(response) -> tuple:
    """What must be equal of an answer."""
    return response.status_code, {name: response.headers.get(name) for name in COMPARED_HEADERS}, response.content


@pytest.fixture(scope="session")
def said_of():
    return said


@pytest.fixture(scope="session")
def infer_body():
    """One image as the body of an infer request in JSON, and its rows."""

    def make(seed: int) -> tuple[dict, np.ndarray]:
        images = np.random.default_rng(seed).normal(size=(1, 3, 16, 16)).astype(np.float32)
        tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": images.ravel().tolist()}
        return {"inputs": [tensor]}, images

    return make
