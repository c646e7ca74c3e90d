"""The gRPC front end with the real tritonclient; its answers are those of HTTP."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.serving.inputs import input_of, noise


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc) as opened:
        yield opened


def test_health_and_metadata_are_those_of_http(server, client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert not client.is_model_ready("damaged")
    with triton_http.InferenceServerClient(server.http) as http:
        assert client.get_server_metadata(as_json=True) == http.get_server_metadata()
        metadata = client.get_model_metadata("tiny", as_json=True)
        for side in ("inputs", "outputs"):
            for tensor in metadata[side]:
                tensor["shape"] = [int(size) for size in tensor["shape"]]
        assert metadata == http.get_model_metadata("tiny")
        assert client.get_model_config("tiny").config.max_batch_size == 8
        index = [(m.name, m.version, m.state, m.reason) for m in client.get_model_repository_index().models]
        assert index == [(m["name"], m["version"], m["state"], m["reason"]) for m in http.get_model_repository_index()]


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_infer(client, scores_of, rows):
    images = noise(rows)
    result = client.infer("tiny", [input_of(triton, images)], request_id="x")
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)
    assert result.get_response().id == "x"


def test_classification_and_images(client, make_photo, reference, labels):
    photos = [make_photo(seed) for seed in range(2)]
    tensor = triton.InferInput("IMAGE", [2, 1], "BYTES")
    tensor.set_data_from_numpy(np.array(photos, dtype=object).reshape(2, 1))
    result = client.infer("tiny_classify", [tensor], outputs=[triton.InferRequestedOutput("scores", class_count=2)])
    for strings, photo in zip(result.as_numpy("scores"), photos, strict=True):
        best = int(np.argmax(reference(photo)[1]))
        assert strings[0].decode().endswith(f":{best}:{labels[best]}")


def test_typed_contents(server, scores_of):
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    images = noise(1)
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="tiny")
        tensor = request.inputs.add(name="images", datatype="FP32", shape=images.shape)
        tensor.contents.fp32_contents.extend(images.ravel())
        answer = np.frombuffer(stub.ModelInfer(request).raw_output_contents[0], np.float32)
        np.testing.assert_allclose(answer, scores_of(images)[0], rtol=1e-4, atol=1e-5)
        for change in (
            lambda r: r.raw_input_contents.append(b"x"),
            lambda r: r.raw_input_contents.extend([b"", b""]),
            lambda r: r.inputs[0].contents.int_contents.append(1),
            lambda r: r.inputs[0].contents.fp32_contents.append(1),
            lambda r: setattr(r.inputs[0], "datatype", "FP16"),
            lambda r: setattr(r.inputs[0], "datatype", "nope"),
            lambda r: r.inputs[0].shape.append(-1),
            lambda r: r.inputs.append(r.inputs[0]),
            lambda r: r.ClearField("inputs"),
            lambda r: r.outputs.add(name="nope"),
        ):
            bad = service_pb2.ModelInferRequest()
            bad.CopyFrom(request)
            change(bad)
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(bad)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
            assert caught.value.details()


def test_errors(client):
    for name, says in (("nope", "unknown model"), ("damaged", "not served")):
        with pytest.raises(InferenceServerException, match=says):
            client.infer(name, [input_of(triton, noise(1))])
    with pytest.raises(InferenceServerException, match="not enabled"):
        client.load_model("tiny")
    with pytest.raises(InferenceServerException, match="batch-size"):
        client.infer("tiny", [input_of(triton, noise(9))])
    with pytest.raises(InferenceServerException, match="fragile"):
        client.infer("fragile", [input_of(triton, noise(1) * 1e9)])
    assert client.infer("tiny", [input_of(triton, noise(1))]).as_numpy("scores").shape == (1, 7)


def test_statistics(client):
    client.infer("tiny", [input_of(triton, noise(2))])
    entry = client.get_inference_statistics("tiny").model_stats[0]
    assert entry.inference_count >= 2
    assert entry.inference_stats.success.count >= 1
    assert any(batch.batch_size == 2 for batch in entry.batch_stats)
    assert len(client.get_inference_statistics().model_stats) >= 4


def test_many_clients(server, scores_of):
    def work(seed: int) -> None:
        with triton.InferenceServerClient(server.grpc) as own:
            for repeat in range(5):
                images = noise(1 + seed % 3, seed=100 * seed + repeat)
                got = own.infer("tiny", [input_of(triton, images)]).as_numpy("scores")
                np.testing.assert_allclose(got, scores_of(images), rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))


def test_asyncio_client_and_cancellation(server, scores_of):
    async def work() -> None:
        async with triton_aio.InferenceServerClient(server.grpc) as own:
            images = noise(1)
            results = await asyncio.gather(*(own.infer("tiny", [input_of(triton_aio, images)]) for _ in range(16)))
            for result in results:
                np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)

    asyncio.run(work())


def test_health_service(server):
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(server.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "inference.GRPCInferenceService"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="nope"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
