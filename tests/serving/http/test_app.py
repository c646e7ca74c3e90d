"""The application: what each request is answered with, and that the table's rows say who answers."""

import asyncio
import gzip
import html
import json
import re

import httpx
import numpy as np
import pytest

from headrace.serving.config import ServeConfig
from headrace.serving.http.app import create_app
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane
from headrace.serving.protocol.routes import ROUTES


@pytest.fixture(scope="module")
def app(models):
    config = ServeConfig.of(models=models, instances=1, threads=1, max_body_bytes=100_000)
    repository = ModelRepository(config)
    repository.load(lambda _: None)
    pool = DecodePool(2, limit=16)
    yield create_app(DataPlane(repository, pool, config))
    repository.drain()
    repository.close()
    pool.close()


def call(app, method, path, content=b"", headers=None, *, raising=False):
    async def send():
        transport = httpx.ASGITransport(app, raise_app_exceptions=raising)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, content=content, headers=headers)

    return asyncio.run(send())


PIXELS = np.linspace(-1, 1, 768, dtype=np.float32).reshape(1, 3, 16, 16)
INPUT = {"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16]}
JSON = json.dumps({"inputs": [{**INPUT, "data": PIXELS.ravel().tolist()}]})
HEADER = json.dumps(
    {
        "id": "7",
        "inputs": [{**INPUT, "parameters": {"binary_data_size": 3072}}],
        "outputs": [{"name": "scores", "parameters": {"binary_data": True}}],
    }
).encode()
BINARY = (HEADER + PIXELS.tobytes(), {"Inference-Header-Content-Length": str(len(HEADER))})
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n%b\r\n--x--\r\n',
    {"Content-Type": "multipart/form-data; boundary=x"},
)

REQUESTS = {
    "json": (200, "/v2/models/tiny/infer", JSON.encode(), {}),
    "a version": (200, "/v2/models/tiny/versions/1/infer", JSON.encode(), {}),
    "binary": (200, "/v2/models/tiny/infer", *BINARY),
    "gzip": (200, "/v2/models/tiny/infer", gzip.compress(JSON.encode()), {"Content-Encoding": "gzip"}),
    "raw": (200, "/v2/models/tiny/infer", PIXELS.tobytes(), {"Inference-Header-Content-Length": "0"}),
    "an unknown model": (404, "/v2/models/none/infer", JSON.encode(), {}),
    "an unknown version": (404, "/v2/models/tiny/versions/9/infer", JSON.encode(), {}),
    "a version that is none": (404, "/v2/models/tiny/versions/x/infer", JSON.encode(), {}),
    "an escaped name": (200, "/v2/models/t%69ny/infer", JSON.encode(), {}),
    "an escaped slash": (404, "/v2/models/a%2Ftiny/infer", JSON.encode(), {}),
    "dots": (404, "/v2/models/../tiny/infer", JSON.encode(), {}),
    "a slash at the end": (404, "/v2/models/tiny/infer/", JSON.encode(), {}),
    "two slashes": (404, "/v2/models//infer", JSON.encode(), {}),
    "a line break in the name": (404, "/v2/models/tiny%0A/infer", JSON.encode(), {}),
    "a line break at the end": (404, "/v2/models/tiny/infer%0A", JSON.encode(), {}),
    "bad json": (400, "/v2/models/tiny/infer", b"{", {}),
    "a wrong header length": (400, "/v2/models/tiny/infer", JSON.encode(), {"Inference-Header-Content-Length": "x"}),
    "too much": (413, "/v2/models/tiny/infer", b"x" * 100_001, {}),
    "a query": (200, "/v2/models/tiny/infer?x=1", JSON.encode(), {}),
    "an image": (200, "/v1/classify/tiny", "image", {}),
    "three labels": (200, "/v1/classify/tiny?k=3", "image", {}),
    "the ensemble": (200, "/v1/classify/tiny_classify?k=1000", "image", {}),
    "a form": (200, "/v1/classify/tiny?k=2", "form", FORM[1]),
    "no labels": (400, "/v1/classify/tiny?k=0", "image", {}),
    "too many labels": (400, "/v1/classify/tiny?k=1001", "image", {}),
    "a leading zero": (200, "/v1/classify/tiny?k=05", "image", {}),
    "a label count that is none": (400, "/v1/classify/tiny?k=two", "image", {}),
    "twice": (200, "/v1/classify/tiny?k=2&k=3", "image", {}),
    "a deadline": (200, "/v1/classify/tiny?k=2&timeout_ms=10000", "image", {}),
    "a deadline alone": (200, "/v1/classify/tiny?timeout_ms=10000.5", "image", {}),
    "a deadline first": (200, "/v1/classify/tiny?timeout_ms=10000&k=2", "image", {}),
    "a deadline that is over": (400, "/v1/classify/tiny?timeout_ms=0", "image", {}),
    "a deadline too far": (400, "/v1/classify/tiny?timeout_ms=3600001", "image", {}),
    "a deadline in words": (200, "/v1/classify/tiny?k=2&timeout_ms=1e4", "image", {}),
    "no sign between": (400, "/v1/classify/tiny?k=2timeout_ms=10000", "image", {}),
    "no image": (400, "/v1/classify/tiny", b"hello", {}),
    "nothing": (400, "/v1/classify/tiny", b"", {}),
    "classified by nothing": (404, "/v1/classify/none", "image", {}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_its_status(name, app, make_photo):
    status, path, content, headers = REQUESTS[name]
    image = make_photo(3)
    content = {"image": image, "form": FORM[0] % image}.get(content, content) if isinstance(content, str) else content
    answer = call(app, "POST", path, content, headers)
    assert answer.status_code == status, answer.text
    assert ("error" in answer.json()) == (status != 200) if "json" in answer.headers["content-type"] else status == 200


@pytest.mark.parametrize(("path", "count"), [("?k=3", 3), ("?k=%31", 1), ("?k=2&k=3", 3), ("", 5), ("?x=1", 5)])
def test_as_many_labels_as_are_asked_for(path, count, app, make_photo):
    assert len(call(app, "POST", f"/v1/classify/tiny{path}", make_photo(3)).json()["predictions"]) == count


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "3600001", ""])
def test_a_deadline_is_a_number_that_a_clock_can_reach(value, app, make_photo):
    answer = call(app, "POST", f"/v1/classify/tiny?timeout_ms={value}", make_photo(3))
    assert (answer.status_code, "'timeout_ms' " in answer.text) == (400, True)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "G"])
@pytest.mark.parametrize("path", sorted({re.sub(r"{\w+}", "tiny", path) for route in ROUTES for path in route.paths}))
def test_other_methods_are_named_all_that_there_are(method, path, app):
    rows = [route for route in ROUTES if route.pattern.fullmatch(path) and route.handler]
    answer = call(app, method, path)
    if not rows:
        assert answer.status_code == 404
    elif any(method in row.methods.split() for row in rows):
        assert answer.status_code != 405
    else:
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == {name for row in rows for name in row.methods.split()}


def test_the_routes_are_described(app):
    described = call(app, "GET", "/openapi.json").json()
    assert described["paths"].keys() == {path for route in ROUTES if route.tag for path in route.paths}
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["description"] for one in operations)
    (classify,) = described["paths"]["/v1/classify/{model}"].values()
    assert [one["name"] for one in classify["parameters"]] == ["model", "k", "timeout_ms"]


def test_the_page_of_the_routes_needs_nothing_from_elsewhere(app):
    page = call(app, "GET", "/docs").text
    assert not re.search(r"<script|<link|<img|https?://", page)
    described = call(app, "GET", "/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert f"<code>{method.upper()} {path}</code></h2><p>{html.escape(operation['description'])}" in page


def test_what_nobody_foresaw_says_nothing_of_the_inside(app, monkeypatch):
    monkeypatch.setattr(DataPlane, "classify", lambda *_, **__: 1 / 0)
    answer = call(app, "POST", "/v1/classify/tiny", b"x")
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error; the server's log says more"})
    with pytest.raises(ZeroDivisionError):  # goes up to the server, whose log says more
        call(app, "POST", "/v1/classify/tiny", b"x", raising=True)


def test_what_stands_around_finds_the_model_and_the_route(app):
    """As the access log and the traces do."""
    seen = []

    async def outside(scope, receive, send):
        await app(scope, receive, send)
        seen.append((scope["path_params"], scope["route"].path(scope["path_params"])))

    assert call(outside, "POST", "/v2/models/a/versions/3/infer").status_code == 404
    assert call(outside, "POST", "/v2/models/a/infer").status_code == 404
    assert seen == [
        ({"model": "a", "version": "3"}, "/v2/models/{model}/versions/{version}/infer"),
        ({"model": "a"}, "/v2/models/{model}/infer"),
    ]
