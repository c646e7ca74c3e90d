"""A kept path is another one to everything behind it."""

import asyncio

from headrace.serving.http.kept_paths import KeptPaths


def scope_of(path, kind="http"):
    seen = {}

    async def app(scope, receive, send):
        seen.update(scope)

    scope = {"type": kind, "path": path, "raw_path": path.encode(), "method": "POST"}
    asyncio.run(KeptPaths(app, {"/predict": "/v1/kept/net/0"})(scope, None, None))
    return seen


def test_only_that_very_path_stands_for_another():
    assert scope_of("/predict")["path"] == "/v1/kept/net/0"
    for other in ("/predict/", "/Predict", "/predict/x", "/v2", "//predict"):
        assert scope_of(other)["path"] == other


def test_the_log_still_sees_what_was_sent():
    assert scope_of("/predict")["raw_path"] == b"/predict"


def test_what_is_no_request_passes():
    assert scope_of("/predict", "lifespan")["path"] == "/predict"
