"""The HTTP front end through real sockets with the real tritonclient."""

import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import headrace
from headrace.serving.images.fast_preprocessing import make_preprocessor
from headrace.specs import Preprocessing, Resize
from tests.serving.inputs import noise


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.http, concurrency=4) as opened:
        yield opened


def _input(images: np.ndarray, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("images", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images, binary_data=binary)
    return tensor


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("tiny", "2")
    assert not client.is_model_ready("damaged")
    server = client.get_server_metadata()
    assert server["name"] == "headrace"
    assert {"binary_tensor_data", "classification", "statistics"} <= set(server["extensions"])
    model = client.get_model_metadata("tiny")
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 3, 16, 16]}]
    assert model["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, 7]}]
    config = client.get_model_config("tiny")
    assert config["max_batch_size"] == 8
    assert config["input"][0]["dims"] == [3, 16, 16]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 1000


def test_repository_index_says_why_a_model_is_not_served(client):
    index = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert {"tiny", "tiny_decode", "tiny_classify", "fragile", "damaged", "damaged_classify"} <= set(index)
    assert index["tiny"]["state"] == "READY"
    assert index["damaged"]["state"] == "UNAVAILABLE"
    assert "model.onnx" in index["damaged"]["reason"]
    assert "/tmp" not in json.dumps(list(index.values()))
    with pytest.raises(InferenceServerException, match="not enabled"):
        client.load_model("tiny")


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("binary", [True, False])
def test_infer(client, scores_of, rows, binary):
    images = noise(rows, seed=rows)
    outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
    result = client.infer("tiny", [_input(images, binary)], outputs=outputs, request_id="abc")
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)
    assert result.get_response()["id"] == "abc"
    assert result.get_response()["model_version"] == "1"


def test_infer_without_naming_outputs_and_compressed(client, scores_of):
    images = noise(2)
    for algorithm in ("gzip", "deflate"):
        result = client.infer(
            "tiny", [_input(images)], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
        )
        np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)


def test_non_contiguous_input(client, scores_of):
    images = noise(4).transpose(0, 1, 3, 2)[::2]
    result = client.infer("tiny", [_input(np.ascontiguousarray(images))])
    np.testing.assert_allclose(result.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)


def test_classification(client, scores_of, labels):
    images = noise(2)
    result = client.infer("tiny", [_input(images)], outputs=[triton.InferRequestedOutput("scores", class_count=3)])
    strings = result.as_numpy("scores")
    assert strings.shape == (2, 3)
    for row, scores in zip(strings, scores_of(images), strict=True):
        values = [text.decode().split(":") for text in row]
        order = np.argsort(-scores)[:3]
        assert [int(index) for _, index, _ in values] == list(order)
        assert [label for _, _, label in values] == [labels[index] for index in order]
        np.testing.assert_allclose([float(value) for value, _, _ in values], scores[order], atol=1e-4)


def test_ensemble_and_decode_take_image_bytes(client, make_photo, reference):
    photos = [make_photo(seed, (30 + seed, 50), kind) for seed, kind in enumerate(("PNG", "JPEG", "BMP"))]
    data = np.array(photos, dtype=object).reshape(3, 1)
    tensor = triton.InferInput("IMAGE", [3, 1], "BYTES")
    tensor.set_data_from_numpy(data)
    rows, scores = zip(*map(reference, photos), strict=True)
    decoded = client.infer("tiny_decode", [tensor]).as_numpy("images")
    np.testing.assert_allclose(decoded, np.stack(rows), atol=1e-5)
    result = client.infer("tiny_classify", [tensor]).as_numpy("scores")
    np.testing.assert_allclose(result, np.stack(scores), rtol=1e-3, atol=1e-4)
    labeled = client.infer("tiny_classify", [tensor], outputs=[triton.InferRequestedOutput("scores", class_count=1)])
    assert [int(text.decode().split(":")[1]) for text in labeled.as_numpy("scores").ravel()] == list(np.argmax(scores, 1))


def test_raw_body(server, make_photo, reference, scores_of):
    def post(model: str, body: bytes) -> np.ndarray:
        request = urllib.request.Request(
            f"{server.url}/v2/models/{model}/infer", data=body, headers={"Inference-Header-Content-Length": "0"}
        )
        with urllib.request.urlopen(request) as response:
            length = int(response.headers["Inference-Header-Content-Length"])
            return np.frombuffer(response.read()[length:], np.float32).reshape(-1, 7)

    images = noise(2)
    np.testing.assert_allclose(post("tiny", images.tobytes()), scores_of(images), rtol=1e-4, atol=1e-5)
    image = make_photo(3)
    np.testing.assert_allclose(post("tiny_classify", image)[0], reference(image)[1], rtol=1e-3, atol=1e-4)


def test_the_readmes_own_example_is_served_without_a_second_softmax(tmp_path, launch, make_photo):
    """Its build ends in a softmax, and nobody says so when it is saved."""
    (code,) = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[3] / "README.md").read_text(), re.DOTALL)
    example: dict = {}
    exec(code.partition("probabilities = ")[0], example)  # the README's code, as it stands
    graph = example["graph"]
    graph.config = headrace.GraphConfig(backend="onnxruntime", buckets=(1,), threads=1, max_tuning_seconds=0.1)
    graph(torch.rand(4, 3, 64, 64))
    assert "probabilities" in str(graph)
    graph.save(tmp_path / "models" / "tiny", preprocessing=Preprocessing(geometry=(Resize(size=(64, 64)),)))
    loaded = headrace.load(tmp_path / "models" / "tiny")
    image = make_photo(5)
    row = make_preprocessor(loaded.artifact.preprocessing.to_json()["steps"])(image)
    expected = graph(torch.from_numpy(row)[None])[0].numpy()
    with launch(tmp_path / "models") as started:
        request = urllib.request.Request(f"{started.url}/v1/classify/tiny?k=10", data=image)
        with urllib.request.urlopen(request) as response:
            answer = json.loads(response.read())["predictions"]
    served = np.array([entry["probability"] for entry in sorted(answer, key=lambda entry: entry["index"])])
    np.testing.assert_allclose(served, expected, atol=1e-5)
    assert np.ptp(np.exp(expected) / np.exp(expected).sum()) < np.ptp(served), "a second softmax would flatten them"


def test_classify_an_image(server, make_photo, reference, labels):
    image = make_photo(5)
    _, scores = reference(image)
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    boundary = b"x1y2"
    form = b'--x1y2\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + image + b"\r\n--x1y2--\r\n"
    for name, body, kind in (
        ("tiny", image, "image/png"),
        ("tiny", image, "application/octet-stream"),
        ("tiny_classify", form, f"multipart/form-data; boundary={boundary.decode()}"),
    ):
        request = urllib.request.Request(f"{server.url}/v1/classify/{name}?k=3", data=body, headers={"Content-Type": kind})
        with urllib.request.urlopen(request) as response:
            answer = json.loads(response.read())
        assert answer["model"] == name
        assert answer["version"] == "1"
        order = np.argsort(-scores)[:3]
        assert [entry["index"] for entry in answer["predictions"]] == list(order)
        assert [entry["label"] for entry in answer["predictions"]] == [labels[index] for index in order]
        np.testing.assert_allclose([entry["probability"] for entry in answer["predictions"]], expected[order], atol=1e-4)


def test_statistics_count_requests_rows_and_batches(client):
    def read() -> dict:
        return client.get_inference_statistics("tiny")["model_stats"][0]

    before = read()
    for rows in (1, 3):
        client.infer("tiny", [_input(noise(rows))])
    after = read()
    assert after["inference_count"] - before["inference_count"] == 4
    assert after["execution_count"] - before["execution_count"] == 2
    for kind in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][kind]["count"] - before["inference_stats"][kind]["count"] == 2
    assert after["inference_stats"]["cache_hit"] == {"count": 0, "ns": 0}
    assert after["last_inference"] > 0
    assert {entry["batch_size"] for entry in after["batch_stats"]} >= {1, 3}
    assert len(client.get_inference_statistics()["model_stats"]) >= 4


def test_64_clients_each_get_their_own_answer(server, scores_of, make_photo, reference):
    def work(seed: int) -> None:
        with triton.InferenceServerClient(server.http) as own:
            for repeat in range(2):
                images = noise(1 + (seed + repeat) % 4, seed=1000 * seed + repeat)
                result = own.infer("tiny", [_input(images)]).as_numpy("scores")
                np.testing.assert_allclose(result, scores_of(images), rtol=1e-4, atol=1e-5)
                image = make_photo(1000 * seed + repeat)
                request = urllib.request.Request(f"{server.url}/v1/classify/tiny?k=1", data=image)
                with urllib.request.urlopen(request) as response:
                    assert json.loads(response.read())["predictions"][0]["index"] == int(np.argmax(reference(image)[1]))

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))
    with triton.InferenceServerClient(server.http) as own:
        sizes = [entry["batch_size"] for entry in own.get_inference_statistics("tiny")["model_stats"][0]["batch_stats"]]
    assert max(sizes) > 4  # requests were really run together


def test_metrics(server, client):
    client.infer("tiny", [_input(noise(1))])
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        text = response.read().decode()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(samples['nv_inference_request_success{model="tiny",version="1"}']) >= 1
    assert float(samples['nv_inference_pending_request_count{model="tiny",version="1"}']) == 0
    assert float(samples['nv_inference_compute_infer_duration_us{model="tiny",version="1"}']) > 0
    assert float(samples['headrace_batch_size_count{model="tiny",version="1"}']) >= 1
    assert float(samples['headrace_deadline_slack_seconds_count{model="tiny",version="1"}']) >= 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{server.metrics}/v2")


def test_health_as_kserve_s_client_reads_it(server):
    """Which looks at JSON where Triton's look at the status."""
    for path, expected in (
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/tiny/ready", {"name": "tiny", "ready": True}),
    ):
        with urllib.request.urlopen(server.url + path) as response:
            assert json.loads(response.read()) == expected


def test_methods_that_a_path_has(server):
    for path, allowed in (
        ("/v2/models/tiny/trace/setting", "GET, POST"),
        ("/v2/models/tiny/infer", "POST"),
        ("/", "GET, HEAD"),
    ):
        with pytest.raises(urllib.error.HTTPError, match="405") as caught:
            urllib.request.urlopen(urllib.request.Request(server.url + path, method="PUT"))
        assert caught.value.headers["Allow"] == allowed


@pytest.mark.parametrize("body", [b'{"ready": {}}', b'{"ready": 1}', b"[]", b'"x"'])
def test_an_index_that_is_asked_for_wrongly(server, body):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{server.url}/v2/repository/index", body)


def test_documentation_page(server):
    with urllib.request.urlopen(f"{server.url}/openapi.json") as response:
        paths = json.loads(response.read())["paths"]
    assert "/v1/classify/{model}" in paths
    assert "/v2/models/{model}/infer" in paths
    with urllib.request.urlopen(f"{server.url}/docs") as response:
        page = response.read().decode()
    assert "/openapi.json" in page
    if find_spec("fastapi_offline") is None:
        pytest.skip("fastapi-offline, which has the page's files, is not installed; make setup brings it")
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) == 3
    for url in named:  # all from here
        assert url.startswith("/console/"), url
        with urllib.request.urlopen(server.url + url) as response:
            assert response.status == 200
