"""The console's routes: types, protective headers, and what opens them."""

import http.client
import json
import re
from pathlib import Path

import pytest

import headrace.serving.console

FILES = {path.name for path in (Path(headrace.serving.console.__file__).parent / "static").iterdir()}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
TOKENS = {name: f"{name}-0123456789abcdef" for name in ("infer", "admin", "metrics")}


def _ask(server, method, path, headers=None):
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def guarded(models, launch, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    path.write_text("".join(f'{name} = ["{token}"]\n' for name, token in TOKENS.items()))
    with launch(models, token_file=path) as server:
        yield server


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_file_has_its_type_and_protection(guarded, name):
    path = "/" if name == "index.html" else f"/console/{name}"
    status, headers, body = _ask(guarded, "GET", path)
    assert (status, headers["content-type"]) == (200, TYPES[Path(name).suffix])
    assert headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert body
    assert _ask(guarded, "HEAD", path)[::2] == (200, b"")
    assert _ask(guarded, "GET", path, {"If-None-Match": headers["etag"]})[::2] == (304, b"")
    assert _ask(guarded, "GET", path, {"If-None-Match": '"another"'})[0] == 200
    assert _ask(guarded, "POST", path)[0] == 405


@pytest.mark.parametrize(
    "path", ["/console/", "/console/nope.js", "/console/pages.py", "/console/../pages.py", "/console/%2e%2e%2fpages.py"]
)
def test_there_is_nothing_else(guarded, path):
    assert _ask(guarded, "GET", path, {"Authorization": f"Bearer {TOKENS['admin']}"})[0] in (403, 404)


def test_the_page_refers_to_files_that_exist_and_to_no_other_place():
    folder = Path(headrace.serving.console.__file__).parent / "static"
    page = (folder / "index.html").read_text()
    for reference in re.findall(r'(?:src|href)="([^"#]*)"', page):
        if reference:
            assert reference == "docs" or reference.removeprefix("console/") in FILES, reference
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)
    for script in folder.glob("*.js"):
        text = script.read_text()
        for imported in re.findall(r'from "\./([^"]+)"', text):
            assert imported in FILES
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage|sessionStorage|cookie", text
        )


def test_figures_need_a_token_of_any_category(guarded):
    assert _ask(guarded, "GET", "/v1/figures")[0] == 401
    for token in TOKENS.values():
        status, _, body = _ask(guarded, "GET", "/v1/figures", {"Authorization": f"Bearer {token}"})
        assert status == 200
        assert "tiny" in {model["name"] for model in json.loads(body)["models"]}
