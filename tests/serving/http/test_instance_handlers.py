"""KServe V1, SageMaker and Vertex AI through a real socket: each answer is that of the server's own routes."""

import base64
import http.client
import io
import json
import shutil
import urllib.error
import urllib.request

import numpy as np
import pytest
from PIL import Image

FORMS = ("kserve-v1", "sagemaker", "vertex")


@pytest.fixture(scope="module", params=[0, 1], ids=["one process", "front end"])
def platform(request, models, launch, tmp_path_factory):
    """A server of one model, in every form."""
    folder = tmp_path_factory.mktemp("one") / "models"
    for part in ("tiny", "tiny_decode", "tiny_classify"):
        shutil.copytree(models / part, folder / part)
    with launch(folder, apis=FORMS, frontends=request.param, max_body_bytes=8 << 20) as server:
        yield server.url


def ask(url, body=None, kind="application/json"):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind} if data is not None else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def b64(data: bytes) -> dict:
    return {"b64": base64.b64encode(data).decode()}


@pytest.mark.parametrize("path", ["/v1/models/tiny:predict", "/vertex/predict", "/invocations"])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"image_bytes": one}], ids=["plain", "named"])
def test_images_are_answered_as_classify_answers_them(platform, make_photo, path, wrap):
    photos = [make_photo(seed, kind="JPEG") for seed in range(19)]  # more than two batches of eight
    status, answer = ask(platform + path, {"instances": [wrap(b64(one)) for one in photos], "parameters": {"k": 3}})
    assert status == 200, answer
    assert len(answer["predictions"]) == 19
    for photo, said in zip(photos, answer["predictions"], strict=True):
        _, own = ask(f"{platform}/v1/classify/tiny?k=3", photo, "image/jpeg")
        assert said == {"predictions": own["predictions"]}


def test_rows_are_answered_as_infer_answers_them(platform, scores_of):
    rows = np.random.default_rng(0).normal(size=(21, 3, 16, 16)).astype(np.float32)
    for instances in (rows.tolist(), [{"images": row} for row in rows.tolist()]):
        status, answer = ask(f"{platform}/v1/models/tiny:predict", {"instances": instances})
        assert status == 200, answer
        np.testing.assert_allclose(np.array(answer["predictions"]), scores_of(rows), rtol=1e-4, atol=1e-5)


def test_sagemaker_takes_an_image_as_the_body(platform, make_photo):
    photo = make_photo(3)
    own = ask(f"{platform}/v1/classify/tiny", photo, "image/png")
    for kind in ("image/png", "application/x-image", "application/octet-stream"):
        assert ask(f"{platform}/invocations", photo, kind) == own


def test_health_and_models(platform):
    assert ask(f"{platform}/ping") == (200, {"ready": True})
    assert ask(f"{platform}/vertex/health") == (200, {"ready": True})
    assert ask(f"{platform}/v1/models") == (200, {"models": ["tiny", "tiny_classify", "tiny_decode"]})
    assert ask(f"{platform}/v1/models/tiny") == (200, {"name": "tiny", "ready": True})
    assert ask(f"{platform}/v1/models/other")[0] == 404


def test_an_image_of_more_than_a_megabyte_of_base64(platform):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (900, 900, 3), dtype=np.uint8))
    data = io.BytesIO()
    noise.save(data, "PNG")
    assert len(data.getvalue()) > 1 << 21
    status, answer = ask(f"{platform}/v1/models/tiny:predict", {"instances": [b64(data.getvalue())]})
    assert status == 200, answer
    assert answer["predictions"] == [{"predictions": ask(f"{platform}/v1/classify/tiny", data.getvalue())[1]["predictions"]}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, '"instances" is a list'),
        ([], '"instances" is a list'),
        ({"instances": []}, '"instances" is a list'),
        ({"instances": {"b64": ""}}, '"instances" is a list'),
        (b"{", "not valid JSON"),
        ({"instances": [[0.0]], "inputs": []}, "unknown field 'inputs'"),
        ({"instances": [b64(b"x")], "parameters": {"k": 0}}, "k must be from 1 to 1000"),
        ({"instances": [b64(b"x")], "parameters": {"top": 2}}, '"parameters"'),
        ({"instances": [b64(b"no image")]}, "instances[0]: "),
        ({"instances": [{"b64": "§"}]}, "instances[0] is not valid base64"),
        ({"instances": [{"b64": "aGk"}]}, "instances[0] is not valid base64"),
        ({"instances": [b64(b"x"), [1.0]]}, "instances[1] is no image"),
        ({"instances": [{"b64": 3}]}, "instances[0] must have the model's inputs"),
        ({"instances": [{"pictures": [1.0]}]}, "instances[0] must have the model's inputs"),
        ({"instances": [[1.0, 2.0]]}, "takes 768 elements, got 2"),
        ({"instances": [["a"] * 768]}, "'images'"),
        ({"instances": [[None] * 768]}, "'images'"),
        ({"instances": [[[1.0] * 768], [1.0]]}, "'images'"),
        ({"instances": [1.0]}, "'images'"),
        ({"instances": [None]}, "'images'"),
    ],
)
def test_what_is_wrong_is_one_clear_error(platform, body, words):
    status, answer = ask(f"{platform}/v1/models/tiny:predict", body)
    assert status == 400, answer
    assert words in answer["error"]


def test_one_bad_image_among_good_ones_is_named_and_the_server_goes_on(platform, make_photo):
    good = b64(make_photo(0))
    status, answer = ask(f"{platform}/vertex/predict", {"instances": [good] * 11 + [b64(b"damaged")] + [good] * 11})
    assert status == 400
    assert answer["error"].startswith("instances[11]: ")
    assert ask(f"{platform}/vertex/predict", {"instances": [good]})[0] == 200


def test_other_types_and_too_much_are_refused(platform):
    status, answer = ask(f"{platform}/invocations", b"1,2,3", "text/csv")
    assert (status, "text/csv" in answer["error"]) == (400, True)
    connection = http.client.HTTPConnection(platform.removeprefix("http://"))
    connection.putrequest("POST", "/v1/models/tiny:predict")
    connection.putheader("Content-Length", str(9 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_without_the_option_there_are_no_such_routes(server):
    for path in ("/ping", "/vertex/health", "/v1/models", "/v1/models/tiny"):
        assert ask(server.url + path)[0] == 404
    for path in ("/invocations", "/vertex/predict", "/v1/models/tiny:predict"):
        assert ask(server.url + path, {"instances": [[0.0]]})[0] == 404


def test_a_route_without_a_name_asks_for_a_server_of_one_model(models, launch):
    with launch(models, apis=["sagemaker"]) as server:
        status, answer = ask(f"{server.url}/invocations", {"instances": [[0.0]]})
        assert (status, answer["error"]) == (400, "this route is for a server of one model, and 2 are served: fragile, tiny")


@pytest.mark.parametrize("batches", [True, False])
def test_rows_of_a_model_of_another_repository(launch, models, tmp_path, scores_of, batches):
    version = tmp_path / "models" / "plain" / "1"
    version.mkdir(parents=True)
    shutil.copy(models / "tiny" / "1" / "model.onnx", version)
    if not batches:
        sides = (("input", "images", "1, 3, 16, 16"), ("output", "scores", "1, 7"))
        tensors = "".join(f'{side} {{ name: "{name}" dims: [{dims}] data_type: TYPE_FP32 }}\n' for side, name, dims in sides)
        (version.parent / "config.pbtxt").write_text(tensors)
    rows = np.random.default_rng(0).normal(size=(6, 3, 16, 16)).astype(np.float32)
    with launch(tmp_path / "models", apis=["vertex"]) as server:
        status, answer = ask(f"{server.url}/vertex/predict", {"instances": (rows if batches else rows[:, None]).tolist()})
        assert status == 200, answer
        np.testing.assert_allclose(np.array(answer["predictions"]).reshape(6, 7), scores_of(rows), rtol=1e-4, atol=1e-5)


def test_tokens_guard_them(models, launch, tmp_path, make_photo):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('infer = ["secret-of-the-test"]\n')
    tokens.chmod(0o600)
    with launch(models, apis=FORMS, token_file=tokens) as server:
        assert ask(f"{server.url}/ping")[0] == 200
        assert ask(f"{server.url}/v1/models/tiny:predict", {"instances": [b64(make_photo(0))]})[0] == 401
        assert ask(f"{server.url}/invocations", make_photo(0), "image/png")[0] == 401
