"""Which token opens what: the token file, the categories, and that every route and method of the server has one."""

import hashlib
import json
import re

import pytest
from tritonclient.grpc import service_pb2

from headrace.errors import ForbiddenError, HeadraceError, UnauthorizedError
from headrace.serving.guard.access import CATEGORIES, Access, load_access

TOKENS = {category: f"{category}-0123456789abcdef" for category in CATEGORIES}
RPC = "/inference.GRPCInferenceService/"


@pytest.fixture
def access(tmp_path) -> Access:
    return load_access(_file(tmp_path, {category: [token] for category, token in TOKENS.items()}))


def _file(folder, content, name="tokens.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def _opens(check, what: str) -> set[str]:
    """The categories whose token is let through."""
    opened = set()
    for category, token in TOKENS.items():
        try:
            check(what, [f"Bearer {token}"])
        except ForbiddenError:
            continue
        opened.add(category)
    return opened


def test_no_token_opens_another_category(access):
    for path, categories in {
        "/v2/models/m/infer": {"infer"},
        "/v2/models/m/versions/3/infer": {"infer"},
        "/v1/classify/m": {"infer"},
        "/v2": {"infer", "admin"},
        "/v2/models/m": {"infer", "admin"},
        "/v2/models/m/versions/3/config": {"infer", "admin"},
        "/v2/models/stats": {"infer", "admin"},
        "/v2/repository/index": {"infer", "admin"},
        "/v2/repository/models/m/load": {"admin"},
        "/v2/systemsharedmemory/region/r/register": {"admin"},
        "/v2/cudasharedmemory/status": {"admin"},
        "/v2/logging": {"admin"},
        "/v2/models/m/trace/setting": {"admin"},
        "/metrics": {"metrics"},
        "/v1/figures": {"infer", "admin", "metrics"},
        "/v2/health/ready": {"infer", "admin", "metrics"},
    }.items():
        assert _opens(access.check_path, path) == categories, path
    for method, categories in {
        "ModelInfer": {"infer"},
        "ModelStreamInfer": {"infer"},
        "ModelConfig": {"infer", "admin"},
        "RepositoryModelUnload": {"admin"},
        "SystemSharedMemoryRegister": {"admin"},
        "ServerLive": {"infer", "admin", "metrics"},
    }.items():
        assert _opens(access.check_method, RPC + method) == categories, method


def test_only_health_and_the_page_are_open(access):
    for path in ("/v2/health/live", "/v2/health/ready", "/", "/console/console.js"):
        access.check_path(path, [])
    for method in (f"{RPC}ServerLive", f"{RPC}ServerReady", "/grpc.health.v1.Health/Check"):
        access.check_method(method, [])
    for path in ("/v2", "/docs", "/metrics", "/v2/models/m/infer", "/v1/figures", "/console", "/console/", "/nope"):
        with pytest.raises(UnauthorizedError, match="Bearer"):
            access.check_path(path, [])


def test_what_is_in_no_category_is_refused(access):
    for token in TOKENS.values():
        for path in (
            "/nope",
            "/console/a/b",
            "/v3",
            "/v2/models/a/b",
            "/v2/models",
            "",
            "/v2/models/m/infer/",
            "/V2/models/m/infer",
        ):
            with pytest.raises(ForbiddenError, match="no token opens"):
                access.check_path(path, [f"Bearer {token}"])
        for method in (f"{RPC}Nope", "/nope.Service/ModelInfer", RPC, "", f"{RPC}modelinfer"):
            with pytest.raises(ForbiddenError, match="no token opens"):
                access.check_method(method, [f"Bearer {token}"])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [f"Basic {TOKENS['infer']}"],
        [TOKENS["infer"]],
        [f"Bearer {TOKENS['infer']}x"],
        [f"Bearer {TOKENS['infer'][:-1]}"],
        [f"Bearer {TOKENS['infer'].upper()}"],
        [f"Bearer {TOKENS['infer']} "],
        [f"Bearer {TOKENS['infer']}\n"],
        [f"Bearer {TOKENS['infer']}, Bearer {TOKENS['admin']}"],
        [f"Bearer {TOKENS['infer']}"] * 2,
        ["Bearer é"],
        [f"Bearer sha256:{hashlib.sha256(TOKENS['infer'].encode()).hexdigest()}"],
        [f"Bearer {'x' * 5000}"],
    ],
)
def test_what_is_not_one_known_token_is_refused(access, headers):
    with pytest.raises(UnauthorizedError):
        access.check_path("/v2/models/m/infer", headers)
    with pytest.raises(UnauthorizedError):
        access.check_method(f"{RPC}ModelInfer", headers)


def test_the_scheme_is_spelled_as_one_likes(access):
    for scheme in ("Bearer ", "bearer ", "BEARER   "):
        access.check_path("/v1/classify/m", [scheme + TOKENS["infer"]])


def test_token_files(tmp_path):
    digest = hashlib.sha256(b"another-0123456789").hexdigest()
    toml = f'infer = ["{TOKENS["infer"]}", "sha256:{digest}"]\nmetrics = []\n'
    access = load_access(_file(tmp_path, toml, "tokens.toml"))
    for token in (TOKENS["infer"], "another-0123456789"):
        access.check_path("/v1/classify/m", [f"Bearer {token}"])
    with pytest.raises(UnauthorizedError):
        access.check_path("/metrics", [f"Bearer {TOKENS['metrics']}"])
    with pytest.raises(ForbiddenError):
        access.check_path("/metrics", [f"Bearer {TOKENS['infer']}"])
    assert TOKENS["infer"] not in repr(vars(access))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not valid JSON"),
        ([], "must hold lists"),
        ({}, "must hold lists"),
        ({"infr": []}, "names 'infr'"),
        ({"infer": "0123456789abcdef"}, "list of strings"),
        ({"infer": ["short"]}, "16 to 1024"),
        ({"infer": ["with a blank 0123456789"]}, "16 to 1024"),
        ({"infer": [7]}, "16 to 1024"),
        ({"infer": ["sha256:0123456789abcdef"]}, "digest"),
    ],
)
def test_token_files_that_are_wrong(tmp_path, content, says):
    with pytest.raises(HeadraceError, match=says) as caught:
        load_access(_file(tmp_path, content))
    assert "0123456789" not in str(caught.value)


def test_token_files_that_cannot_be_read(tmp_path):
    with pytest.raises(HeadraceError, match="--token-file"):
        load_access(tmp_path / "nope.toml")
    with pytest.raises(HeadraceError, match="not valid TOML"):
        load_access(_file(tmp_path, "infer = [", "tokens.toml"))


def test_every_method_of_the_protocol_has_a_category(access):
    for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        assert _opens(access.check_method, RPC + method.name), method.name


def test_every_route_of_the_server_has_a_category(access, models):
    from starlette.routing import Route

    from headrace.serving.config import ServeConfig
    from headrace.serving.http.app import create_app
    from headrace.serving.images.decode_pool import DecodePool
    from headrace.serving.models.repository import ModelRepository
    from headrace.serving.plane.data_plane import DataPlane

    config, pool = ServeConfig(models=models), DecodePool(1, limit=1)
    app = create_app(DataPlane(ModelRepository(config), pool, config))
    pool.close()
    assert all(isinstance(route, Route) for route in app.routes)
    assert len(app.routes) > 20
    for route in app.routes:
        path = re.sub(r"{(\w+)[^}]*}", lambda found: "status" if found[1] == "action" else "x", route.path)
        assert _opens(access.check_path, path), route.path
