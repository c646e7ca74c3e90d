"""The cases of NVIDIA's qa suites L0_request_cancellation, L0_client_timeout and L0_grpc_state_cleanup; each test names its
cases.

What a client gives up leaves the queue, and nothing of it stays in the server: no pending request, no file, no thread.
"""

import asyncio
import http.client
import json
import queue
import signal
import socket
import time
import urllib.request

import grpc
import psutil
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.serving.inputs import input_of, noise

# Calls that are made at a time: at some ten milliseconds each, far more than are answered before they are given up.
MANY = 60


def _pending(server) -> float:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("nv_inference_pending_request_count{"))


def _until(condition, seconds: float = 90) -> bool:
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return holds


@pytest.fixture(scope="module")
def slow(slow_models, launch):
    with launch(slow_models, default_timeout_seconds=120.0) as server:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            client.infer("slow", [input_of(triton_grpc, noise(8))])
        yield server


@pytest.fixture(autouse=True)
def nothing_left(slow):
    """Afterwards all queues are empty, and files and threads are as many as before."""
    process = psutil.Process(slow.process.pid)
    with urllib.request.urlopen(f"http://{slow.metrics}/metrics"):
        pass
    files, threads = process.num_fds(), process.num_threads()
    yield
    assert _until(lambda: _pending(slow) == 0)
    # Threads of grpc's own pool come and go; each request's would be many.
    assert _until(lambda: process.num_fds() <= files + 2), (files, process.num_fds())
    assert _until(lambda: process.num_threads() <= threads + 8), (threads, process.num_threads())
    with triton_http.InferenceServerClient(slow.http) as client:
        assert client.infer("slow", [input_of(triton_http, noise(8))]).as_numpy("scores").shape == (8, 7)


def test_calls(slow):
    """L0_request_cancellation: test_grpc_async_infer, its cancellations at every moment; L0_grpc_state_cleanup:
    test_simple_infer_cancellation."""
    answers: queue.Queue = queue.Queue()
    with triton_grpc.InferenceServerClient(slow.grpc) as client:
        calls = [
            client.async_infer("slow", [input_of(triton_grpc, noise(8))], callback=lambda result, error: answers.put(error))
            for _ in range(MANY)
        ]
        assert _until(lambda: _pending(slow) > 5)
        for number, call in enumerate(calls):
            call.cancel()
            time.sleep(0.001 * (number % 3))
        errors = [answers.get(timeout=60) for _ in calls]
    given_up = [error for error in errors if error is not None]
    assert len(given_up) > MANY / 4
    assert all("Locally cancelled by application!" in str(error) for error in given_up)


def test_streams(slow):
    """L0_request_cancellation: test_grpc_stream_infer; L0_grpc_state_cleanup: test_streaming_cancellation,
    test_decoupled_cancellation."""
    answers: queue.Queue = queue.Queue()
    with triton_grpc.InferenceServerClient(slow.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error))
        for _ in range(MANY):
            client.async_stream_infer("slow", [input_of(triton_grpc, noise(8))])
        assert answers.get(timeout=60) is None  # the first answer came, the others wait
        client.stop_stream(cancel_requests=True)
    rest = [answers.get() for _ in range(answers.qsize())]
    assert "Locally cancelled by application!" in str(rest[-1])


def test_asyncio_calls_and_streams(slow):
    """L0_request_cancellation: test_aio_grpc_async_infer, test_aio_grpc_stream_infer."""

    async def run() -> None:
        async with triton_grpc_aio.InferenceServerClient(slow.grpc) as client:
            tasks = [asyncio.create_task(client.infer("slow", [input_of(triton_grpc_aio, noise(8))])) for _ in range(MANY)]
            await asyncio.to_thread(_until, lambda: _pending(slow) > 5)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert any(isinstance(one, asyncio.CancelledError) for one in ended)

            async def requests():
                for _ in range(MANY):
                    yield {"model_name": "slow", "inputs": [input_of(triton_grpc_aio, noise(8))]}

            answers = client.stream_infer(requests())
            await anext(aiter(answers))
            assert answers.cancel()
            with pytest.raises(asyncio.CancelledError):
                async for _ in answers:
                    pass

    asyncio.run(run())


def test_http_clients_that_leave(slow):
    """L0_request_cancellation: http_cancellation_test.py: gone clients' requests leave the queue; connections that stay work
    on."""
    body = json.dumps(
        {"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.5] * 768}]}
    ).encode()
    head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    connections = [socket.create_connection(slow.http.split(":")) for _ in range(MANY)]
    for connection in connections:
        connection.sendall(head + body)
    assert _until(lambda: _pending(slow) > 5)
    for connection in connections:
        connection.close()
    staying = http.client.HTTPConnection(slow.http, timeout=120)
    for _ in range(3):
        staying.request("POST", "/v2/models/slow/infer", body)
        response = staying.getresponse()
        assert response.status == 200
        assert json.loads(response.read())["outputs"][0]["shape"] == [1, 7]
    staying.close()


def test_time_outs_of_clients(slow):
    """L0_client_timeout: test_grpc_infer, test_grpc_async_infer, test_grpc_stream_infer, test_http_infer,
    test_http_async_infer."""
    with triton_grpc.InferenceServerClient(slow.grpc) as client:
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            client.infer("slow", [input_of(triton_grpc, noise(8))], client_timeout=0.001)
        assert client.infer("slow", [input_of(triton_grpc, noise(8))], client_timeout=60).as_numpy("scores").shape == (8, 7)
        answers: queue.Queue = queue.Queue()
        client.async_infer(
            "slow", [input_of(triton_grpc, noise(8))], callback=lambda result, error: answers.put(error), client_timeout=0.001
        )
        assert "Deadline Exceeded" in str(answers.get(timeout=60))
        client.start_stream(lambda result, error: answers.put(error), stream_timeout=0.3)
        for _ in range(MANY):
            client.async_stream_infer("slow", [input_of(triton_grpc, noise(8))])
        errors = []
        while not errors:
            errors += filter(None, [answers.get(timeout=60)])
        assert "Deadline Exceeded" in str(errors[0])
        client.stop_stream()
    with triton_http.InferenceServerClient(slow.http, network_timeout=0.001) as client, pytest.raises(TimeoutError):
        client.infer("slow", [input_of(triton_http, noise(8))])
    with triton_http.InferenceServerClient(slow.http, network_timeout=0.001) as client, pytest.raises(TimeoutError):
        client.async_infer("slow", [input_of(triton_http, noise(8))]).get_result()


def test_time_outs_of_every_other_call(slow):
    """L0_client_timeout: client_non_infer_timeout_test.py: each call takes one, and works when the server answers in time."""
    calls = (
        ("is_server_live", (), ""), ("is_server_ready", (), ""), ("is_model_ready", ("slow",), ""), ("get_server_metadata",
        (), ""),
        ("get_model_metadata", ("slow",), ""), ("get_model_config", ("slow",), ""), ("get_model_repository_index", (), ""),
        ("get_inference_statistics", (), ""), ("load_model", ("slow",), "not enabled"), ("unload_model", ("slow",),
        "not enabled"),
        ("update_trace_settings", ("slow", {}), "not enabled"), ("get_trace_settings", (), "not enabled"),
        ("update_log_settings", ({},), "not enabled"), ("get_log_settings", (), "not enabled"),
        ("get_system_shared_memory_status", (), ""), ("register_system_shared_memory", ("", "", 0), "not enabled"),
        ("unregister_system_shared_memory", (), "not enabled"), ("get_cuda_shared_memory_status", (), ""),
        ("register_cuda_shared_memory", ("", b"", 0, 0), "not supported"), ("unregister_cuda_shared_memory", (), ""),
    )  # fmt: skip
    with triton_grpc.InferenceServerClient(slow.grpc) as client:
        assert client.is_server_live()
        slow.process.send_signal(signal.SIGSTOP)
        try:
            for name, arguments, _ in calls:
                with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
                    getattr(client, name)(*arguments, client_timeout=0.1)
        finally:
            slow.process.send_signal(signal.SIGCONT)
        for name, arguments, refusal in calls:
            try:
                getattr(client, name)(*arguments, client_timeout=60)
            except InferenceServerException as error:
                assert refusal, name
                assert refusal in str(error)  # noqa: PT017 - whether it is raised depends on the call


@pytest.mark.parametrize("stream", [False, True])
def test_the_server_stops_meanwhile(start, slow_models, stream):
    """L0_grpc_state_cleanup: test_simple_infer_shutdownserver, test_streaming_infer_shutdownserver, ..._error_status."""
    server = start(slow_models, default_timeout_seconds=120.0)
    answers: queue.Queue = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        if stream:
            client.start_stream(lambda result, error: answers.put((result, error)))
        for _ in range(10):
            if stream:
                client.async_stream_infer("slow", [input_of(triton_grpc, noise(8))])
            else:
                client.async_infer(
                    "slow", [input_of(triton_grpc, noise(8))], callback=lambda result, error: answers.put((result, error))
                )
        assert answers.get(timeout=60)[1] is None
        server.process.send_signal(signal.SIGTERM)
        ended = [answers.get(timeout=60) for _ in range(9)]
        assert all(result is not None or isinstance(error, InferenceServerException) for result, error in ended)
        if stream:
            client.stop_stream()
    assert server.process.wait(60) == 0, server.output
    assert "Traceback" not in server.output, server.output
    with triton_grpc.InferenceServerClient(server.grpc) as client, pytest.raises((InferenceServerException, grpc.RpcError)):
        client.infer("slow", [input_of(triton_grpc, noise(8))], client_timeout=10)
