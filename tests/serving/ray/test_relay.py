"""The ingress and a replica's data plane without Ray between them, beside one server. No Ray is needed."""

import asyncio
import contextlib
import pickle

import httpx
import pytest

from headrace.errors import OverloadedError, RequestError
from headrace.serving.config import ServeConfig
from headrace.serving.http.app import create_app
from headrace.serving.http.edge import Edge
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane
from headrace.serving.ray.config import RayConfig, replica_config
from headrace.serving.ray.engine import MultiplexedModel
from headrace.serving.ray.message import Reply, call_of, respond
from headrace.serving.ray.relay import Relay
from headrace.serving.ray.routing import model_groups


@pytest.fixture(scope="module")
def engine(models):
    """What a replica does with a call, by way of the bytes that it comes as."""
    config = replica_config(ServeConfig.of(models=models, instances=1), RayConfig())
    repository, decoder = ModelRepository(config), DecodePool(2, limit=config.batching.queue())
    repository.load()
    app = create_app(DataPlane(repository, decoder, config))

    async def answer(group, call):
        with contextlib.suppress(RequestError):
            if group:
                await repository.load_model(group)
        return pickle.loads(pickle.dumps(await respond(app, pickle.loads(pickle.dumps(call)))))

    for group in set(model_groups(models).values()):
        with contextlib.suppress(RequestError):
            repository.start_load(group).result(60)
    yield answer
    repository.close()
    decoder.close()


def client_of(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here")


def relay_of(models, engine, **options):
    return Relay(ServeConfig.of(models=models, **options), model_groups(models), engine)


def test_answers_are_those_of_one_server(server, models, engine, requests, said_of):
    async def ask():
        async with client_of(Edge(relay_of(models, engine))) as client:
            return {name: said_of(await client.request(**request)) for name, request in requests.items()}

    answers = asyncio.run(ask())
    with httpx.Client(base_url=server.url) as client:
        for name, request in requests.items():
            assert answers[name] == said_of(client.request(**request)), name
    assert {name for name, answer in answers.items() if answer[0] == 200} >= {"json", "binary", "image", "form", "ready"}


def test_tokens_and_ids(models, engine):
    """The token stays at the edge; the id goes with the request."""
    calls = []

    async def note(group, call):
        calls.append(call)
        return Reply(200, [], b"")

    async def ask():
        async with client_of(Edge(relay_of(models, note))) as client:
            return await client.get("/v2", headers={"Authorization": "Bearer of-nothing", "X-Request-Id": "mine"})

    assert asyncio.run(ask()).headers["x-request-id"] == "mine"
    (call,) = calls
    assert call.request_id == "mine"
    assert b"authorization" not in dict(call.headers)


def test_no_replica_is_said_as_it_is(models):
    async def nobody(group, call):
        raise OverloadedError("nobody is there", retry_after=7)

    async def never(group, call):
        await asyncio.sleep(60)

    async def ask():
        async with client_of(relay_of(models, nobody)) as client:
            ready, infer = await client.get("/v2/health/ready"), await client.post("/v2/models/tiny/infer", json={})
            live = await client.get("/v2/health/live")
        async with client_of(relay_of(models, never, default_timeout_seconds=0.05)) as client:
            return ready, infer, live, await client.post("/v2/models/tiny/infer", json={})

    ready, infer, live, late = asyncio.run(ask())
    assert (ready.status_code, ready.json(), live.json()) == (503, {"ready": False}, {"live": True})
    assert (infer.status_code, infer.json(), infer.headers["retry-after"]) == (503, {"error": "nobody is there"}, "7")
    assert (late.status_code, late.json()["error"]) == (503, "no replica has answered within 0.1 s; try again later")


def test_models_cannot_be_loaded_by_hand(models, engine):
    async def ask():
        async with client_of(relay_of(models, engine)) as client:
            return await client.post("/v2/repository/models/tiny/unload")

    answer = asyncio.run(ask())
    assert answer.status_code == 501
    assert "model control is not offered on a cluster" in answer.json()["error"]


def test_a_body_that_does_not_come(models, engine):
    async def slow():
        yield b"x"
        await asyncio.sleep(0.5)
        yield b"y"

    async def ask():
        async with client_of(relay_of(models, engine, body_timeout_seconds=0.1)) as client:
            return await client.post("/v1/classify/tiny", content=slow())

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()) == (408, {"error": "the body did not arrive within 0.1 s"})


def test_a_cancelled_call_is_cancelled_inside():
    ended, watching = [], asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        watching.set()
        try:
            await receive()  # watches for a client that leaves
        except asyncio.CancelledError:
            ended.append(scope["path"])
            raise

    async def ask():
        scope = {"method": "GET", "path": "/v2", "headers": []}
        call = asyncio.ensure_future(respond(app, call_of(scope, b"")))
        await watching.wait()
        await asyncio.sleep(0)  # it waits in there
        call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())
    assert ended == ["/v2"]


def test_a_model_is_dropped_after_its_last_request(repository):
    repository.package("one")
    held = ModelRepository(ServeConfig.of(models=repository.path, model_control_mode="explicit", threads=1, instances=1))
    held.load()

    async def work():
        await held.load_model("one")
        model = MultiplexedModel("one", held, drain_seconds=20)
        assert model.leases.acquire()
        dropping = asyncio.create_task(model.__del__())
        await asyncio.sleep(0.2)
        assert not dropping.done()
        assert not model.leases.acquire()
        assert held.get("one").name == "one"
        model.leases.release()
        await dropping
        assert held.ready_models() == []

    asyncio.run(work())
    held.close()
