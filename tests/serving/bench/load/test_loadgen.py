"""The load generator against small real services on sockets."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
import uvicorn

from headrace.errors import BenchError
from headrace.serving.bench.load import http_load
from headrace.serving.bench.load.loadgen import LoadRequest, LoadResult, run


def answer(index):
    return json.dumps({"predictions": [{"index": index, "label": None, "score": 1.0}]}).encode()


class Service:
    """A service whose `behave(body, number)` gives status, body and headers, and that counts what it saw."""

    def __init__(self, behave):
        self.behave, self.bodies, self.clients, self.started = behave, Counter(), set(), time.monotonic()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies[body] += 1
        self.clients.add(scope["client"])
        status, data, headers = await self.behave(body, sum(self.bodies.values()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})


@contextlib.contextmanager
def listening(app):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/classify/model?k=5"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def images(tmp_path):
    paths = []
    for number in range(6):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(bytes([number]) * (1 + 10_000 * number))
        paths.append(str(path))
    return tuple(paths)


def test_once_sends_every_image_once_and_keeps_the_answers_in_order(images):
    async def behave(body, number):
        await asyncio.sleep(0.02 * (number % 2))  # answers arrive in another order than they were asked for
        return 200, answer(10 + body[0]), []

    service = Service(behave)
    with listening(service) as url:
        result = run(LoadRequest(url=url, images=images, kind="once", connections=3))
    assert result.answers == (10, 11, 12, 13, 14, 15)
    assert result.errors == {}
    assert set(service.bodies.values()) == {1}
    assert {len(body) for body in service.bodies} == {1 + 10_000 * number for number in range(6)}


def test_closed_loop_keeps_its_connections_and_times_what_the_service_takes(images):
    async def behave(body, number):
        await asyncio.sleep(0.03)
        return 200, answer(body[0]), []

    service = Service(behave)
    with listening(service) as url:
        result = run(LoadRequest(url=url, images=images, connections=4, warm_up_seconds=0.2, seconds=1.0))
    assert len(service.clients) == 4
    assert result.errors == {}
    assert result.latency_ms["p50"] >= 30
    assert 0 < result.requests_per_second <= 4 / 0.03  # how near, is up to what else the machine does
    assert result.sent == sum(service.bodies.values()) > result.completed
    # What was under way at the end of the window is timed too, so slow answers cannot fall out of the latencies.
    assert result.completed - 4 <= result.samples <= result.completed + 4
    assert sum(result.histogram["counts"]) == result.samples
    assert result.answers == (0, 1, 2, 3, 4, 5)


def test_warm_up_is_not_measured(images):
    async def behave(body, number):
        await asyncio.sleep(1.5 if number == 1 else 0.005)
        return 200, answer(0), []

    with listening(Service(behave)) as url:
        result = run(LoadRequest(url=url, images=images, warm_up_seconds=1.6, seconds=1.0))
    assert result.samples > 0
    assert result.latency_ms["max"] < 1500


def test_errors_are_counted_by_status_with_an_example(images):
    async def behave(body, number):
        return (500, b'{"error": "it broke"}', []) if number % 3 == 0 else (200, answer(0), [])

    with listening(Service(behave)) as url:
        result = run(LoadRequest(url=url, images=images, kind="once"))
    assert result.errors == {"500": 2}
    assert result.rejected == {}
    assert "it broke" in result.error_examples["500"]
    assert result.answers == (0, 0, None, 0, 0, None)


def test_what_the_service_declines_is_counted_and_timed_apart_from_failures(images):
    async def behave(body, number):
        if number % 3 == 1:
            return 200, answer(0), []
        await asyncio.sleep(0.02)
        return (503, b'{"error": "queue full"}', []) if number % 3 else (429, b"{}", [])

    with listening(Service(behave)) as url:
        result = run(LoadRequest(url=url, images=images, kind="once"))
    assert result.errors == {}
    assert result.rejected == {"503": 2, "429": 2}
    assert result.rejected_ms["p50"] >= 20
    assert result.samples == 2
    assert "queue full" in result.error_examples["503"]
    assert result.rejected_per_second == pytest.approx(4 / result.seconds)


def test_an_answer_without_a_label_index_is_an_error(images):
    async def behave(body, number):
        return 200, b"<html>", []

    with listening(Service(behave)) as url:
        result = run(LoadRequest(url=url, images=images, kind="once"))
    assert result.errors == {"unreadable": 6}
    assert result.answers == (None,) * 6


def test_a_service_that_closes_every_connection_is_connected_to_again(images):
    async def behave(body, number):
        return 200, answer(body[0]), [(b"connection", b"close")]

    service = Service(behave)
    with listening(service) as url:
        result = run(LoadRequest(url=url, images=images, kind="once", connections=2))
    assert result.errors == {}
    assert result.answers == (0, 1, 2, 3, 4, 5)
    assert len(service.clients) == 6


def test_a_request_without_an_answer_times_out_and_the_rest_goes_on(images):
    async def behave(body, number):
        if body[0] == 2:
            await asyncio.sleep(30)
        return 200, answer(body[0]), []

    with listening(Service(behave)) as url:
        result = run(LoadRequest(url=url, images=images, kind="once", timeout_seconds=4.0))
    assert result.errors == {"timeout": 1}
    assert result.answers == (0, 1, None, 3, 4, 5)


def test_poisson_times_late_requests_from_when_they_were_due(images):
    async def behave(body, number):
        await asyncio.sleep(0.05)
        return 200, answer(0), []

    with listening(Service(behave)) as url:
        late = run(LoadRequest(url=url, images=images, kind="poisson", rate=40, warm_up_seconds=0, seconds=1.5))
        timely = run(
            LoadRequest(url=url, images=images, kind="poisson", rate=40, connections=32, warm_up_seconds=0, seconds=1.5)
        )
    # One connection carries at most 20 of the 40 requests per second, so the last ones wait about as long as the whole run.
    assert late.latency_ms["max"] > 400
    assert timely.latency_ms["p50"] < late.latency_ms["p50"]
    assert late.sent == timely.sent  # the same seed, the same moments
    assert 30 < timely.sent < 90


def test_several_processes_share_the_load_and_merge_what_they_saw(images):
    async def behave(body, number):
        await asyncio.sleep(0.01)
        return (503, b"", []) if body[0] == 5 else (200, answer(body[0]), [])

    service = Service(behave)
    with listening(service) as url:
        result = run(
            LoadRequest(url=url, images=images, connections=5, processes=2, warm_up_seconds=0.2, seconds=1.0, kind="closed")
        )
        assert len(service.clients) == 5
        paced = run(LoadRequest(url=url, images=images, connections=8, processes=2, seconds=1.5, kind="poisson", rate=60.0))
    assert result.errors == {}
    assert result.sent == pytest.approx(sum(service.bodies.values()) - paced.sent)
    assert result.answers == (0, 1, 2, 3, 4, None)
    assert result.rejected["503"] > 0
    assert sum(result.histogram["counts"]) == result.samples > 0
    assert result.latency_ms["p50"] >= 10
    assert 80 < paced.sent < 220  # 2.5 s of 60 per second


def test_shares_add_up_to_the_whole():
    whole = LoadRequest(url="http://h/", images=("a", "b"), connections=7, processes=3, kind="poisson", rate=30.0)
    shares = whole.shares()
    assert [share.connections for share in shares] == [3, 2, 2]
    assert sum(share.rate for share in shares) == pytest.approx(30.0)
    assert len({share.seed for share in shares}) == 3


def test_a_process_that_fails_ends_the_run(images, tmp_path):
    with pytest.raises(BenchError, match="before it began"):
        run(LoadRequest(url="http://127.0.0.1:1/", images=(str(tmp_path / "gone.png"),), connections=2, processes=2))


def one_shot(reply):
    """A raw socket that answers every request with the same bytes and hangs up."""

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 20)
                connection.sendall(reply)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return listener


@pytest.mark.parametrize(("reply", "reason"), [(b"not http at all\r\n\r\n", "malformed"), (b"", "connection")])
def test_broken_answers_are_errors(images, reply, reason):
    listener = one_shot(reply)
    try:
        result = run(LoadRequest(url=f"http://127.0.0.1:{listener.getsockname()[1]}/", images=images[:1], kind="once"))
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    assert result.errors == {reason: 1}
    assert result.answers == (None,)


def test_a_service_that_is_not_there_ends_the_run(images, monkeypatch):
    monkeypatch.setattr(http_load, "RECONNECT_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    result = run(LoadRequest(url=url, images=images, kind="once", connections=2))
    assert result.errors == {"connection": 2 * http_load.RECONNECT_ATTEMPTS}
    assert result.answers == (None,) * 6


def test_the_process_reads_a_request_and_writes_a_result(images, tmp_path):
    async def behave(body, number):
        return 200, answer(body[0]), []

    source, target = tmp_path / "request.json", tmp_path / "result.json"
    with listening(Service(behave)) as url:
        request = LoadRequest(url=url, images=images, warm_up_seconds=0.1, seconds=0.3, connections=2)
        source.write_text(json.dumps(request.to_json()))
        subprocess.run(
            [sys.executable, "-m", "headrace.serving.bench.load.loadgen", str(source), str(target)], check=True, timeout=60
        )
    result = LoadResult.from_json(json.loads(target.read_text()))
    assert result.errors == {}
    assert result.completed > 0
    assert result.client_cpu_us_per_request > 0
    assert LoadRequest.from_json(json.loads(source.read_text())) == request


def test_the_process_says_what_is_wrong_and_writes_nothing(tmp_path):
    source, target = tmp_path / "request.json", tmp_path / "result.json"
    source.write_text(json.dumps({"url": "http://127.0.0.1:1/", "images": [str(tmp_path / "missing.jpg")]}))
    done = subprocess.run(
        [sys.executable, "-m", "headrace.serving.bench.load.loadgen", str(source), str(target)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "missing.jpg" in done.stderr
    assert "Traceback" not in done.stderr
    assert not target.exists()


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(BenchError, match=r"gone\.png"):
        run(LoadRequest(url="http://127.0.0.1:1/", images=(str(tmp_path / "gone.png"),)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"url": "ftp://x/"}, "url"),
        ({"images": ()}, "images"),
        ({"kind": "open"}, "kind"),
        ({"connections": 0}, "connections"),
        ({"seconds": 0}, "seconds"),
        ({"kind": "poisson"}, "rate"),
        ({"url": "grpc://localhost:1"}, "MODEL"),
        ({"processes": 2}, "processes"),
        ({"encoding": "telegram"}, "encoding"),
        ({"kind": "once", "connections": 2, "processes": 2}, "processes"),
    ],
)
def test_requests_are_validated(change, named):
    with pytest.raises(ValueError, match=named):
        LoadRequest(**{"url": "http://127.0.0.1:1/", "images": ("a.jpg",), **change})
