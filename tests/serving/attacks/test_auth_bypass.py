"""Other ways to the same door (CVE-2026-24207): no other spelling, method or header opens what needs a token."""

import http.client

import grpc
import pytest

TOKENS = {name: f"{name}-0123456789abcdef" for name in ("infer", "admin", "metrics")}
GUARDED = [
    "/v2",
    "/v2/models/tiny",
    "/v2/models/tiny/infer",
    "/v1/classify/tiny",
    "/v2/repository/models/tiny/load",
    "/v2/repository/index",
    "/v2/logging",
    "/v2/systemsharedmemory/status",
    "/docs",
    "/v1/figures",
    "/openapi.json",
    "/metrics",
]


@pytest.fixture(scope="module")
def guarded(models, launch, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    path.write_text("".join(f'{name} = ["{token}"]\n' for name, token in TOKENS.items()))
    with launch(models, token_file=path, shared_memory=True, allow_settings=True) as server:
        yield server


def spellings(path: str) -> list[str]:
    first, rest = path[1], path[2:]
    return [
        path,
        f"{path}/",
        f"/{path}",
        f"//{path}",
        f"/.{path}",
        f"/x/..{path}",
        f"{path}/.",
        f"{path}/..{path}",
        f"/%2e{path}",
        f"/{first.upper()}{rest}",
        path.upper(),
        f"/%{ord(first):02x}{rest}",
        path.replace("/", "%2f"),
        f"/{path[1:].replace('/', '%2F')}",
        f"/v2/health/live/..{path}",
        f"/v2/health/live%2f..{path}",
        f"/v2/health/live;{path}",
        f"/v2/health/live?{path}",
        f"/v2/health/live#{path}",
        f"{path}?/v2/health/live",
        f"{path}#/v2/health/live",
        f"{path};/v2/health/live",
        f"{path}%00/v2/health/live",
        f"{path}%0a",
        f"{path}%20",
        f"{path}%3f/v2/health/live",
        f"{path}\\",
        f"http://x{path}",
        f"http://x/v2/health/live@{path}",
        f"*{path}",
    ]


def call(address: str, method: str, path: str, headers: dict) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection._validate_path = lambda _: None
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": "localhost", "Content-Length": "0", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# Spellings that really ask for the health route, which is open: what follows ? or # is no path.
OPEN = ("/v2/health/live?", "/v2/health/live#")


# One guard stands before all routes: of each kind one stays quick.
QUICK = ("/v2", "/v1/classify/tiny", "/metrics", "/docs")


@pytest.mark.parametrize("path", [path if path in QUICK else pytest.param(path, marks=pytest.mark.slow) for path in GUARDED])
def test_no_other_spelling_or_method(guarded, path):
    for spelling in spellings(path):
        for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "TRACE", "PROPFIND", "get"):
            status, body = call(guarded.http, method, spelling, {})
            if spelling.startswith(OPEN):
                assert status in (200, 400, 405), (method, spelling, status)
                assert len(body) < 100
            else:
                assert status in (400, 401), (method, spelling, status, body)


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/repository/models/tiny/load", "/v2/systemsharedmemory/status"])
def test_a_lesser_token_does_not_open_more(guarded, path):
    for spelling in spellings(path):
        for name in ("infer", "metrics"):
            status, body = call(guarded.http, "GET", spelling, {"Authorization": f"Bearer {TOKENS[name]}"})
            if not spelling.startswith(OPEN):
                assert status in (400, 403), (spelling, name, status, body)


@pytest.mark.parametrize(
    "header",
    [
        {"X-Original-URL": "/v2/health/live"},
        {"X-Rewrite-URL": "/v2/health/live"},
        {"X-Forwarded-Prefix": "/v2/health/live"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"X-HTTP-Method-Override": "GET"},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"},
        {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"},
        {"Proxy-Authorization": f"Bearer {TOKENS['infer']}"},
        {"Cookie": f"Authorization=Bearer {TOKENS['infer']}"},
        {"Authorization": f"Bearer%20{TOKENS['infer']}"},
    ],
)
def test_no_header_stands_for_a_token(guarded, header):
    assert call(guarded.http, "GET", "/v2", header)[0] == 401
    assert call(guarded.http, "GET", f"/v2?access_token={TOKENS['infer']}&token={TOKENS['infer']}", header)[0] == 401
    assert call(guarded.metrics, "GET", "/metrics", header)[0] == 401


def test_no_other_name_of_a_method(guarded):
    with grpc.insecure_channel(guarded.grpc) as channel:
        for name in (
            "/inference.GRPCInferenceService/ModelInfer",
            "/inference.GRPCInferenceService/modelinfer",
            "//inference.GRPCInferenceService/ModelInfer",
            "/inference.GRPCInferenceService/ModelInfer/",
            "/inference.GRPCInferenceService/ServerLive/../ModelInfer",
            "/inference.GRPCInferenceService%2fModelInfer",
            "/grpc.health.v1.Health/../inference.GRPCInferenceService/ModelInfer",
            "inference.GRPCInferenceService/ModelInfer",
            "/",
            "",
        ):
            for metadata in ((), (("authorization", ""),), (("authorization-bin", TOKENS["infer"].encode()),)):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(name)(b"", metadata=metadata, timeout=20)
                assert caught.value.code().name in ("UNAUTHENTICATED", "UNIMPLEMENTED"), (name, caught.value)
                assert caught.value.code().name == "UNAUTHENTICATED" or "ModelInfer" not in name[-10:]


def test_a_refused_body_is_not_read(guarded):
    """Nobody without a token makes the server hold their bytes."""
    connection = http.client.HTTPConnection(guarded.http, timeout=20)
    connection.putrequest("POST", "/v2/models/tiny/infer")
    connection.putheader("Content-Length", str(60 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()
