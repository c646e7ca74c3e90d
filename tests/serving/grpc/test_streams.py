"""ModelStreamInfer with the real clients: each request answered as it is done, errors in-band, and none left behind."""

import asyncio
import queue
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.serving.inputs import input_of, noise


def test_many_requests_of_one_stream(server, scores_of):
    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        batches = {str(number): noise(1 + number % 4, seed=number) for number in range(200)}
        for number, images in batches.items():
            client.async_stream_infer("tiny", [input_of(triton, images)], request_id=number)
        got = {}
        for _ in batches:
            result, error = answers.get(timeout=30)
            assert error is None
            got[result.get_response().id] = result
        client.stop_stream()
    assert got.keys() == batches.keys()
    for number, result in got.items():
        np.testing.assert_allclose(result.as_numpy("scores"), scores_of(batches[number]), rtol=1e-4, atol=1e-5)
        assert result.get_response().parameters["triton_final_response"].bool_param


def test_an_error_ends_its_request_and_not_the_stream(server):
    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for model, rows in (("nope", 1), ("tiny", 9), ("fragile", 1), ("tiny", 1)):
            images = noise(rows) * (1e9 if model == "fragile" else 1)
            client.async_stream_infer(model, [input_of(triton, images)])
        got = [answers.get(timeout=30) for _ in range(4)]
        client.stop_stream()
    errors = sorted(str(error) for _, error in got if error is not None)
    assert len(errors) == 3
    for text, error in zip(
        ("Request for unknown model: 'nope' is not found", "batch-size", "failed on this request"), errors, strict=True
    ):
        assert text in error
    assert all(isinstance(error, InferenceServerException) for _, error in got if error is not None)
    assert next(result for result, error in got if error is None).as_numpy("scores").shape == (1, 7)


def test_asyncio_client(server, scores_of):
    async def work():
        images = noise(2)

        async def requests():
            for number in range(20):
                yield {"model_name": "tiny", "inputs": [input_of(triton_aio, images)], "request_id": str(number)}

        async with triton_aio.InferenceServerClient(server.grpc) as client:
            seen = set()
            async for result, error in client.stream_infer(requests()):
                assert error is None
                np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)
                seen.add(result.get_response().id)
        return seen

    assert asyncio.run(work()) == {str(number) for number in range(20)}


def test_a_message_that_is_none_is_answered_in_band_and_alone_as_an_error(server):
    import grpc

    path = "/inference.GRPCInferenceService/"
    with grpc.insecure_channel(server.grpc) as channel:
        raw = channel.stream_stream(f"{path}ModelStreamInfer")
        (answer,) = raw(iter([b"\xff\xff\xff"]), timeout=30)
        assert "not a valid ModelInferRequest" in service_pb2.ModelStreamInferResponse.FromString(answer).error_message
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{path}ModelInfer")(b"\xff\xff\xff", timeout=30)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{path}Nope")(b"", timeout=30)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_cancelled_stream_leaves_the_queue(start, slow_models):
    server = start(slow_models)
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: None)
        sent = 0
        while _pending(server) < 40 and sent < 20_000:  # a busy machine may look, and send, later than they are answered
            for _ in range(60):
                client.async_stream_infer("slow", [input_of(triton, noise(1))])
            sent += 60
        client.stop_stream(cancel_requests=True)
        end = time.monotonic() + 60
        while _pending(server) and time.monotonic() < end:
            time.sleep(0.02)
        assert _pending(server) == 0
        statistics = client.get_inference_statistics("slow").model_stats[0]
        assert statistics.inference_count < sent
        assert statistics.inference_stats.fail.count > 0
        assert client.infer("slow", [input_of(triton, noise(1))]).as_numpy("scores").shape == (1, 7)


def _pending(server) -> float:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        lines = response.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("nv_inference_pending")).rsplit(" ", 1)[1])
