"""Names that lead out of the models folder (CVE-2026-24208, CVE-2026-24209): they are only compared with what was found."""

import json

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

NAMES = [
    "..",
    ".",
    "../secret.txt",
    "..%2fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "..%252fsecret.txt",
    "....//secret.txt",
    "..\\secret.txt",
    "tiny/../../secret.txt",
    "tiny%2f..%2f..%2fsecret.txt",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "tiny%00",
    "tiny%0a",
    "~",
    "tiny/1",
    "config.pbtxt",
    "%c0%ae%c0%ae%2fsecret.txt",
]


@pytest.mark.parametrize("name", NAMES)
def test_in_http_paths(target, request_to, secret, name):
    root = str(target.ready_file.parent.parent)
    for method, path in (
        ("GET", f"/v2/models/{name}"),
        ("GET", f"/v2/models/{name}/config"),
        ("GET", f"/v2/models/{name}/stats"),
        ("GET", f"/v2/models/{name}/ready"),
        ("GET", f"/v2/models/tiny/versions/{name}"),
        ("GET", f"/v2/models/tiny/versions/{name}/config"),
        ("POST", f"/v2/models/{name}/infer"),
        ("POST", f"/v1/classify/{name}"),
        ("POST", f"/v2/repository/models/{name}/load"),
        ("POST", f"/v2/repository/models/{name}/unload"),
    ):
        status, body = request_to(target.http, method, path.replace("\\", "%5c"), b"{}" if method == "POST" else None)
        assert status in (400, 404, 405, 501), (path, status, body)
        assert secret.encode() not in body
        assert b"root:" not in body
        assert root.encode() not in body


@pytest.mark.parametrize("name", [name.replace("%2f", "/").replace("%2e", ".").replace("%00", "\0") for name in NAMES])
def test_in_grpc_messages(target, secret, name):
    with grpc.insecure_channel(target.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call in (
            lambda: stub.ModelMetadata(pb.ModelMetadataRequest(name=name)),
            lambda: stub.ModelConfig(pb.ModelConfigRequest(name=name)),
            lambda: stub.ModelConfig(pb.ModelConfigRequest(name="tiny", version=name)),
            lambda: stub.ModelStatistics(pb.ModelStatisticsRequest(name=name)),
            lambda: stub.ModelInfer(pb.ModelInferRequest(model_name=name)),
            lambda: stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=name)),
            lambda: stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=name)),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code().name in ("NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED")
            assert secret not in caught.value.details()
        assert not stub.ModelReady(pb.ModelReadyRequest(name=name)).ready


def test_no_answer_names_the_machine_s_folders(target, request_to):
    """Reasons why a model is not served name files inside the repository only."""
    for method, path in (("POST", "/v2/repository/index"), ("GET", "/v2/models/damaged"), ("GET", "/v2/models/damaged/config")):
        _, body = request_to(target.http, method, path, b"" if method == "POST" else None)
        assert b"model.onnx" in body
        assert b"/tmp" not in body
        assert b"/home" not in body
        assert json.loads(body)
