"""Routes as a package holds them: their paths, how an image is sent, and the names of classes beside the labels."""

import json

import pytest

from headrace.runtime.artifact.routes.answer_template import Name, Pick
from headrace.runtime.artifact.routes.kept_route import (
    MOST_ROUTES,
    RESERVED,
    ImageForm,
    KeptRoute,
    routes_from_json,
    why_no_path,
)

ROUTE = KeptRoute(
    path="/predict", image=ImageForm(kind="file", name="file"), template=Name(pick=Pick(rank=0), table=1), tables=(("a", "b"),),
    proved=12, source="app.py:3",
)  # fmt: skip


def read(data):
    return routes_from_json(json.loads(json.dumps(data)), classes=2, labeled=True)


def test_what_is_written_is_read():
    assert read([ROUTE.to_json()]) == (ROUTE,)
    assert read([]) == ()


@pytest.mark.parametrize(
    "path", ["/predict", "/api/v1/predict", "/a_b/c-d.json", "/predict/", "/v3/x", "/v1/predict", "/v1", "/pings", "/~me"]
)
def test_plain_absolute_paths_are_kept(path):
    assert why_no_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "predict", "//predict", "/../etc", "/a/../v2", "/./a", "/.hidden", "/a//b", "/a b", "/a%2fb", "/{model}",
        "/a?b", "/a#b", "/é", "/a\n", "/a\\b", "http://x/y", "/a;b", "/" + "a" * 200, None, 7, *(f"/{name}" for name in
        RESERVED), *(f"/{name}/x" for name in RESERVED),
    ],
)  # fmt: skip
def test_others_are_not(path):
    assert why_no_path(path)
    with pytest.raises(ValueError, match="cannot be a route's path"):
        read([{**ROUTE.to_json(), "path": path}])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"image": {"kind": "file", "name": ""}}, "name"),
        ({"image": {"kind": "body", "name": "x"}}, "name"),
        ({"image": {"kind": "file", "name": 'a"b'}}, "printable"),
        ({"image": {"kind": "file", "name": "a\r\nb"}}, "printable"),
        ({"image": {"kind": "pickle", "name": "x"}}, "one of file"),
        ({"image": {"kind": ["file"], "name": "x"}}, "one of file"),
        ({"tables": [["a"]]}, "each of the 2 classes"),
        ({"tables": [["a", 1]]}, "each of the 2 classes"),
        ({"tables": ["ab"]}, "each of the 2 classes"),
        ({"tables": [["a", "b"]] * 5}, "4 at most"),
        ({"tables": []}, "table"),
        ({"proved": 0}, "how many images"),
        ({"proved": True}, "how many images"),
        ({"source": 3}, "source"),
        ({"code": "import os"}, "must have"),
        ({"template": {"is": "constant", "value": {}}}, "a constant"),
    ],
)
def test_what_is_wrong_is_said(changed, says):
    with pytest.raises(ValueError, match=says):
        read([{**ROUTE.to_json(), **changed}])


def test_there_are_not_too_many_and_each_has_its_path():
    one = ROUTE.to_json()
    with pytest.raises(ValueError, match=f"{MOST_ROUTES} at most"):
        read([{**one, "path": f"/p{number}"} for number in range(MOST_ROUTES + 1)])
    with pytest.raises(ValueError, match="one path"):
        read([one, one])
    with pytest.raises(ValueError, match="list"):
        read({"0": one})


def test_how_an_image_is_sent_is_told():
    forms = (ImageForm(kind="file", name="f"), ImageForm(kind="json", name="j"), ImageForm(kind="body"))
    assert list(map(str, forms)) == ["the file 'f' of a form", "base64 in 'j' of a JSON object", "the body"]
