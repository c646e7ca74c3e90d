"""All four of tritonclient's clients, unchanged: binary, JSON, classification, compression, statistics, metadata."""

import asyncio
import inspect

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

CLIENTS = {
    "http": triton_http,
    "http-asyncio": triton_http_aio,
    "grpc": triton_grpc,
    "grpc-asyncio": triton_grpc_aio,
}


class Client:
    """Any of the four by the same calls: asyncio's are run to their end."""

    def __init__(self, kind: str, server):
        self.kind, self.module = kind, CLIENTS[kind]
        self.address = server.http if kind.startswith("http") else server.grpc

    def __getattr__(self, name: str):
        def call(*positional, **named):
            async def work():
                async with self.module.InferenceServerClient(self.address) as client:
                    return await getattr(client, name)(*positional, **named)

            if self.kind.endswith("asyncio"):
                return asyncio.run(work())
            with self.module.InferenceServerClient(self.address) as client:
                answer = getattr(client, name)(*positional, **named)
                assert not inspect.iscoroutine(answer)
                return answer

        return call

    def input(self, name: str, array: np.ndarray, datatype: str, **options):
        tensor = self.module.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array, **options)
        return tensor


@pytest.fixture(params=CLIENTS)
def client(request, server):
    return Client(request.param, server)


def _images(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 8])
def test_tensors(client, scores_of, rows):
    images = _images(rows)
    result = client.infer("tiny", [client.input("images", images, "FP32")], model_version="1", request_id="9")
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)
    response = result.get_response()
    assert (response["id"] if isinstance(response, dict) else response.id) == "9"


@pytest.mark.parametrize("kind", ["http", "http-asyncio"])  # gRPC's clients know no other form than raw bytes
def test_json(kind, server, scores_of):
    client = Client(kind, server)
    images = _images(2)
    output = client.module.InferRequestedOutput("scores", binary_data=False)
    result = client.infer("tiny", [client.input("images", images, "FP32", binary_data=False)], outputs=[output])
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)


def test_images_and_classification(client, make_photo, reference, labels):
    photos = [make_photo(seed) for seed in range(3)]
    tensor = client.input("IMAGE", np.array(photos, dtype=object).reshape(3, 1), "BYTES")
    output = client.module.InferRequestedOutput("scores", class_count=2)
    strings = client.infer("tiny_classify", [tensor], outputs=[output]).as_numpy("scores")
    assert strings.shape == (3, 2)
    for row, photo in zip(strings, photos, strict=True):
        best = int(np.argmax(reference(photo)[1]))
        assert row[0].decode().endswith(f":{best}:{labels[best]}")


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client, scores_of, algorithm):
    images = _images(4)
    if client.kind.startswith("http"):
        options = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    else:
        options = {"compression_algorithm": algorithm}
    result = client.infer("tiny", [client.input("images", images, "FP32")], **options)
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)


def test_parameters(client):
    images = [client.input("images", _images(1), "FP32")]
    assert client.infer("tiny", images, priority=2, timeout=20_000_000).as_numpy("scores").shape == (1, 7)
    with pytest.raises(InferenceServerException, match="cannot answer within"):
        client.infer("tiny", images, timeout=1)
    with pytest.raises(InferenceServerException, match="sequence_id"):
        client.infer("tiny", images, sequence_id=5, sequence_start=True)


def test_statistics_and_metadata(client):
    def count() -> int:
        answer = client.get_inference_statistics("tiny")
        if isinstance(answer, dict):
            return answer["model_stats"][0]["inference_stats"]["success"]["count"]
        return answer.model_stats[0].inference_stats.success.count

    before = count()
    client.infer("tiny", [client.input("images", _images(2), "FP32")])
    assert count() == before + 1
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("nope")
    for answer in (client.get_server_metadata(), client.get_model_metadata("tiny"), client.get_model_config("tiny")):
        assert answer
    assert len(
        client.get_model_repository_index() if client.kind.startswith("http") else client.get_model_repository_index().models
    )


def test_clients_of_images_find_what_they_ask_for(models, launch, make_photo):
    """As image_client.py, grpc_image_client.py, ensemble_image_client.py and the examples of metadata do, in their order."""
    with launch(models, server_name="triton") as server:
        for kind in ("http", "grpc"):
            client = Client(kind, server)
            named = {"as_json": True} if kind == "grpc" else {}
            assert client.get_server_metadata(**named)["name"] == "triton"
            config = client.get_model_config("tiny", **named)
            (given,) = config.get("config", config)["input"]
            assert given["format"] == "FORMAT_NCHW"
            assert [int(size) for size in given["dims"]] == [3, 16, 16]
            encoded = client.input("IMAGE", np.array([[make_photo(1)], [make_photo(2)]], dtype=object), "BYTES")
            for model, tensor in (("tiny", client.input("images", _images(2), "FP32")), ("tiny_classify", encoded)):
                asked = client.module.InferRequestedOutput("scores", class_count=3)
                answers = client.infer(model, [tensor], outputs=[asked]).as_numpy("scores")
                assert answers.shape == (2, 3)
                assert all(len(answer.decode().split(":")) == 3 for answer in answers.ravel())
            with pytest.raises(InferenceServerException, match="Request for unknown model"):
                client.get_model_metadata("wrong_model_name")
