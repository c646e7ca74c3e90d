"""One process and several give the same answers, over HTTP and gRPC, to good requests and to bad ones."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.serving.models.asking import until

SIDE = 16


@pytest.fixture(scope="module")
def both(models, tmp_path_factory, server_class):
    """The same models served by one process and by an engine with two front ends."""
    servers = [server_class(models, tmp_path_factory.mktemp("server"), frontends=count) for count in (0, 2)]
    yield servers
    for server in servers:
        assert server.stop() == 0, server.output


def _http(server, path: str, data: bytes | None = None, headers: dict | None = None) -> tuple[int, bytes, str]:
    request = urllib.request.Request(server.url + path, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read(), response.headers.get("Inference-Header-Content-Length", "")
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers.get("Retry-After", "")


def _json_request(images: np.ndarray, **parameters) -> bytes:
    tensor = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "data": images.ravel().tolist()}
    return json.dumps({"id": "x", "inputs": [tensor], "parameters": parameters}).encode()


def _images(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(0, 1, (rows, 3, SIDE, SIDE)).astype(np.float32)


CASES = {
    "metadata of the server": ("/v2", None),
    "metadata": ("/v2/models/tiny", None),
    "config": ("/v2/models/tiny/config", None),
    "config of an ensemble": ("/v2/models/tiny_classify/config", None),
    "ready": ("/v2/health/ready", None),
    "model ready": ("/v2/models/tiny/versions/1/ready", None),
    "index": ("/v2/repository/index", b"{}"),
    "index of the ready": ("/v2/repository/index", b'{"ready": true}'),
    "unknown model": ("/v2/models/nope", None),
    "unknown version": ("/v2/models/tiny/versions/7", None),
    "model that failed to load": ("/v2/models/damaged", None),
    "one row": ("/v2/models/tiny/infer", _json_request(_images(1))),
    "a full batch": ("/v2/models/tiny/infer", _json_request(_images(8))),
    "too many rows": ("/v2/models/tiny/infer", _json_request(_images(9))),
    "no rows": ("/v2/models/tiny/infer", _json_request(_images(0))),
    "wrong shape": ("/v2/models/tiny/infer", _json_request(_images(2)[:, :, :8])),
    "no JSON": ("/v2/models/tiny/infer", b"{"),
    "the model fails": ("/v2/models/fragile/infer", _json_request(_images(1) * 1e6)),
    "the model does not fail": ("/v2/models/fragile/infer", _json_request(_images(1) * 0)),
    "no image": ("/v1/classify/tiny", b"no image"),
    "no body": ("/v1/classify/tiny", b""),
}


@pytest.mark.parametrize("case", CASES)
def test_over_http(both, case):
    path, data = CASES[case]
    one, several = (_http(server, path, data) for server in both)
    assert one == several


def test_images_over_http(both, make_photo, reference):
    for seed in range(8):
        image = make_photo(seed)
        one, several = (_http(server, "/v1/classify/tiny?k=7", image) for server in both)
        assert one == several
        assert one[0] == 200
        assert json.loads(one[1])["predictions"][0]["index"] == int(reference(image)[1].argmax())


def test_a_deadline_that_cannot_be_met_is_refused_with_the_same_status(both, make_photo):
    for server in both:
        status, answer, retry_after = _http(server, "/v1/classify/tiny?timeout_ms=0.001", make_photo(0))
        assert (status, retry_after) == (503, "1")
        assert "cannot answer within" in json.loads(answer)["error"]


@pytest.mark.parametrize("module", [httpclient, grpcclient], ids=["http", "grpc"])
def test_with_the_real_clients(both, module, make_photo, scores_of, reference):
    answers = []
    for server in both:
        with module.InferenceServerClient(server.http if module is httpclient else server.grpc) as client:
            got = []
            for rows in (1, 3, 8):
                images = _images(rows)
                tensor = module.InferInput("images", images.shape, "FP32")
                tensor.set_data_from_numpy(images)
                scores = client.infer("tiny", [tensor]).as_numpy("scores")
                np.testing.assert_allclose(scores, scores_of(images), atol=1e-4)
                got.append(scores)
                top = module.InferRequestedOutput("scores", class_count=3)
                got.append(client.infer("tiny", [tensor], outputs=[top]).as_numpy("scores"))
            photos = [make_photo(seed) for seed in range(3)]
            encoded = module.InferInput("IMAGE", (3, 1), "BYTES")
            encoded.set_data_from_numpy(np.array(photos, dtype=object).reshape(3, 1))
            scores = client.infer("tiny_classify", [encoded]).as_numpy("scores")
            np.testing.assert_allclose(scores, [reference(photo)[1] for photo in photos], atol=1e-4)
            got += [scores, client.infer("tiny_decode", [encoded]).as_numpy("images")]
            encoded.set_data_from_numpy(np.array([photos[0], b"broken", photos[1]], dtype=object).reshape(3, 1))
            with pytest.raises(InferenceServerException) as error:
                client.infer("tiny_classify", [encoded])
            got.append(np.array([str(error.value)]))
            answers.append(got)
    for one, several in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, several)


def test_statistics_count_the_same(both, make_photo):
    for server in both:
        with grpcclient.InferenceServerClient(server.grpc) as client:

            def counts(client=client) -> list[int]:
                found = []
                for name in ("tiny", "tiny_classify"):
                    stats = client.get_inference_statistics(name).model_stats[0]
                    kinds = stats.inference_stats
                    found += [stats.inference_count, kinds.success.count, kinds.fail.count, kinds.queue.count]
                return found

            before = counts()
            for seed in range(4):
                assert _http(server, "/v1/classify/tiny_classify", make_photo(seed))[0] == 200
            assert _http(server, "/v1/classify/tiny", b"no image")[0] == 400
            assert _http(server, "/v2/models/tiny/infer", _json_request(_images(9)))[0] == 400
            wanted = [now + more for now, more in zip(before, (4, 4, 2, 4, 4, 4, 0, 4), strict=True)]
            until(
                lambda counts=counts, wanted=wanted: counts() == wanted
            )  # another front end may ask the engine before it hears of the failure


def test_metrics_are_those_of_all_processes(both, make_photo):
    def count(server) -> float:
        with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith('nv_inference_count{model="tiny"'))

    for server in both:
        before = count(server)
        for seed in range(12):
            assert _http(server, "/v1/classify/tiny", make_photo(seed))[0] == 200
        assert count(server) == before + 12
