"""A server with tokens and the real clients: each call passes with the token of its category, and with no other."""

import json
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

INFER, ADMIN, METRICS = (f"{name}-0123456789abcdef" for name in ("infer", "admin", "metrics"))
MODULES = {"http": triton_http, "grpc": triton_grpc}


@pytest.fixture(scope="module")
def guarded(models, tmp_path_factory, launch):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens.toml").write_text(f'infer = ["{INFER}"]\nadmin = ["{ADMIN}"]\nmetrics = ["{METRICS}"]\n')
    with launch(models, token_file=folder / "tokens.toml", shared_memory=True, allow_settings=True) as server:
        yield server


def _bearer(token):
    return {"authorization": f"Bearer {token}"} if token else {}


def _infer(client, module, token):
    images = np.zeros((1, 3, 16, 16), np.float32)
    tensor = module.InferInput("images", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    return client.infer("tiny", [tensor], headers=_bearer(token)).as_numpy("scores")


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_real_clients(guarded, transport):
    module = MODULES[transport]
    with module.InferenceServerClient(getattr(guarded, transport)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert _infer(client, module, INFER).shape == (1, 7)
        assert client.get_model_metadata("tiny", headers=_bearer(ADMIN))
        assert client.get_system_shared_memory_status(headers=_bearer(ADMIN)) is not None
        assert client.get_log_settings(headers=_bearer(ADMIN))
        for call, says in (
            (lambda: _infer(client, module, None), "with a token only"),
            (lambda: _infer(client, module, "x" * 20), "not known"),
            (lambda: _infer(client, module, ADMIN), "category infer"),
            (lambda: _infer(client, module, METRICS), "category infer"),
            (lambda: client.get_model_metadata("tiny"), "with a token only"),
            (lambda: client.get_model_metadata("tiny", headers=_bearer(METRICS)), "category admin or infer"),
            (lambda: client.load_model("tiny", headers=_bearer(INFER)), "category admin"),
            (lambda: client.get_log_settings(headers=_bearer(INFER)), "category admin"),
            (lambda: client.get_system_shared_memory_status(headers=_bearer(INFER)), "category admin"),
        ):
            with pytest.raises(InferenceServerException, match=says):
                call()


def test_a_stream_is_refused_at_its_beginning(guarded):
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(guarded.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for token, code in ((None, "UNAUTHENTICATED"), (ADMIN, "PERMISSION_DENIED")):
            with pytest.raises(grpc.RpcError) as caught:
                next(stub.ModelStreamInfer(iter(()), metadata=tuple(_bearer(token).items()), timeout=20))
            assert caught.value.code().name == code
        assert list(stub.ModelStreamInfer(iter(()), metadata=tuple(_bearer(INFER).items()), timeout=20)) == []


def test_reflection_and_health(guarded):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with grpc.insecure_channel(guarded.grpc) as channel:
        assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        with pytest.raises(grpc.RpcError) as caught:
            next(call(iter(asked), timeout=20))
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert list(call(iter(asked), metadata=tuple(_bearer(INFER).items()), timeout=20))


def test_metrics_and_what_a_refusal_says(guarded):
    def get(url, token=None):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=_bearer(token)), timeout=20) as response:
                return response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    url = f"http://{guarded.metrics}/metrics"
    assert b"nv_inference_count" in get(url, METRICS)[1]
    status, body, headers = get(url)
    assert status == 401
    assert headers["WWW-Authenticate"] == "Bearer"
    assert list(json.loads(body)) == ["error"]
    assert headers["X-Request-Id"]
    assert get(url, INFER)[0] == 403
    assert get(f"http://{guarded.metrics}/v2", METRICS)[0] == 403
    assert get(f"{guarded.url}/metrics", METRICS)[0] == 404
    assert get(f"{guarded.url}/nope", ADMIN)[0] == 403
    assert get(f"{guarded.url}/docs", INFER)[0] == 200
