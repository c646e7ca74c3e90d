"""Requests that a page of another site has a browser send (CSRF): a server on the same machine is no use to it."""

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc


@pytest.mark.parametrize(
    "path", ["/v2/repository/models/tiny/unload", "/v1/classify/tiny", "/v2/models/tiny/infer", "/v2/logging"]
)
def test_other_sites_change_and_run_nothing(target, request_to, make_photo, path):
    for said in (
        {"Sec-Fetch-Site": "cross-site"},
        {"sec-fetch-site": "cross-site", "Origin": "https://example.com"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine, or another name of its domain
        {"Origin": "https://example.com"},  # of a browser that sends no metadata, as to plain HTTP by an address
        {"Origin": "http://localhost:1", "Host": "localhost:2"},
        {"Origin": "null"},
    ):
        status, body = request_to(target.http, "POST", path, make_photo(0), said)
        assert status == 403, body
        assert b"another site" in body


@pytest.mark.parametrize(
    "said",
    [
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://of.a.proxy"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://localhost:8000", "Host": "LocalHost:8000"},
        {},
    ],
)
def test_own_pages_and_other_clients_are_answered(target, request_to, make_photo, said):
    assert request_to(target.http, "POST", "/v1/classify/tiny", make_photo(0), said)[0] == 200
    assert request_to(target.http, "GET", "/v2", None, {"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to it works


@pytest.mark.parametrize("host", ["0.0.0.0", "0.0.0.0:8000", "[::]:8000", "[::ffff:0.0.0.0]"])
def test_an_address_of_no_machine_is_no_name_of_this_one(target, request_to, host):
    """By it a page of another site reaches a server on its visitor's machine, past the browser's wall around local networks."""
    assert request_to(target.http, "POST", "/v2/repository/models/tiny/unload", b"{}", {"Host": host})[0] == 403
    assert request_to(target.http, "GET", "/v2", None, {"Host": host})[0] == 403


@pytest.fixture(scope="module")
def reachable(models, launch):
    with launch(models, host="0.0.0.0", model_control_mode="explicit", load_models=("*",)) as server:
        yield server


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/models/tiny/unload",
        "/v2/repository/models/tiny/load",
        "/v2/logging",
        "/v2/systemsharedmemory/unregister",
    ],
)
def test_other_machines_control_nothing_without_a_token(reachable, request_to, make_photo, path):
    http = reachable.http.replace("0.0.0.0", "127.0.0.1")
    status, body = request_to(http, "POST", path, b"{}")
    assert (status, b"--token-file" in body) == (403, True)
    assert request_to(http, "POST", "/v1/classify/tiny", make_photo(0))[0] == 200


def test_nor_over_grpc(reachable):
    with grpc.insecure_channel(reachable.grpc.replace("0.0.0.0", "127.0.0.1")) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name="tiny"), timeout=30)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30).live
