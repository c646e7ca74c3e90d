"""Kept routes through a real socket: the application's form of a request, its form of an answer, this server's limits."""

import base64
import http.client
import json
import shutil
import urllib.error
import urllib.request

import numpy as np
import pytest

from headrace.runtime.artifact.manifest import read_content, write_manifest
from headrace.runtime.artifact.routes.answer_template import Best, FileName, Name, Object, Pick, Score
from headrace.runtime.artifact.routes.kept_route import ImageForm, KeptRoute
from headrace.serving.protocol.json_limits import SMALL_JSON

TEMPLATE = Object(
    members=(
        (
            "top",
            Best(
                count=2,
                item=Object(members=(("name", Name(pick=Pick())), ("sure", Score(pick=Pick(), source="softmax", decimals=4)))),
            ),
        ),
        ("file", FileName()),
        ("code", Name(pick=Pick(rank=0), table=1)),
    )
)
FORMS = {
    "/predict": ImageForm(kind="file", name="photo"),
    "/api/raw": ImageForm(kind="body"),
    "/api/json": ImageForm(kind="json", name="image"),
}
CODES = tuple(f"n{number}" for number in range(7))
TOKEN = "infer-token-of-the-test"


def with_routes(models, folder):
    for part in ("tiny", "tiny_decode", "tiny_classify"):
        shutil.copytree(models / part, folder / part)
    place = folder / "tiny" / "1"
    routes = [
        KeptRoute(path=path, image=form, template=TEMPLATE, tables=(CODES,), proved=12, source="app.py:1")
        for path, form in FORMS.items()
    ]
    write_manifest(place, {**read_content(place), "routes": [route.to_json() for route in routes]})
    return folder


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    return with_routes(models, tmp_path_factory.mktemp("kept") / "models")


@pytest.fixture(scope="module", params=[0, 1], ids=["one process", "front end"])
def url(request, folder, launch):
    with launch(folder, keep_routes=True, frontends=request.param, max_body_bytes=8 << 20, decoding="exact") as server:
        yield server.url


def ask(url, body=None, kind="application/octet-stream", **headers):
    request = urllib.request.Request(url, body, {"Content-Type": kind, **headers} if body is not None else headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def form(*parts):
    """A multipart body of (field, file's name or None, data), and its type."""
    body = b""
    for field, name, data in parts:
        file = f'; filename="{name}"\r\nContent-Type: image/jpeg' if name else ""
        body += f'--edge\r\nContent-Disposition: form-data; name="{field}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--edge--\r\n", "multipart/form-data; boundary=edge"


def expected(reference, labels, photo, name):
    row = reference(photo)[1].astype(np.float64)
    shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    best = np.argsort(-row)[:2]
    top = [{"name": labels[index], "sure": pytest.approx(shares[index], abs=6e-5)} for index in best]
    return {"top": top, "file": name, "code": CODES[best[0]]}


def sent(path, photo):
    if path == "/predict":
        return form(("photo", "me.png", photo))
    if path == "/api/json":
        return json.dumps({"image": base64.b64encode(photo).decode()}).encode(), "application/json"
    return photo, "application/octet-stream"


@pytest.mark.parametrize("path", FORMS)
def test_an_image_is_answered_in_the_applications_form(url, make_photo, reference, labels, path):
    for seed in range(5):
        photo = make_photo(seed)
        status, answer = ask(url + path, *sent(path, photo))
        assert (status, answer) == (200, expected(reference, labels, photo, "me.png" if path == "/predict" else ""))


def test_a_long_image_in_json_is_parsed_beside_the_others(url, make_photo, reference, labels):
    photo = make_photo(3, size=(900, 700))
    assert len(photo) > SMALL_JSON
    status, answer = ask(url + "/api/json", *sent("/api/json", photo))
    assert (status, answer) == (200, expected(reference, labels, photo, ""))


def test_what_a_request_holds_beside_the_image_is_refused(url, make_photo):
    photo = make_photo(0)
    cases = {
        ("/predict", form(("file", "me.png", photo))): "the file 'photo' alone, not 'file'",
        ("/predict", form(("photo", "me.png", photo), ("k", None, b"3"))): "the file 'photo' alone, not 'k'",
        ("/predict", (photo, "image/png")): "the file 'photo' of a form, as in curl -F photo=@photo.jpg",
        ("/predict?k=3", form(("photo", "me.png", photo))): "this path takes no query",
        ("/api/raw", form(("photo", "me.png", photo))): "must be the body",
        ("/api/json", (b'{"image": "AAAA", "k": 1}', "application/json")): "unknown field 'k'",
        ("/api/json", (b"[[[[", "application/json")): "JSON",
        ("/api/raw", (b"no image", "image/png")): "not an image",
    }
    for (path, (body, kind)), says in cases.items():
        status, answer = ask(url + path, body, kind)
        assert status == 400, path
        assert says in answer["error"]
    status, answer = ask(url + "/api/raw", photo, **{"Content-Encoding": "gzip"})
    assert status == 400
    assert "no Content-Encoding" in answer["error"]


def test_the_servers_limits_hold(url):
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", "/api/raw", headers={"Content-Length": str(9 << 20)})
    assert connection.getresponse().status == 413
    connection.close()


def test_other_methods_and_other_spellings_are_not_there(url, make_photo):
    status, answer = ask(url + "/api/raw")
    assert status == 405
    assert "POST is" in answer["error"]
    for path in ("/api/raw/", "/API/raw", "/api%2Fraw/x", "/v1/kept/tiny/9", "/v1/kept/other/0"):
        assert ask(url + path, make_photo(0))[0] == 404, path


def test_without_the_option_nothing_is_there(folder, launch, make_photo):
    with launch(folder) as server:
        for path in ("/api/raw", "/v1/kept/tiny/1"):
            assert ask(server.url + path, make_photo(0))[0] == 404


def test_a_kept_path_takes_a_token_and_counts_against_the_rate(folder, launch, make_photo, tmp_path):
    (tmp_path / "tokens.json").write_text(json.dumps({"infer": [TOKEN], "admin": ["admin-token-of-the-test"]}))
    with launch(folder, keep_routes=True, token_file=str(tmp_path / "tokens.json"), rate_limit=0.01) as server:
        assert ask(server.url + "/api/raw", make_photo(0))[0] == 401
        assert ask(server.url + "/api/raw", make_photo(0), Authorization="Bearer admin-token-of-the-test")[0] == 403
        statuses = [ask(server.url + "/api/raw", make_photo(0), Authorization=f"Bearer {TOKEN}")[0] for _ in range(3)]
        assert 200 in statuses
        assert statuses[-1] == 429
