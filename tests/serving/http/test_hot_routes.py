"""The short way answers exactly as FastAPI's own routing does, and takes nothing that it should not."""

import asyncio
import gzip
import json

import httpx
import numpy as np
import pytest

from headrace.errors import InputError
from headrace.serving.batching.batcher import Batcher
from headrace.serving.config import ServeConfig
from headrace.serving.http import hot_routes
from headrace.serving.http.app import create_app
from headrace.serving.http.hot_routes import HotApp
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.models import TensorModel
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane


@pytest.fixture(scope="module")
def apps(models):
    """(with the short way, without it) over one data plane."""
    config = ServeConfig.of(models=models, instances=1, threads=1, max_body_bytes=100_000)
    repository = ModelRepository(config)
    repository.load(lambda _: None)
    pool = DecodePool(2, limit=16)
    plane = DataPlane(repository, pool, config)
    short, long = create_app(plane), create_app(plane)
    long.serve_directly([])
    yield short, long
    repository.drain()
    repository.close()
    pool.close()


def call(app, method, path, content=b"", headers=None):
    async def send():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
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
    "json": ("/v2/models/tiny/infer", JSON.encode(), {}),
    "a version": ("/v2/models/tiny/versions/1/infer", JSON.encode(), {}),
    "binary": ("/v2/models/tiny/infer", *BINARY),
    "gzip": ("/v2/models/tiny/infer", gzip.compress(JSON.encode()), {"Content-Encoding": "gzip"}),
    "raw": ("/v2/models/tiny/infer", PIXELS.tobytes(), {"Inference-Header-Content-Length": "0"}),
    "an unknown model": ("/v2/models/none/infer", JSON.encode(), {}),
    "an unknown version": ("/v2/models/tiny/versions/9/infer", JSON.encode(), {}),
    "a version that is none": ("/v2/models/tiny/versions/x/infer", JSON.encode(), {}),
    "an escaped name": ("/v2/models/t%69ny/infer", JSON.encode(), {}),
    "an escaped slash": ("/v2/models/a%2Ftiny/infer", JSON.encode(), {}),
    "dots": ("/v2/models/../tiny/infer", JSON.encode(), {}),
    "a slash at the end": ("/v2/models/tiny/infer/", JSON.encode(), {}),
    "two slashes": ("/v2/models//infer", JSON.encode(), {}),
    "a line break in the name": ("/v2/models/tiny%0A/infer", JSON.encode(), {}),
    "a line break at the end": ("/v2/models/tiny/infer%0A", JSON.encode(), {}),
    "bad json": ("/v2/models/tiny/infer", b"{", {}),
    "a wrong header length": ("/v2/models/tiny/infer", JSON.encode(), {"Inference-Header-Content-Length": "x"}),
    "too much": ("/v2/models/tiny/infer", b"x" * 100_001, {}),
    "a query": ("/v2/models/tiny/infer?x=1", JSON.encode(), {}),
    "an image": ("/v1/classify/tiny", "image", {}),
    "three labels": ("/v1/classify/tiny?k=3", "image", {}),
    "the ensemble": ("/v1/classify/tiny_classify?k=1000", "image", {}),
    "a form": ("/v1/classify/tiny?k=2", "form", FORM[1]),
    "no labels": ("/v1/classify/tiny?k=0", "image", {}),
    "too many labels": ("/v1/classify/tiny?k=1001", "image", {}),
    "a leading zero": ("/v1/classify/tiny?k=05", "image", {}),
    "a label count that is none": ("/v1/classify/tiny?k=two", "image", {}),
    "twice": ("/v1/classify/tiny?k=2&k=3", "image", {}),
    "a deadline": ("/v1/classify/tiny?k=2&timeout_ms=10000", "image", {}),
    "a deadline alone": ("/v1/classify/tiny?timeout_ms=10000.5", "image", {}),
    "a deadline first": ("/v1/classify/tiny?timeout_ms=10000&k=2", "image", {}),
    "a deadline that is over": ("/v1/classify/tiny?timeout_ms=0", "image", {}),
    "a deadline too far": ("/v1/classify/tiny?timeout_ms=3600001", "image", {}),
    "a deadline in words": ("/v1/classify/tiny?k=2&timeout_ms=1e4", "image", {}),
    "no sign between": ("/v1/classify/tiny?k=2timeout_ms=10000", "image", {}),
    "no image": ("/v1/classify/tiny", b"hello", {}),
    "nothing": ("/v1/classify/tiny", b"", {}),
    "classified by nothing": ("/v1/classify/none", "image", {}),
}
DIRECT = {"json", "a version", "binary", "gzip", "raw", "an escaped name", "an image", "three labels", "the ensemble", "a form"}
DIRECT |= {"a deadline", "a deadline alone"}


@pytest.mark.parametrize("name", REQUESTS)
def test_both_ways_answer_alike(name, apps, make_photo):
    path, content, headers = REQUESTS[name]
    image = make_photo(3)
    content = {"image": image, "form": FORM[0] % image}.get(content, content) if isinstance(content, str) else content
    short, long = (call(app, "POST", path, content, headers) for app in apps)
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert dict(short.headers) == dict(long.headers)
    if name in DIRECT:
        assert short.status_code == 200, short.text


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_usual_requests_do_not_go_through_the_router(name, apps, make_photo, monkeypatch):
    path, content, headers = REQUESTS[name]
    content = {"image": make_photo(3), "form": FORM[0] % make_photo(3)}[content] if isinstance(content, str) else content
    monkeypatch.setattr(hot_routes.FastAPI, "__call__", lambda *_: pytest.fail("went through FastAPI"))
    assert call(apps[0], "POST", path, content, headers).status_code == 200


@pytest.mark.parametrize(("k", "best"), [(1, 1), (3, 3), (7, 7), (900, 7)])
def test_only_the_classes_that_are_asked_for_are_taken_from_the_batch(k, best, apps, make_photo, monkeypatch):
    """The same that all outputs would say."""
    admitted, admit = [], Batcher.admit
    monkeypatch.setattr(
        Batcher, "admit", lambda self, *a, **options: admitted.append(options["best"]) or admit(self, *a, **options)
    )
    taken = call(apps[0], "POST", f"/v1/classify/tiny?k={k}", make_photo(3)).json()["predictions"]
    assert admitted == [best]
    monkeypatch.setattr(TensorModel, "choices", 0)
    whole = call(apps[0], "POST", f"/v1/classify/tiny?k={k}", make_photo(3)).json()["predictions"]
    assert admitted == [best, 0]
    assert len(taken) == best
    assert [(one["index"], one["label"]) for one in taken] == [(one["index"], one["label"]) for one in whole]
    np.testing.assert_allclose([one["probability"] for one in taken], [one["probability"] for one in whole], rtol=1e-4)


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v1/classify/tiny"])
def test_other_methods_are_the_routers(method, path, apps):
    short, long = (call(app, method, path) for app in apps)
    assert short.status_code == 405
    assert (short.content, dict(short.headers)) == (long.content, dict(long.headers))


def test_the_routes_are_described(apps):
    assert apps[0].openapi() == apps[1].openapi()
    assert {"/v2/models/{model}/infer", "/v1/classify/{model}"} <= apps[0].openapi()["paths"].keys()


def test_what_nobody_foresaw_says_nothing_of_the_inside(apps, monkeypatch):
    for app in apps:
        monkeypatch.setattr(DataPlane, "classify", lambda *_, **__: 1 / 0)
        answer = call(app, "POST", "/v1/classify/tiny", b"x")
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error; the server's log says more"})
        with pytest.raises(ZeroDivisionError):  # goes up to the server, whose log says more
            asyncio.run(_raising(app))


async def _raising(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        await client.post("/v1/classify/tiny", content=b"x")


def test_requests_are_seen_by_what_stands_around():
    """A log outside finds the model in the scope, as the router leaves it there."""
    seen = []

    async def refuse(*_, **__):
        raise InputError("no")

    app = HotApp()
    app.add_api_route("/v2/models/{model}/versions/{version}/infer", refuse, methods=["POST"])
    app.serve_directly(app.routes[-1:])

    async def error(_, __):
        return hot_routes.Response(status_code=400)

    app.add_exception_handler(hot_routes.RequestError, error)

    async def outside(scope, receive, send):
        await app(scope, receive, send)
        seen.append(scope["path_params"])

    assert call(outside, "POST", "/v2/models/a/versions/3/infer").status_code == 400
    assert seen == [{"model": "a", "version": "3"}]
