"""The table of routes: which row a path has, its parameters, and that each row is answered by somebody."""

import pytest

from headrace.serving.config import APIS
from headrace.serving.http.handlers import Handlers
from headrace.serving.http.instance_handlers import InstanceHandlers
from headrace.serving.http.kept_handlers import KeptHandlers
from headrace.serving.protocol.routes import KEPT, METHODS, ROUTES, SERVICE, Cost, find_route


@pytest.mark.parametrize(
    ("path", "handler", "parameters"),
    [
        ("/v2", "server_metadata", {}),
        ("/v2/models/stats", "all_statistics", {}),
        ("/v2/models/stats/infer", "infer", {"model": "stats"}),
        ("/v2/models/tiny", "model_metadata", {"model": "tiny"}),
        ("/v2/models/tiny/versions/3/infer", "infer", {"model": "tiny", "version": "3"}),
        ("/v2/trace/setting", "trace_settings", {}),
        ("/v2/models/tiny/trace/setting", "trace_settings", {"model": "tiny"}),
        ("/v2/systemsharedmemory/region/r/status", "status", {"region": "r"}),
        ("/v1/models/tiny:predict", "v1_predict", {"model": "tiny"}),
        ("/v1/models/tiny", "v1_model", {"model": "tiny"}),
        ("/", "page", {}),
        ("/openapi.json", "openapi", {}),
    ],
)
def test_a_path_has_the_first_row_that_fits(path, handler, parameters):
    route = find_route(path)
    assert route.handler == handler
    assert route.parameters(path) == parameters


@pytest.mark.parametrize(
    "path", ["", "/v2/", "/V2", "/v2/models/a/b", "/v2/models/tiny/infer\n", "/openapi_json", "/console/a/b"]
)
def test_another_spelling_has_none(path):
    assert find_route(path) is None


def test_every_row_leads_to_a_handler_and_every_handler_has_a_row():
    for apis, handlers in (({""}, Handlers), (set(APIS), InstanceHandlers), ({KEPT}, KeptHandlers)):
        named = {route.handler for route in ROUTES if route.api in apis} - {""}
        assert named == {name for name in vars(handlers) if not name.startswith("_")}


def test_every_platform_that_may_be_asked_for_has_rows():
    assert {route.api for route in ROUTES} - {"", KEPT} == set(APIS)


def test_an_optional_part_makes_two_paths():
    (infer,) = [route for route in ROUTES if route.handler == "infer"]
    assert infer.paths == ["/v2/models/{model}/versions/{version}/infer", "/v2/models/{model}/infer"]


def test_what_runs_a_model_is_the_same_over_both_transports():
    assert {name for name, method in METHODS.items() if method.cost is Cost.INFERENCE} == {
        f"/{SERVICE}/ModelInfer",
        f"/{SERVICE}/ModelStreamInfer",
    }
    own = {route.handler for route in ROUTES if route.cost is Cost.INFERENCE and not route.api}
    assert own == {"infer", "classify", "embed"}
