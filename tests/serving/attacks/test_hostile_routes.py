"""A package whose routes mean harm: paths over the server's own, templates without end, code. Its model is not served, and
nothing of it is answered; what others keep stays."""

import json
import shutil
import time
import urllib.error
import urllib.request

import pytest

from headrace.errors import ArtifactError, HeadraceError
from headrace.runtime.artifact.artifact import load_artifact, read_routes
from headrace.runtime.artifact.manifest import read_content, write_manifest
from headrace.serving.config import ServeConfig
from headrace.serving.models.kept_routes import kept_routes

ROUTE = {
    "path": "/predict",
    "image": {"kind": "body", "name": ""},
    "template": {"is": "name", "pick": {"rank": 0}, "table": 0},
    "tables": [],
    "proved": 1,
    "source": "app.py:1",
}


def nested(levels):
    inner = ROUTE["template"]
    for _ in range(levels):
        inner = {"is": "items", "items": [inner]}
    return inner


BEST = {"is": "best", "count": 7, "item": {"is": "name", "pick": {}, "table": 0}}
HOSTILE = {
    "health": {"path": "/v2/health/live"},
    "control": {"path": "/v2/repository/models/tiny/unload"},
    "the console": {"path": "/"},
    "metrics": {"path": "/metrics"},
    "kept itself": {"path": "/v1/kept/tiny/0"},
    "above": {"path": "/../v2"},
    "encoded": {"path": "/%76%32"},
    "a pattern": {"path": "/{path:path}"},
    "a header": {"image": {"kind": "file", "name": "x\r\nSet-Cookie: a=b"}},
    "deep": {"template": nested(100)},
    "wide": {"template": {"is": "items", "items": [BEST] * 4000}},
    "product": {"template": {"is": "best", "count": 7, "item": BEST}},
    "an index beyond": {"template": {"is": "index", "pick": {"index": 10**9}, "text": False}},
    "a table beyond": {"template": {"is": "name", "pick": {"rank": 0}, "table": 1}},
    "an attribute": {
        "template": {"is": "score", "pick": {"rank": 0}, "source": "__class__", "times": 1, "decimals": None, "style": "number"}
    },
    "a format": {
        "template": {"is": "score", "pick": {"rank": 0}, "source": "softmax", "times": 1, "decimals": 10**9, "style": "fixed"}
    },
    "a huge constant": {"template": {"is": "constant", "value": "x" * 10**6}},
    "NaN's kin": {"template": {"is": "constant", "value": 1e308}},
    "an unknown part": {"template": {"is": "eval", "code": "1"}},
}


@pytest.fixture
def folder(models, tmp_path):
    for part in ("tiny", "tiny_decode", "tiny_classify"):
        shutil.copytree(models / part, tmp_path / "models" / part)
    return tmp_path / "models"


def write(folder, routes, name="tiny"):
    place = folder / name / "1"
    write_manifest(place, {**read_content(place), "routes": routes})


@pytest.mark.parametrize("changed", HOSTILE.values(), ids=HOSTILE)
def test_a_package_with_such_a_route_is_not_opened(folder, changed):
    write(folder, [{**ROUTE, **changed}])
    for opened in (lambda: load_artifact(folder / "tiny"), lambda: read_routes(folder / "tiny")):
        started = time.monotonic()
        with pytest.raises(ArtifactError, match="cannot read"):
            opened()
        assert time.monotonic() - started < 10
    with pytest.raises(HeadraceError, match="no model"):
        kept_routes(ServeConfig.of(models=folder, keep_routes=True))


@pytest.mark.parametrize("routes", ["x", {"0": ROUTE}, [ROUTE] * 2, [ROUTE] * 10_000, [None], [[]]], ids=str.__class__)
def test_nor_one_whose_list_of_routes_is_none(folder, routes):
    write(folder, routes)
    with pytest.raises(ArtifactError, match="cannot read"):
        load_artifact(folder / "tiny")


def test_the_others_are_served_and_the_servers_own_paths_answer_as_ever(models, folder, launch, make_photo):
    shutil.copytree(folder / "tiny", folder / "evil")
    manifest = folder / "evil" / "1"
    write_manifest(manifest, {**read_content(manifest), "name": "evil", "routes": [{**ROUTE, "path": "/v2/health/live"}]})
    write(folder, [ROUTE])
    with launch(folder, keep_routes=True) as server:
        with urllib.request.urlopen(f"{server.url}/v2/health/live") as answer:
            assert json.loads(answer.read()) == {"live": True}
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/predict", make_photo(0))) as answer:
            assert json.loads(answer.read()).startswith("class ")
        with pytest.raises(urllib.error.HTTPError, match="404|503"):
            urllib.request.urlopen(f"{server.url}/v2/models/evil/ready")
